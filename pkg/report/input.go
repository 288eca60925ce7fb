package report

import (
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// Input is what a report is made from. Only Workload must be set. Nothing in it is changed or kept.
type Input struct {
	// Start is time zero of the clocks; the zero time means the Workload's creation.
	Start time.Time
	// Now is the time of the report.
	Now time.Time

	Workload *kueue.Workload
	// Placement is nil where there is none.
	Placement *v1alpha1.Placement
	// LocalQueue is nil where it could not be read, and QueueMissing true where it does not exist.
	LocalQueue   *kueue.LocalQueue
	QueueMissing bool
	// Job is the metadata of the Workload's owner; nil where there is none or it could not be read.
	Job *metav1.PartialObjectMetadata
	// Pods are the Workload's, and Templates the claim templates that were made for them.
	Pods      []corev1.Pod
	Templates []resourcev1.ResourceClaimTemplate
	// Claims are the claims of pods whose claims nobody cut; nil where they were not read.
	Claims []resourcev1.ResourceClaim
	// Checks are the names of the ClusterQueue's admission checks that are Plimsoll's. Nil means not known.
	Checks []string
	// Quota is the quotaResource of the ClusterQueue's policy; "" where it was not read. It is what Kueue charges for plain
	// extended resources, which nobody writes a charge for.
	Quota corev1.ResourceName
}

// Management says whether Plimsoll has a say about a Workload.
type Management string

// What may be known of it.
const (
	Managed           Management = "Managed"
	NotManaged        Management = "NotManaged"
	ManagementUnknown Management = "Unknown"
)

// Management says whether the Workload is managed, from what was written about it and from its queue's checks.
func (in *Input) Management() Management {
	annotations := in.Workload.Annotations
	_, charged := annotations[v1alpha1.ChargeAnnotation]
	_, steered := annotations[v1alpha1.AllowedFlavorsAnnotation]
	switch {
	case in.Placement != nil, charged, steered, len(in.Checks) > 0:
		return Managed
	case in.Checks == nil:
		return ManagementUnknown
	}
	return NotManaged
}

// Owner returns the kind and name of the object that the Workload stands for, or its own.
func (in *Input) Owner() (kind, name string) {
	if in.Job != nil && in.Job.Kind != "" {
		return in.Job.Kind, in.Job.Name
	}
	if ref := metav1.GetControllerOf(in.Workload); ref != nil {
		return ref.Kind, ref.Name
	}
	return "Workload", in.Workload.Name
}

// ClusterQueue returns the name of the ClusterQueue, or "" where it is not known.
func (in *Input) ClusterQueue() string {
	if a := in.Workload.Status.Admission; a != nil {
		return string(a.ClusterQueue)
	}
	if in.LocalQueue != nil {
		return string(in.LocalQueue.Spec.ClusterQueue)
	}
	return ""
}

// QuotaResource returns the resource under which the Workload is charged for devices, or "" where it is charged for
// none. It is the one that the charge was written to as overhead, which a RuntimeClass uses for machine resources only;
// the policy's where no charge was written.
func (in *Input) QuotaResource() corev1.ResourceName {
	var names []corev1.ResourceName
	for i := range in.Workload.Spec.PodSets {
		for name := range in.Workload.Spec.PodSets[i].Template.Spec.Overhead {
			if !machineResource(name) && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	if len(names) == 0 {
		return in.Quota
	}
	return slices.Min(names)
}

func machineResource(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourcePods:
		return true
	}
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// AllowedFlavors returns the flavors that Kueue may try, and whether Plimsoll steers the Workload at all.
func (in *Input) AllowedFlavors() (flavors []string, steered bool) {
	value, steered := in.Workload.Annotations[v1alpha1.AllowedFlavorsAnnotation]
	return v1alpha1.UnionOfAllowedFlavors(value), steered
}

// record returns the decision record, or nil.
func (in *Input) record() *v1alpha1.DecisionRecord {
	if in.Placement == nil {
		return nil
	}
	return in.Placement.Status.Record
}

func (in *Input) is(condition string) bool {
	return meta.IsStatusConditionTrue(in.Workload.Status.Conditions, condition)
}

// active is false where somebody deactivated the Workload.
func (in *Input) active() bool {
	return in.Workload.Spec.Active == nil || *in.Workload.Spec.Active
}

// Reserved says whether Kueue keeps quota for the Workload now.
func (in *Input) Reserved() bool {
	return in.Workload.Status.Admission != nil && in.is(kueue.WorkloadQuotaReserved)
}

// Admitted says whether Kueue admitted the Workload and has not taken it back.
func (in *Input) Admitted() bool {
	return in.is(kueue.WorkloadAdmitted) && !in.is(kueue.WorkloadEvicted)
}

// Plural counts things: 1 node, 2 nodes.
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}
