package explain

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/report"
)

var start = time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)

func at(seconds int) metav1.Time {
	return metav1.NewTime(start.Add(time.Duration(seconds) * time.Second))
}

func condition(kind, status, reason, message string, since int) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionStatus(status), Reason: reason, Message: message, LastTransitionTime: at(since)}
}

// subject is a Workload of a Job with four pods of two devices each, 90 s after it was created, closed and undecided.
func subject(edit ...func(*Subject)) *Subject {
	wl := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team-a", Name: "job-train-1f2e3", UID: "wl-1", CreationTimestamp: at(0),
			Annotations: map[string]string{v1alpha1.AllowedFlavorsAnnotation: ""},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: "job-1", Controller: ptr.To(true),
			}},
		},
		Spec: kueue.WorkloadSpec{QueueName: "gpus", PodSets: []kueue.PodSet{{Name: "main", Count: 4, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			Overhead: corev1.ResourceList{"gpus": resource.MustParse("2")},
		}}}}},
	}
	s := &Subject{Input: report.Input{
		Now: at(90).Time, Workload: wl,
		LocalQueue: &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Name: "gpus"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "team-a"}},
		Checks:     []string{"plimsoll"},
	}}
	for _, f := range edit {
		f(s)
	}
	return s
}

func with(conditions ...metav1.Condition) func(*Subject) {
	return func(s *Subject) { s.Workload.Status.Conditions = append(s.Workload.Status.Conditions, conditions...) }
}

func reserved(s *Subject) {
	s.Workload.Status.Admission = &kueue.Admission{ClusterQueue: "team-a", PodSetAssignments: []kueue.PodSetAssignment{{
		Name:          "main",
		Flavors:       map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "a100", "gpus": "a100"},
		ResourceUsage: corev1.ResourceList{"gpus": resource.MustParse("8")},
		Count:         ptr.To[int32](4),
	}}}
	with(condition(kueue.WorkloadQuotaReserved, "True", "QuotaReserved", "Quota reserved in ClusterQueue team-a", 2))(s)
}

func admitted(s *Subject) {
	reserved(s)
	with(condition(kueue.WorkloadAdmitted, "True", "Admitted", "The workload is admitted", 30))(s)
}

func noQuota(s *Subject) {
	with(condition(kueue.WorkloadQuotaReserved, "False", "Pending", "couldn't assign flavors to pod set main: insufficient unused quota for gpus in flavor a100, 2 more needed", 1))(s)
}

// waiting is the record of a workload that waits for devices.
func waiting(s *Subject) {
	s.Placement = &v1alpha1.Placement{Status: v1alpha1.PlacementStatus{
		Conditions: []metav1.Condition{condition(v1alpha1.PlacementReserved, "False", "DevicesInUse", "flavor a100 is Busy: node a100-1: 7 of 8 devices are in use, a pod asks for 2; 3 of 4 pods placeable", 3)},
		Record: &v1alpha1.DecisionRecord{
			Time: at(80), Verdict: v1alpha1.VerdictWait, Policy: "gpu", Revision: "1234abcd", LedgerVersion: 4711,
			Reason:  v1alpha1.ReasonDevicesInUse,
			Message: "flavor a100 is Busy: node a100-1: 7 of 8 devices are in use, a pod asks for 2; 3 of 4 pods placeable",
			Standings: []v1alpha1.FlavorStanding{
				{PodSet: "main", Flavor: "h100", Standing: v1alpha1.StandingBlocked, Nodes: 1, Devices: 8, Reasons: []v1alpha1.StandingReason{
					{Reason: v1alpha1.ReasonNodeUnavailable, Nodes: 1, Message: "node h100-0 is cordoned"},
				}},
				{PodSet: "main", Flavor: "a100", Standing: v1alpha1.StandingBusy, Nodes: 2, Devices: 16, Reasons: []v1alpha1.StandingReason{
					{Reason: v1alpha1.ReasonDevicesInUse, Nodes: 2, Message: "node a100-1: 7 of 8 devices are in use, a pod asks for 2"},
					{Reason: v1alpha1.ReasonGangShort, Message: "3 of 4 pods placeable"},
				}},
			},
		},
		History: []v1alpha1.DecisionSummary{
			{Time: at(30), Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonDevicesInUse, Message: "flavor a100 is Busy: node a100-0: 8 of 8 devices are in use, a pod asks for 2"},
			{Time: at(2), Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonPoolIncomplete, Message: "flavor a100 is Blocked: node a100-0: pool a100-0 of gpu.nvidia.com shows 1 of its slices"},
		},
	}}
}

// granted is the promise of an admitted workload, two pods on each of two nodes.
func granted(s *Subject) {
	ids := func(node string, names ...string) []string {
		var out []string
		for _, n := range names {
			out = append(out, "gpu.nvidia.com/"+node+"/"+n)
		}
		return out
	}
	node := func(name string, devices ...string) v1alpha1.PlacementNode {
		return v1alpha1.PlacementNode{Name: name, Slots: 2, Requests: []v1alpha1.PlacementRequest{{Claim: "gpus", Request: "gpu", Devices: ids(name, devices...)}}}
	}
	s.Placement = &v1alpha1.Placement{
		Spec: v1alpha1.PlacementSpec{
			Key: &v1alpha1.PlacementKey{WorkloadUID: "wl-1", ReservedAt: at(2), Admission: "abc"}, Policy: "gpu",
			PodSets: []v1alpha1.PlacementPodSet{{Name: "main", Flavor: "a100", Charge: 2, Nodes: []v1alpha1.PlacementNode{
				node("a100-0", "gpu-0", "gpu-1", "gpu-2", "gpu-3"), node("a100-1", "gpu-4", "gpu-5", "gpu-6", "gpu-7"),
			}}},
		},
		Status: v1alpha1.PlacementStatus{
			Conditions: []metav1.Condition{
				condition(v1alpha1.PlacementBound, "False", "Binding", "3 of 4 pods are bound", 31),
				condition(v1alpha1.PlacementReserved, "True", "Promised", "the devices are kept", 29),
				condition(v1alpha1.PlacementReleased, "False", "Releasing", "3 of 4 gates are removed", 31),
			},
			Record: &v1alpha1.DecisionRecord{
				Time: at(29), Verdict: v1alpha1.VerdictAdmit, Policy: "gpu", LedgerVersion: 4800, Message: "main: 4 pods of a100 on a100-0, a100-1",
				Standings: []v1alpha1.FlavorStanding{{PodSet: "main", Flavor: "a100", Standing: v1alpha1.StandingFits, Nodes: 2, Devices: 16}},
			},
		},
	}
}

func pod(name string, gates ...string) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name}}
	for _, g := range gates {
		p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: g})
	}
	return p
}
