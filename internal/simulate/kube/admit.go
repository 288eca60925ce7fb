package kube

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/plimsoll-dev/plimsoll/internal/simulate/store"
)

// defaultTolerationSeconds is for how long a pod that says nothing stays on a node that is lost.
const defaultTolerationSeconds = 300

// admitted has every pod that is created go through Admit.
func admitted(c client.Reader) store.Hook {
	return func(ctx context.Context, op store.Op, _ string, _, is client.Object) error {
		if op != store.Create {
			return nil
		}
		return Admit(ctx, c, is.(*corev1.Pod))
	}
}

// Admit fills in what the API server writes into a pod that is created: requests for what is only limited, what
// LimitRanges say, its priority, the overhead of its RuntimeClass, and how long it tolerates the loss of its node. A class
// that does not exist leaves the pod as it is. The store's hooks call it for what is created, not for what is put.
func Admit(ctx context.Context, c client.Reader, p *corev1.Pod) error {
	if p.Status.Phase == "" {
		p.Status.Phase = corev1.PodPending
	}
	tolerateLoss(&p.Spec)
	eachContainer(p, func(r *corev1.ResourceRequirements) { r.Requests = filled(r.Requests, r.Limits) })
	if err := classes(ctx, c, p); err != nil {
		return err
	}
	var list corev1.LimitRangeList
	if err := c.List(ctx, &list, client.InNamespace(p.Namespace)); err != nil {
		return fmt.Errorf("list limit ranges: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b corev1.LimitRange) int { return cmp.Compare(a.Name, b.Name) })
	for i := range list.Items {
		for _, item := range list.Items[i].Spec.Limits {
			if item.Type != corev1.LimitTypeContainer {
				continue
			}
			limits := filled(item.Default, item.Max)
			requests := filled(filled(item.DefaultRequest, limits), item.Min)
			eachContainer(p, func(r *corev1.ResourceRequirements) {
				r.Requests, r.Limits = filled(r.Requests, requests), filled(r.Limits, limits)
			})
		}
	}
	return nil
}

func classes(ctx context.Context, c client.Reader, p *corev1.Pod) error {
	if name := p.Spec.PriorityClassName; name != "" && p.Spec.Priority == nil {
		class := &schedulingv1.PriorityClass{}
		switch err := c.Get(ctx, types.NamespacedName{Name: name}, class); {
		case err == nil:
			p.Spec.Priority, p.Spec.PreemptionPolicy = ptr.To(class.Value), class.PreemptionPolicy
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("get priority class: %w", err)
		}
	}
	if name := p.Spec.RuntimeClassName; name != nil && len(p.Spec.Overhead) == 0 {
		class := &nodev1.RuntimeClass{}
		switch err := c.Get(ctx, types.NamespacedName{Name: *name}, class); {
		case err == nil && class.Overhead != nil:
			p.Spec.Overhead = class.Overhead.PodFixed.DeepCopy()
		case err != nil && !apierrors.IsNotFound(err):
			return fmt.Errorf("get runtime class: %w", err)
		}
	}
	return nil
}

func eachContainer(p *corev1.Pod, do func(*corev1.ResourceRequirements)) {
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			do(&list[i].Resources)
		}
	}
}

// filled returns a list with what it lacks of another. It changes neither.
func filled(list, with corev1.ResourceList) corev1.ResourceList {
	out := list
	for name, q := range with {
		if _, has := list[name]; has {
			continue
		}
		if len(out) == len(list) {
			out = corev1.ResourceList{}
			maps.Copy(out, list)
		}
		out[name] = q
	}
	return out
}

// tolerateLoss adds the tolerations that every pod gets unless it says otherwise.
func tolerateLoss(s *corev1.PodSpec) {
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		says := slices.ContainsFunc(s.Tolerations, func(t corev1.Toleration) bool {
			return (t.Key == key || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "")
		})
		if !says {
			s.Tolerations = append(s.Tolerations, corev1.Toleration{
				Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](defaultTolerationSeconds),
			})
		}
	}
}
