package simulate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/observe"
	"github.com/plimsoll-dev/plimsoll/internal/policies"
	"github.com/plimsoll-dev/plimsoll/internal/steering"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
	"github.com/plimsoll-dev/plimsoll/pkg/report"
)

// taken prepares an object of a dump for its first place in the store.
func (r *run) taken(o client.Object) {
	switch o := o.(type) {
	case *kueue.Workload:
		// A dump has whole seconds. They come in order of submission.
		r.loaded++
		o.CreationTimestamp = metav1.NewTime(o.CreationTimestamp.Add(time.Duration(r.loaded)))
	case *batchv1.Job:
		// Pods that have ended and are not in the counts yet: nobody here keeps such a list.
		if u := o.Status.UncountedTerminatedPods; u != nil {
			o.Status.Failed += int32(len(u.Failed))
			if ptr.Deref(o.Spec.CompletionMode, batchv1.NonIndexedCompletion) == batchv1.NonIndexedCompletion {
				o.Status.Succeeded += int32(len(u.Succeeded))
			}
			o.Status.UncountedTerminatedPods = nil
		}
	}
}

// restore makes the promises that a dump lacks, since its reader may not read Placements: a Workload that Plimsoll let in has
// what its pods have. Where that cannot be told nothing is made, and the manager decides as it would if somebody had deleted
// the Placement.
func (r *run) restore(ctx context.Context) error {
	list := &kueue.WorkloadList{}
	if err := r.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list workloads: %w", err)
	}
	resolver := &policies.Resolver{Client: r.client}
	for i := range list.Items {
		wl := &list.Items[i]
		key, err := admission.KeyOf(wl)
		if err != nil || key == nil || !meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadAdmitted) {
			continue
		}
		m, err := resolver.ForQueue(ctx, wl.Namespace, string(wl.Spec.QueueName))
		if err != nil {
			return err
		}
		if m == nil || m.Policy == nil {
			continue
		}
		if c := steering.CheckState(wl, m.Checks[0]); c == nil || c.State != kueue.CheckStateReady || len(c.PodSetUpdates) == 0 {
			continue
		}
		if err := r.client.Get(ctx, client.ObjectKeyFromObject(wl), &v1alpha1.Placement{}); err == nil {
			continue
		} else if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("get placement: %w", err)
		}
		podSets, why, err := r.held(ctx, wl, m)
		if err != nil {
			return err
		}
		if why != "" {
			r.options.Warn(fmt.Sprintf("Workload %s/%s was let in, has no Placement in the input, and %s: it is decided anew; dump placements too", wl.Namespace, wl.Name, why))
			continue
		}
		err = r.store.Put(&v1alpha1.Placement{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: wl.Namespace, Name: wl.Name,
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(wl, kueue.GroupVersion.WithKind("Workload"))},
			},
			Spec: v1alpha1.PlacementSpec{Key: key, Epoch: ptr.To[int64](0), Policy: m.Policy.Name, Revision: m.Policy.Revision, PodSets: podSets},
		})
		if err != nil {
			return fmt.Errorf("restore placement: %w", err)
		}
	}
	r.deliver(ctx)
	return r.recorder.settled(ctx) // what was so before anybody does anything
}

// held returns what the pods of a Workload hold, as a promise; why says what of it cannot be told.
func (r *run) held(ctx context.Context, wl *kueue.Workload, m *policies.Managed) (podSets []v1alpha1.PlacementPodSet, why string, err error) {
	pods := &corev1.PodList{}
	err = r.client.List(ctx, pods, client.InNamespace(wl.Namespace), client.MatchingFields{observe.PodByController: string(observe.ControllerOf(wl))}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, "", fmt.Errorf("list pods: %w", err)
	}
	quota := corev1.ResourceName(m.Policy.Spec.QuotaResource)
	for i := range wl.Status.Admission.PodSetAssignments {
		a := &wl.Status.Admission.PodSetAssignments[i]
		count := ptr.Deref(a.Count, 1)
		for _, rp := range wl.Status.ReclaimablePods {
			if rp.Name == a.Name {
				count -= rp.Count
			}
		}
		ps := v1alpha1.PlacementPodSet{Name: string(a.Name), Flavor: report.AssignedFlavor(a, quota)}
		if q, ok := a.ResourceUsage[quota]; ok && ptr.Deref(a.Count, 1) > 0 {
			ps.Charge = q.Value() / int64(ptr.Deref(a.Count, 1))
		}
		slots := int32(0)
		byNode := map[string]*v1alpha1.PlacementNode{}
		for j := range pods.Items {
			p := &pods.Items[j]
			if p.Labels[report.PodSetLabel] != ps.Name || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed || p.DeletionTimestamp != nil {
				continue
			}
			if p.Spec.NodeName == "" {
				return nil, fmt.Sprintf("pod %s is not bound", p.Name), nil
			}
			requests, why, err := r.allocated(ctx, p)
			if err != nil || why != "" {
				return nil, why, err
			}
			if byNode[p.Spec.NodeName] == nil {
				byNode[p.Spec.NodeName] = &v1alpha1.PlacementNode{Name: p.Spec.NodeName}
			}
			if !addSlot(byNode[p.Spec.NodeName], requests) {
				return nil, fmt.Sprintf("its pods on node %s hold unlike devices", p.Spec.NodeName), nil
			}
			slots++
		}
		if slots < count {
			return nil, fmt.Sprintf("podset %s has %d of %d pods", ps.Name, slots, count), nil
		}
		for _, name := range slices.Sorted(maps.Keys(byNode)) {
			ps.Nodes = append(ps.Nodes, *byNode[name])
		}
		podSets = append(podSets, ps)
	}
	return podSets, "", nil
}

// addSlot adds what a pod holds to its node; false where it is not the like of what the others hold.
func addSlot(n *v1alpha1.PlacementNode, requests []v1alpha1.PlacementRequest) bool {
	if n.Slots == 0 {
		n.Slots, n.Requests = 1, requests
		return true
	}
	if len(n.Requests) != len(requests) {
		return false
	}
	for i := range requests {
		have := &n.Requests[i]
		if have.Claim != requests[i].Claim || have.Request != requests[i].Request || len(have.Devices) != int(n.Slots)*len(requests[i].Devices) {
			return false
		}
		have.Devices = append(have.Devices, requests[i].Devices...)
	}
	n.Slots++
	return true
}

// allocated returns the devices that a pod's claims were given, by claim and request; why says which claim is not there.
func (r *run) allocated(ctx context.Context, p *corev1.Pod) (out []v1alpha1.PlacementRequest, why string, err error) {
	type place struct{ claim, request string }
	devices := map[place][]string{}
	add := func(name string, to func(request string) place) error {
		claim := &resourcev1.ResourceClaim{}
		err := r.client.Get(ctx, types.NamespacedName{Namespace: p.Namespace, Name: name}, claim)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("get claim: %w", err)
		}
		if err != nil || claim.Status.Allocation == nil {
			why = fmt.Sprintf("claim %s of pod %s has no devices in it", name, p.Name)
			return nil
		}
		for _, d := range claim.Status.Allocation.Devices.Results {
			at := to(d.Request)
			devices[at] = append(devices[at], d.Driver+"/"+d.Pool+"/"+d.Device)
		}
		return nil
	}
	for _, s := range p.Status.ResourceClaimStatuses {
		if s.ResourceClaimName == nil {
			continue
		}
		if err := add(*s.ResourceClaimName, func(request string) place { return place{s.Name, request} }); err != nil {
			return nil, "", err
		}
	}
	if s := p.Status.ExtendedResourceClaimStatus; s != nil {
		err := add(s.ResourceClaimName, func(request string) place {
			for _, m := range s.RequestMappings {
				if m.RequestName == request {
					request = m.ResourceName
				}
			}
			return place{v1alpha1.ExtendedResourcesClaim, request}
		})
		if err != nil {
			return nil, "", err
		}
	}
	for at, ids := range devices {
		slices.Sort(ids)
		out = append(out, v1alpha1.PlacementRequest{Claim: at.claim, Request: at.request, Devices: ids})
	}
	slices.SortFunc(out, func(a, b v1alpha1.PlacementRequest) int {
		return cmp.Or(cmp.Compare(a.Claim, b.Claim), cmp.Compare(a.Request, b.Request))
	})
	return out, why, nil
}
