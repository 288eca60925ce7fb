package observe

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/constants"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// Of returns the observation of an object as it is, or as deleted. ok is false for kinds that the book does not take, and
// for an object without a readable resourceVersion.
func Of(obj metav1.Object, gone bool) (o ledger.Observation, ok bool) {
	rv, err := strconv.ParseUint(obj.GetResourceVersion(), 10, 64)
	if err != nil {
		return o, false
	}
	o.Ref = ledger.Ref{UID: obj.GetUID(), ResourceVersion: rv, Deleted: gone}
	switch x := obj.(type) {
	case *corev1.Node:
		o.Ref.Kind = ledger.KindNode
		o.Node = unless(gone, x)
	case *corev1.Pod:
		o.Ref.Kind = ledger.KindPod
		terminal := x.Status.Phase == corev1.PodSucceeded || x.Status.Phase == corev1.PodFailed
		o.Pod = unless(gone || terminal, pod(x))
	case *resourcev1.ResourceSlice:
		o.Ref.Kind = ledger.KindSlice
		if !gone {
			o.Slice, o.Mappings, o.Unread = x, mappings(x), unreadOf(x)
		}
	case *resourcev1.ResourceClaim:
		o.Ref.Kind = ledger.KindClaim
		o.Claim = unless(gone, claim(x))
	case *resourcev1.DeviceClass:
		o.Ref.Kind = ledger.KindDeviceClass
		o.Class = unless(gone, x)
	case *v1alpha1.Placement:
		o.Ref.Kind = ledger.KindPlacement
		o.Placement = unless(gone || x.Spec.Key == nil, placement(x))
	case *kueue.Workload:
		o.Ref.Kind = ledger.KindWorkload
		o.Workload = unless(gone, workload(x))
	case *corev1.LimitRange:
		o.Ref.Kind = ledger.KindLimitRange
		o.LimitRange = unless(gone, x)
	case *nodev1.RuntimeClass:
		o.Ref.Kind = ledger.KindRuntimeClass
		o.RuntimeClass = unless(gone, x)
	case *resourcev1beta2.DeviceTaintRule:
		o.Ref.Kind = ledger.KindTaintRule
		o.TaintRule = unless(gone, taintRuleIn("v1beta2", x))
	case *unstructured.Unstructured:
		return ofTaintRule(o, x, gone)
	default:
		return o, false
	}
	return o, true
}

// ofTaintRule completes the observation of a DeviceTaintRule in a version that the types may lack. What a rule means depends on
// the version: so it is another object in each.
func ofTaintRule(o ledger.Observation, u *unstructured.Unstructured, gone bool) (ledger.Observation, bool) {
	gvk := u.GroupVersionKind()
	if gvk.Group != resourcev1.GroupName || gvk.Kind != taintRuleKind {
		return o, false
	}
	rule, err := taintRule(u)
	if err != nil {
		return o, false
	}
	o.Ref.Kind, o.Ref.UID = ledger.KindTaintRule, types.UID(gvk.Version+"/"+string(o.Ref.UID))
	o.TaintRule = unless(gone, rule)
	return o, true
}

func unless[T any](gone bool, x *T) *T {
	if gone {
		return nil
	}
	return x
}

func pod(p *corev1.Pod) *ledger.Pod {
	out := &ledger.Pod{
		Namespace: p.Namespace, Name: p.Name, Node: p.Spec.NodeName,
		Requests:    ledger.RequestsOf(p, p.Spec.NodeName != ""),
		Owner:       ControllerOf(p),
		PodSet:      p.Labels[constants.PodSetLabel],
		CreatedUnix: p.CreationTimestamp.Unix(),
		Terminating: p.DeletionTimestamp != nil,
		Mapped:      mapped(p),
	}
	out.Claims, out.Referring = claimsOf(p)
	if agent(p) {
		out.Labels, out.Serving = p.Labels, ready(p)
	}
	if p.DeletionTimestamp != nil {
		out.EndsUnix = p.DeletionTimestamp.Unix()
	}
	if Released(p) && p.Spec.NodeName == "" {
		out.Pin = p.Spec.NodeSelector[corev1.LabelHostname]
	}
	return out
}

// Gated says whether a pod carries our scheduling gate.
func Gated(p *corev1.Pod) bool {
	for _, g := range p.Spec.SchedulingGates {
		if g.Name == v1alpha1.PlacementGate {
			return true
		}
	}
	return false
}

// Released says whether a pod was ours to release and has been.
func Released(p *corev1.Pod) bool {
	_, managed := p.Labels[v1alpha1.ManagedLabel]
	return managed && !Gated(p)
}

// ControllerOf returns the uid of an object's controller, or "".
func ControllerOf(obj metav1.Object) types.UID {
	if ref := metav1.GetControllerOfNoCopy(obj); ref != nil {
		return ref.UID
	}
	return ""
}

func claim(c *resourcev1.ResourceClaim) *ledger.Claim {
	out := &ledger.Claim{Namespace: c.Namespace, Name: c.Name, Spec: &c.Spec}
	if ref := metav1.GetControllerOfNoCopy(c); ref != nil && ref.Kind == "Pod" {
		out.Pod = ref.UID
	}
	if c.Status.Allocation != nil {
		allocated(out, c.Status.Allocation.Devices.Results)
	}
	for _, r := range c.Status.ReservedFor {
		if r.APIGroup == "" && r.Resource == "pods" {
			out.Pods = append(out.Pods, r.UID)
		}
	}
	if c.Labels[v1alpha1.OwnedLabel] == "true" {
		if out.Promised = Devices(c); out.Promised == nil {
			out.Promised = []ledger.DeviceID{}
		}
		if out.Allocated == nil {
			out.Named = flavors.Named(&c.Spec)
		}
	}
	return out
}

// allocated notes the devices of an allocation in a claim: kube-scheduler tells them apart in the same way.
func allocated(out *ledger.Claim, results []resourcev1.DeviceRequestAllocationResult) {
	out.Allocated = []ledger.DeviceID{}
	for i := range results {
		r := &results[i]
		id := ledger.DeviceID{Driver: r.Driver, Pool: r.Pool, Device: r.Device}
		switch {
		case r.AdminAccess != nil && *r.AdminAccess:
			out.Admin = append(out.Admin, id)
		case r.ShareID != nil:
			out.Shares = append(out.Shares, ledger.Share{Device: id, ID: *r.ShareID, Consumed: ledger.Consumption(r.ConsumedCapacity)})
		default:
			out.Allocated = append(out.Allocated, id)
		}
	}
}

// Devices returns the devices that an owned template or claim names in its annotation; ids that do not parse are left
// out.
func Devices(obj metav1.Object) []ledger.DeviceID {
	v := obj.GetAnnotations()[v1alpha1.DevicesAnnotation]
	if v == "" {
		return nil
	}
	var out []ledger.DeviceID
	for _, s := range strings.Split(v, ",") {
		if id, err := ledger.ParseDeviceID(s); err == nil {
			out = append(out, id)
		}
	}
	return out
}

func placement(p *v1alpha1.Placement) *ledger.Placement {
	return &ledger.Placement{Namespace: p.Namespace, Name: p.Name, Spec: &p.Spec, CreatedUnix: p.CreationTimestamp.Unix()}
}

// nobody is the policy of a Workload whose queue is not looked up.
var nobody *flavors.Policy

func workload(w *kueue.Workload) *ledger.Workload {
	out := &ledger.Workload{Namespace: w.Namespace, Name: w.Name, Owner: ControllerOf(w), Requests: map[string]ledger.Amounts{}, Templates: map[string]ledger.Template{}}
	if key, err := admission.KeyOf(w); err == nil {
		out.Key = key
	}
	for i := range w.Spec.PodSets {
		ps := &w.Spec.PodSets[i]
		t := ledger.Template{Spec: &ps.Template.Spec}
		if len(t.Spec.Overhead) > 0 { // the charge is none of a node's resources
			t.Overhead = nobody.UserPodSpec(w, ps).Overhead
		}
		out.Templates[string(ps.Name)] = t
		out.Requests[string(ps.Name)] = ledger.RequestsOfTemplate(t, ledger.Additions{})
		if times := referring(t.Spec); times != nil {
			if out.Referring == nil {
				out.Referring = map[string]map[string]int{}
			}
			out.Referring[string(ps.Name)] = times
		}
	}
	return out
}

// referring is how often the containers of a pod refer to its claims, by their names in it, where they do more than once; nil for
// none.
func referring(spec *corev1.PodSpec) map[string]int {
	var out map[string]int
	for i := range spec.ResourceClaims {
		name := spec.ResourceClaims[i].Name
		if times := ledger.Referring(spec, name); times > 1 {
			if out == nil {
				out = map[string]int{}
			}
			out[name] = times
		}
	}
	return out
}
