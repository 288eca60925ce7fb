package input

import (
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

const (
	queueLabel    = "kueue.x-k8s.io/queue-name"
	priorityLabel = "kueue.x-k8s.io/priority-class"
)

type key struct{ kind, namespace, name string }

// references looks up what objects name. What comes later exists.
type references struct {
	r  *reader
	is map[key]bool
	e  *entry
}

// refer refuses what names an object that the input does not have, and warns where the product waits for it.
func (r *reader) refer() {
	f := &references{r: r, is: map[key]bool{}}
	for _, e := range r.entries {
		f.is[key{e.is.name, e.namespace, e.name}] = true
	}
	for _, e := range r.entries {
		f.e = e
		f.check()
	}
	r.complete(f.is)
}

// need refuses what names an object that is not there. In a dump that is a warning: its cluster had it so.
func (f *references) need(field, kind, namespace, name string) {
	switch {
	case name == "" || f.is[key{kind, namespace, name}]:
	case f.e.object.GetUID() != "":
		f.r.warn(f.e.wrong(field, missing(kind, namespace, name)))
	default:
		f.r.fault(f.e.wrong(field, missing(kind, namespace, name)))
	}
}

// miss warns of what may come: pods, or the product, wait for it.
func (f *references) miss(field, kind, namespace, name string) {
	if name != "" && !f.is[key{kind, namespace, name}] {
		f.r.note(f.e.wrong(field, missing(kind, namespace, name)))
	}
}

func missing(kind, namespace, name string) string {
	if namespace != "" {
		return fmt.Sprintf("no %s %s in namespace %s in the input", kind, short(name), namespace)
	}
	return fmt.Sprintf("no %s %s in the input", kind, short(name))
}

func (f *references) check() {
	switch o := f.e.object.(type) {
	case *kueue.LocalQueue:
		f.need("spec.clusterQueue", "ClusterQueue", "", string(o.Spec.ClusterQueue))
	case *kueue.ClusterQueue:
		f.clusterQueue(o)
	case *kueue.Cohort:
		f.groups(o.Spec.ResourceGroups)
	case *kueue.ResourceFlavor:
		if o.Spec.TopologyName != nil {
			f.need("spec.topologyName", "Topology", "", string(*o.Spec.TopologyName))
		}
	case *kueue.AdmissionCheck:
		f.admissionCheck(o)
	case *v1alpha1.DevicePolicy:
		for i := range o.Spec.Flavors {
			f.need(fmt.Sprintf("spec.flavors[%d].name", i), "ResourceFlavor", "", o.Spec.Flavors[i].Name)
		}
		if c := o.Spec.Canary; c != nil {
			f.need("spec.canary.policyName", "DevicePolicy", "", c.PolicyName)
		}
	case *batchv1.Job:
		f.need("metadata.labels["+queueLabel+"]", "LocalQueue", o.Namespace, o.Labels[queueLabel])
		f.need("metadata.labels["+priorityLabel+"]", "WorkloadPriorityClass", "", o.Labels[priorityLabel])
		f.podSpec(&o.Spec.Template.Spec, "spec.template.spec", false)
	case *corev1.Pod:
		f.podSpec(&o.Spec, "spec", true)
	case *kueue.Workload:
		f.workload(o)
	case *resourcev1.ResourceClaimTemplate:
		f.classes(&o.Spec.Spec, "spec.spec")
	case *resourcev1.ResourceClaim:
		f.classes(&o.Spec, "spec")
	}
}

func (f *references) groups(groups []kueue.ResourceGroup) {
	for i, g := range groups {
		for j, flavor := range g.Flavors {
			f.need(fmt.Sprintf("spec.resourceGroups[%d].flavors[%d].name", i, j), "ResourceFlavor", "", string(flavor.Name))
		}
	}
}

func (f *references) clusterQueue(o *kueue.ClusterQueue) {
	f.groups(o.Spec.ResourceGroups)
	if s := o.Spec.AdmissionChecksStrategy; s != nil {
		for i, c := range s.AdmissionChecks {
			at := fmt.Sprintf("spec.admissionChecksStrategy.admissionChecks[%d]", i)
			f.need(at+".name", "AdmissionCheck", "", string(c.Name))
			for j, flavor := range c.OnFlavors {
				f.need(fmt.Sprintf("%s.onFlavors[%d]", at, j), "ResourceFlavor", "", string(flavor))
			}
		}
	}
}

func (f *references) admissionCheck(o *kueue.AdmissionCheck) {
	if o.Spec.ControllerName != v1alpha1.ControllerName {
		return
	}
	p := o.Spec.Parameters
	switch {
	case p == nil:
		f.r.fault(f.e.wrong("spec.parameters", "must name a DevicePolicy"))
	case p.APIGroup != v1alpha1.GroupVersion.Group || p.Kind != "DevicePolicy":
		f.r.fault(f.e.wrong("spec.parameters", fmt.Sprintf("must name a DevicePolicy of %s, not %s", v1alpha1.GroupVersion.Group, short(p.Kind+"."+p.APIGroup))))
	default:
		f.need("spec.parameters.name", "DevicePolicy", "", p.Name)
	}
}

func (f *references) workload(o *kueue.Workload) {
	if meta.IsStatusConditionTrue(o.Status.Conditions, kueue.WorkloadFinished) {
		return
	}
	f.need("spec.queueName", "LocalQueue", o.Namespace, string(o.Spec.QueueName))
	if p := o.Spec.PriorityClassRef; p != nil && p.Group == kueueGroup {
		f.need("spec.priorityClassRef.name", "WorkloadPriorityClass", "", p.Name)
	}
	if owner := metav1.GetControllerOf(o); owner != nil && (owner.Kind != "Job" || !f.is[key{"Job", o.Namespace, owner.Name}]) {
		f.r.warn(f.e.wrong("metadata.ownerReferences", fmt.Sprintf("its %s %s is not in the input", owner.Kind, short(owner.Name))))
	}
	for i := range o.Spec.PodSets {
		f.podSpec(&o.Spec.PodSets[i].Template.Spec, fmt.Sprintf("spec.podSets[%d].template.spec", i), false)
	}
}

// podSpec looks at what a pod names. A stored pod has the values of its classes already.
func (f *references) podSpec(s *corev1.PodSpec, at string, pod bool) {
	if !strings.HasPrefix(s.PriorityClassName, "system-") && (!pod || s.Priority == nil) {
		f.need(at+".priorityClassName", "PriorityClass", "", s.PriorityClassName)
	}
	if s.RuntimeClassName != nil && (!pod || created(f.e).IsZero()) {
		f.need(at+".runtimeClassName", "RuntimeClass", "", *s.RuntimeClassName)
	}
	for i, c := range s.ResourceClaims {
		place := fmt.Sprintf("%s.resourceClaims[%d]", at, i)
		if c.ResourceClaimTemplateName != nil && (!pod || s.NodeName == "") {
			f.miss(place+".resourceClaimTemplateName", "ResourceClaimTemplate", f.e.namespace, *c.ResourceClaimTemplateName)
		}
		if c.ResourceClaimName != nil {
			f.miss(place+".resourceClaimName", "ResourceClaim", f.e.namespace, *c.ResourceClaimName)
		}
	}
	for i, v := range s.Volumes {
		if v.PersistentVolumeClaim != nil && (!pod || s.NodeName == "") {
			f.miss(fmt.Sprintf("%s.volumes[%d].persistentVolumeClaim.claimName", at, i), "PersistentVolumeClaim", f.e.namespace, v.PersistentVolumeClaim.ClaimName)
		}
	}
}

func (f *references) classes(s *resourcev1.ResourceClaimSpec, at string) {
	for i, q := range s.Devices.Requests {
		place := fmt.Sprintf("%s.devices.requests[%d]", at, i)
		if q.Exactly != nil {
			f.miss(place+".exactly.deviceClassName", "DeviceClass", "", q.Exactly.DeviceClassName)
		}
		for j, sub := range q.FirstAvailable {
			f.miss(fmt.Sprintf("%s.firstAvailable[%d].deviceClassName", place, j), "DeviceClass", "", sub.DeviceClassName)
		}
	}
}
