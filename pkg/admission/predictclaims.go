package admission

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// gather finds the pod's claims, and the classes that serve its extended resources.
func (o *prospect) gather() *refusal {
	for i := range o.pod.Spec.ResourceClaims {
		pc := &o.pod.Spec.ResourceClaims[i]
		name, own, err := resourceclaim.Name(o.pod, pc)
		if err != nil {
			return notQueued(v1alpha1.ReasonClaimTemplateNotFound, "claim %s: %v", pc.Name, err)
		}
		if name == nil {
			continue // none was meant to be made
		}
		claim := o.in.Claims[pc.Name]
		switch {
		case claim == nil:
			return notQueued(v1alpha1.ReasonClaimTemplateNotFound, "claim %s: ResourceClaim %s does not exist", pc.Name, *name)
		case claim.DeletionTimestamp != nil:
			return notQueued(v1alpha1.ReasonClaimUnsupported, "claim %s: ResourceClaim %s is being deleted", pc.Name, *name)
		case own:
			if err := resourceclaim.IsForPod(o.pod, claim, false); err != nil {
				return notQueued(v1alpha1.ReasonClaimUnsupported, "claim %s: %v", pc.Name, err)
			}
		}
		o.its = append(o.its, podClaim{name: pc.Name, ResourceClaim: claim})
	}
	return o.extended()
}

// notQueued is a refusal for which kube-scheduler leaves the pod in its queue.
func notQueued(reason v1alpha1.Reason, format string, args ...any) *refusal {
	no := refuse(reason, format, args...)
	no.reach = ReachQueue
	return no
}

// ready is what the plugin DynamicResources says of the claims before it looks at nodes.
func (o *prospect) ready() *refusal {
	for k := range o.its {
		c := &o.its[k]
		if c.allocated() || c.extended {
			continue
		}
		for i := range c.Spec.Devices.Requests {
			r := &c.Spec.Devices.Requests[i]
			classes := []string{}
			if r.Exactly != nil {
				classes = append(classes, r.Exactly.DeviceClassName)
			} else {
				for j := range r.FirstAvailable {
					classes = append(classes, r.FirstAvailable[j].DeviceClassName)
				}
			}
			if len(classes) == 0 {
				return refuse(v1alpha1.ReasonClaimUnsupported, "claim %s: request %s is of a kind that is not known", c.name, r.Name).everywhere()
			}
			for _, class := range classes {
				if class == "" {
					return refuse(v1alpha1.ReasonClaimUnsupported, "claim %s: request %s names no DeviceClass", c.name, r.Name).everywhere()
				}
				if o.s.DeviceClass(class) == nil {
					return refuse(v1alpha1.ReasonDeviceClassNotFound, "claim %s: DeviceClass %s of request %s does not exist", c.name, class, r.Name).everywhere()
				}
			}
		}
	}
	return nil
}

// usable is what it says of claims that are allocated.
func (f *foresight) usable(context.Context) *refusal {
	for _, c := range f.claims {
		if !c.allocated() {
			continue
		}
		if selector := c.Status.Allocation.NodeSelector; selector != nil {
			parsed, err := nodeaffinity.NewNodeSelector(selector)
			if err != nil {
				return refuse(v1alpha1.ReasonClaimUnsupported, "claim %s: its allocation's node selector: %v", c.name, err)
			}
			if !parsed.Match(f.n.Object) {
				return refuse(v1alpha1.ReasonNodeUnavailable, "claim %s has devices that node %s cannot use", c.name, f.n.Name)
			}
		}
		if no := f.bindable(c); no != nil {
			return no
		}
		if no := f.shareable(c); no != nil {
			return no
		}
	}
	return nil
}

// bindable says what the conditions that a claim's devices must meet before pods are bound make of it.
func (f *foresight) bindable(c *podClaim) *refusal {
	for i := range c.Status.Allocation.Devices.Results {
		r := &c.Status.Allocation.Devices.Results[i]
		if len(r.BindingConditions) == 0 {
			continue
		}
		at := slices.IndexFunc(c.Status.Devices, func(s resourcev1.AllocatedDeviceStatus) bool {
			return s.Driver == r.Driver && s.Pool == r.Pool && s.Device == r.Device
		})
		var conditions []metav1.Condition
		if at >= 0 {
			conditions = c.Status.Devices[at].Conditions
			for _, name := range r.BindingFailureConditions {
				if apimeta.IsStatusConditionTrue(conditions, name) {
					return refuse(v1alpha1.ReasonDevicesUnhealthy, "claim %s: device %s failed to be bound: %s", c.name, r.Device, name)
				}
			}
		}
		for _, name := range r.BindingConditions {
			if !apimeta.IsStatusConditionTrue(conditions, name) {
				f.odd("claim %s: device %s is not bound yet (%s): kube-scheduler takes the claim back where that lasts too long", c.name, r.Device, name)
				return nil
			}
		}
	}
	return nil
}

// shareable says whether another pod on the node has the claim and is counted something for it there. 1.37 asks whether it maps
// anything instead.
func (f *foresight) shareable(c *podClaim) *refusal {
	if f.byRules() == ledger.Rules137 {
		return nil
	}
	for _, m := range f.n.MappedClaims {
		if m.Namespace != f.pod.Namespace || m.Name != c.Name {
			continue
		}
		if len(m.Pods) > 1 || !slices.Contains(m.Pods, f.pod.UID) {
			f.odd("kube-scheduler lets no two pods on a node share a claim that maps the node's own resources")
			return refuse(v1alpha1.ReasonDevicesInUse, "claim %s maps resources of node %s and is used by another pod there", c.name, f.n.Name)
		}
	}
	return nil
}

// bind is what stops kube-scheduler after it has chosen the node.
func (f *foresight) bind(context.Context) *refusal {
	for i, c := range f.claims {
		reserved := !c.extended && resourceclaim.IsReservedForPod(f.pod, c.ResourceClaim, false)
		switch {
		case !reserved && slices.ContainsFunc(f.claims[:i], func(o *podClaim) bool { return o.UID == c.UID }):
			f.odd("kube-scheduler 1.36 writes a claim once for each name that a pod has for it, and fails over what it wrote itself")
			return refuse(v1alpha1.ReasonClaimUnsupported, "claim %s is ResourceClaim %s, which the pod has by another name as well: it is never bound", c.name, c.Name).everywhere()
		case c.extended && c.result != nil && len(c.Spec.Devices.Requests) == 0:
			f.odd("kube-scheduler 1.36 makes a claim for the extended resources of a pod that has claims of its own even where a device plugin serves them all, and fails to bind the pod over the claim being empty")
			return refuse(v1alpha1.ReasonClaimUnsupported, "node %s: a device plugin serves the pod's extended resources, which a DeviceClass serves as well, and the pod has claims besides: it is never bound there", f.n.Name)
		case !c.extended && !reserved && len(c.Status.ReservedFor) >= resourcev1.ResourceClaimReservedForMaxSize:
			f.odd("kube-scheduler finds only when it binds the pod that a claim has as many consumers as it may")
			return refuse(v1alpha1.ReasonDevicesInUse, "claim %s has %d consumers already", c.name, len(c.Status.ReservedFor))
		case c.result != nil:
			for i := range c.result.Devices.Results {
				if r := &c.result.Devices.Results[i]; len(r.BindingConditions) > 0 {
					f.odd("claim %s: the pod is bound once device %s meets its binding conditions", c.name, r.Device)
					break
				}
			}
		}
	}
	return nil
}

// extended finds the classes that serve extended resources of the pod and, where there are any, adds the claim that
// kube-scheduler makes for it. What is in that is for each node to say.
func (o *prospect) extended() *refusal {
	for _, name := range o.asked {
		if o.requests[name] == 0 || !byClaim(name) {
			continue
		}
		if class := o.class(name); class != nil {
			if o.classes == nil {
				o.classes = map[corev1.ResourceName]*resourcev1.DeviceClass{}
			}
			o.classes[name] = class
		}
	}
	if o.classes == nil {
		return nil
	}
	claim := emptyExtendedClaim(o.pod)
	for _, name := range slices.Sorted(maps.Keys(o.in.Claims)) {
		c := o.in.Claims[name]
		if c != nil && c.Annotations[resourcev1.ExtendedResourceClaimAnnotation] == "true" && metav1.IsControlledBy(c, o.pod) {
			claim = c
			break
		}
	}
	o.its = append(o.its, podClaim{name: v1alpha1.ExtendedResourcesClaim, ResourceClaim: claim, extended: true})
	return nil
}
