package report

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

var start = time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)

func at(seconds int) metav1.Time {
	return metav1.NewTime(start.Add(time.Duration(seconds) * time.Second))
}

// workload is a Workload of a Job with two pods of one device each.
func workload(edit ...func(*kueue.Workload)) *kueue.Workload {
	wl := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team-a", Name: "job-train-1f2e3", UID: "wl-1", CreationTimestamp: at(0),
			Annotations: map[string]string{v1alpha1.ChargeAnnotation: `{"main":"1"}`, v1alpha1.AllowedFlavorsAnnotation: ""},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: "job-1", Controller: ptr.To(true),
			}},
		},
		Spec: kueue.WorkloadSpec{
			QueueName: "gpus",
			PodSets: []kueue.PodSet{{Name: "main", Count: 2, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				Overhead: corev1.ResourceList{"gpus": resource.MustParse("1"), "memory": resource.MustParse("64Mi")},
			}}}},
		},
	}
	for _, f := range edit {
		f(wl)
	}
	return wl
}

func condition(kind string, status metav1.ConditionStatus, reason string, since metav1.Time) func(*kueue.Workload) {
	return func(wl *kueue.Workload) {
		wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, LastTransitionTime: since})
	}
}

func reserved(since metav1.Time) func(*kueue.Workload) {
	return func(wl *kueue.Workload) {
		wl.Status.Admission = &kueue.Admission{ClusterQueue: "team-a", PodSetAssignments: []kueue.PodSetAssignment{{
			Name:          "main",
			Flavors:       map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "h100", "gpus": "a100"},
			ResourceUsage: corev1.ResourceList{"cpu": resource.MustParse("4"), "gpus": resource.MustParse("2")},
			Count:         ptr.To[int32](2),
		}}}
		condition(kueue.WorkloadQuotaReserved, metav1.ConditionTrue, "QuotaReserved", since)(wl)
	}
}

// refused is Kueue's word, on the Workload's second generation, that a generation has no quota.
func refused(generation int64) func(*kueue.Workload) {
	return func(wl *kueue.Workload) {
		wl.Generation = 2
		condition(kueue.WorkloadQuotaReserved, metav1.ConditionFalse, "Pending", at(1))(wl)
		wl.Status.Conditions[len(wl.Status.Conditions)-1].ObservedGeneration = generation
	}
}

func admitted(since metav1.Time) func(*kueue.Workload) {
	return condition(kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted", since)
}

func annotated(key, value string) func(*kueue.Workload) {
	return func(wl *kueue.Workload) { wl.Annotations[key] = value }
}

func deactivated(wl *kueue.Workload) { wl.Spec.Active = ptr.To(false) }

func unmanaged(wl *kueue.Workload) { wl.Annotations = nil }

func waitRecord(reason v1alpha1.Reason, message string) *v1alpha1.Placement {
	return &v1alpha1.Placement{Status: v1alpha1.PlacementStatus{Record: &v1alpha1.DecisionRecord{
		Time: at(3), Verdict: v1alpha1.VerdictWait, Reason: reason, Message: message,
	}}}
}

func TestWhyItWaits(t *testing.T) {
	type want struct {
		outcome Outcome
		reason  v1alpha1.Reason
		message string
	}
	stopped := &kueue.LocalQueue{
		ObjectMeta: metav1.ObjectMeta{Name: "gpus"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "team-a"},
		Status: kueue.LocalQueueStatus{Conditions: []metav1.Condition{{Type: kueue.LocalQueueActive, Status: metav1.ConditionFalse, Reason: "ClusterQueueIsInactive"}}},
	}
	cases := map[string]struct {
		in   Input
		want want
	}{
		"closed and never decided is undecided": {
			in:   Input{Workload: workload()},
			want: want{OutcomeWaiting, "Undecided", "Plimsoll has not opened a flavor for it yet"},
		},
		"closed and decided waits for what the record says": {
			in:   Input{Workload: workload(), Placement: waitRecord("NotEnoughDevices", "nine are too many")},
			want: want{OutcomeWaiting, "NotEnoughDevices", "nine are too many"},
		},
		"open and unreserved waits for quota, whatever an older record says": {
			in:   Input{Workload: workload(refused(2), annotated(v1alpha1.AllowedFlavorsAnnotation, "h100,a100")), Placement: waitRecord("DevicesInUse", "busy")},
			want: want{OutcomeWaiting, "QuotaExhausted", "Kueue has no quota for it yet; it may try h100, a100"},
		},
		"open, unreserved and recorded as without quota keeps the record's sentence": {
			in:   Input{Workload: workload(annotated(v1alpha1.AllowedFlavorsAnnotation, "h100")), Placement: waitRecord("QuotaExhausted", "9 of 8")},
			want: want{OutcomeWaiting, "QuotaExhausted", "9 of 8"},
		},
		"open, unreserved and recorded as offered says that it is": {
			in:   Input{Workload: workload(refused(2), annotated(v1alpha1.AllowedFlavorsAnnotation, "h100")), Placement: waitRecord("", "Kueue may give it h100")},
			want: want{OutcomeWaiting, "", "Kueue may give it h100"},
		},
		"open, unreserved and recorded as in a queue that is stopped says that it is": {
			in:   Input{Workload: workload(refused(2), annotated(v1alpha1.AllowedFlavorsAnnotation, "h100")), Placement: waitRecord("QueueInactive", "LocalQueue gpus is stopped")},
			want: want{OutcomeWaiting, "QueueInactive", "LocalQueue gpus is stopped"},
		},
		"open since Kueue looked at it last, it waits for Kueue": {
			in:   Input{Workload: workload(refused(1), annotated(v1alpha1.AllowedFlavorsAnnotation, "h100,a100")), Placement: waitRecord("DevicesInUse", "busy")},
			want: want{OutcomeWaiting, "", "Kueue has not looked at it since it may try h100, a100"},
		},
		"without a check of ours and before Kueue looked, it waits for that": {
			in:   Input{Workload: workload(unmanaged), Checks: []string{}},
			want: want{OutcomeWaiting, "", "Kueue has not looked at it yet"},
		},
		"without a check of ours it waits for quota alone": {
			in:   Input{Workload: workload(unmanaged, refused(2)), Checks: []string{}, LocalQueue: &kueue.LocalQueue{Spec: kueue.LocalQueueSpec{ClusterQueue: "cq"}}},
			want: want{OutcomeWaiting, "QuotaExhausted", "Kueue has no quota for it yet in ClusterQueue cq"},
		},
		"a queue that does not exist comes before the record": {
			in:   Input{Workload: workload(), QueueMissing: true, Placement: waitRecord("DevicesInUse", "busy")},
			want: want{OutcomeWaiting, "QueueInactive", `LocalQueue "gpus" does not exist in namespace team-a`},
		},
		"an inactive queue says why": {
			in:   Input{Workload: workload(), LocalQueue: stopped},
			want: want{OutcomeWaiting, "QueueInactive", "LocalQueue gpus, or its ClusterQueue team-a, takes nothing: ClusterQueueIsInactive"},
		},
		"reserved and not decided is undecided": {
			in:   Input{Workload: workload(reserved(at(1)))},
			want: want{OutcomeWaiting, "Undecided", "Kueue reserved quota, Plimsoll has not decided yet"},
		},
		"reserved and refused waits for what the record says": {
			in:   Input{Workload: workload(reserved(at(1))), Placement: waitRecord("DevicesInUse", "8 of 8 are in use")},
			want: want{OutcomeWaiting, "DevicesInUse", "8 of 8 are in use"},
		},
		"reserved and granted may wait for the checks of others": {
			in: Input{
				Workload: workload(reserved(at(1)), func(wl *kueue.Workload) {
					wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "budget", State: kueue.CheckStatePending}, {Name: "plimsoll", State: kueue.CheckStatePending}}
				}),
				Checks:    []string{"plimsoll"},
				Placement: &v1alpha1.Placement{Status: v1alpha1.PlacementStatus{Record: &v1alpha1.DecisionRecord{Verdict: v1alpha1.VerdictAdmit}}},
			},
			want: want{OutcomeWaiting, "ChecksPending", "it waits for other admission checks: budget is Pending"},
		},
		"admitted runs": {
			in:   Input{Workload: workload(reserved(at(1)), admitted(at(2)))},
			want: want{OutcomeRunning, "", "Kueue admitted it"},
		},
		"admitted and evicted waits": {
			in:   Input{Workload: workload(reserved(at(1)), admitted(at(2)), condition(kueue.WorkloadEvicted, metav1.ConditionTrue, "Preempted", at(3)))},
			want: want{OutcomeWaiting, "", "Kueue is evicting it: Preempted"},
		},
		"deactivated by somebody stays so": {
			in:   Input{Workload: workload(deactivated)},
			want: want{OutcomeWaiting, "", "it is deactivated (spec.active is false) and stays so until somebody sets it to true"},
		},
		"deactivated by us comes back": {
			in:   Input{Workload: workload(deactivated, annotated(v1alpha1.SteeringAnnotation, "n1"))},
			want: want{OutcomeWaiting, "", "Plimsoll takes it back to queue it again"},
		},
		"evicted by us it waits for its backoff": {
			in: Input{Now: at(10).Time, Workload: workload(), Placement: &v1alpha1.Placement{Status: v1alpha1.PlacementStatus{Retry: &v1alpha1.PlacementRetry{
				Count: 2, NotBefore: ptr.To(at(14)), Reason: "PodChanged", Message: "a sidecar asks for 2 cpu",
			}}}},
			want: want{OutcomeWaiting, "PodChanged", "it was taken back (2 times) and is tried again in 4s: a sidecar asks for 2 cpu"},
		},
		"rejected keeps its reason": {
			in:   Input{Workload: workload(deactivated, annotated(v1alpha1.RejectedAnnotation, "NotEnoughDevices"))},
			want: want{OutcomeRejected, "NotEnoughDevices", "no inventory that the policy allows could ever hold it"},
		},
		"finished has no reason": {
			in:   Input{Workload: workload(reserved(at(1)), admitted(at(2)), condition(kueue.WorkloadFinished, metav1.ConditionTrue, "Failed", at(3)))},
			want: want{OutcomeFinished, "", "it ran and failed"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			e := Workload(c.in)
			if got := (want{e.Outcome, ptr.Deref(e.Reason, ""), e.Message}); got != c.want {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func promise() *v1alpha1.Placement {
	return &v1alpha1.Placement{Spec: v1alpha1.PlacementSpec{
		Key: &v1alpha1.PlacementKey{WorkloadUID: "wl-1"},
		PodSets: []v1alpha1.PlacementPodSet{{Name: "main", Flavor: "a100", Charge: 2, Nodes: []v1alpha1.PlacementNode{
			{Name: "node-a", Slots: 1, Requests: []v1alpha1.PlacementRequest{{Claim: "gpus", Request: "gpu", Devices: []string{"d/node-a/gpu-3", "d/node-a/gpu-1"}}}},
			{Name: "node-b", Slots: 2, Requests: []v1alpha1.PlacementRequest{{Claim: "gpus", Request: "gpu", Devices: []string{"d/node-b/gpu-0", "d/node-b/gpu-1", "d/node-b/gpu-2", "d/node-b/gpu-3"}}}},
		}}},
	}}
}

func boundPod(name, node string, created int, completion string) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), CreationTimestamp: at(created), Labels: map[string]string{
			PodSetLabel: "main", "batch.kubernetes.io/job-completion-index": completion,
		}},
		Spec: corev1.PodSpec{NodeName: node, ResourceClaims: []corev1.PodResourceClaim{{Name: "gpus", ResourceClaimTemplateName: ptr.To(name + "-t")}}},
	}
}

func ownTemplate(pod, owner, slot, devices string) resourcev1.ResourceClaimTemplate {
	return resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{
		Name:            pod + "-t",
		Annotations:     map[string]string{v1alpha1.SlotAnnotation: slot, v1alpha1.DevicesAnnotation: devices},
		OwnerReferences: []metav1.OwnerReference{{Kind: "Pod", Name: owner, UID: types.UID(owner), Controller: ptr.To(true)}},
	}}
}

func TestPlaces(t *testing.T) {
	running := workload(reserved(at(1)), admitted(at(2)))
	cases := map[string]struct {
		in   Input
		want []Pod
	}{
		"while it is promised, each slot has the i-th part of its node's devices": {
			in: Input{Workload: running, Placement: promise()},
			want: []Pod{
				{"main", 0, "node-a", []string{"d/node-a/gpu-1", "d/node-a/gpu-3"}},
				{"main", 1, "node-b", []string{"d/node-b/gpu-0", "d/node-b/gpu-1"}},
				{"main", 2, "node-b", []string{"d/node-b/gpu-2", "d/node-b/gpu-3"}},
			},
		},
		"before an admission there are none": {
			in:   Input{Workload: workload(reserved(at(1))), Placement: promise()},
			want: []Pod{},
		},
		"a promise to an earlier Workload of that name is none": {
			in:   Input{Workload: workload(reserved(at(1)), admitted(at(2)), func(wl *kueue.Workload) { wl.UID = "wl-2" }), Placement: promise()},
			want: []Pod{},
		},
		"once it is withdrawn, the pods and their own templates tell, each slot once": {
			in: Input{
				Workload: running,
				Pods: []corev1.Pod{
					boundPod("p2", "node-b", 9, "1"), boundPod("p1", "node-b", 5, "1"), boundPod("p0", "node-a", 5, "0"), boundPod("gated", "", 5, "2"),
				},
				Templates: []resourcev1.ResourceClaimTemplate{
					ownTemplate("p0", "p0", "main/node-a/0", "d/node-a/gpu-1"),
					ownTemplate("p1", "p1", "main/node-b/0", "d/node-b/gpu-2,d/node-b/gpu-0"),
					ownTemplate("p2", "p2", "main/node-b/0", "d/node-b/gpu-2,d/node-b/gpu-0"),
				},
			},
			want: []Pod{
				{"main", 0, "node-a", []string{"d/node-a/gpu-1"}},
				{"main", 1, "node-b", []string{"d/node-b/gpu-0", "d/node-b/gpu-2"}},
			},
		},
		"a template that another pod owns says nothing": {
			in: Input{
				Workload:  running,
				Pods:      []corev1.Pod{boundPod("p0", "node-a", 5, "0")},
				Templates: []resourcev1.ResourceClaimTemplate{ownTemplate("p0", "p9", "main/node-z/7", "d/node-z/gpu-7")},
			},
			want: []Pod{{"main", 0, "node-a", []string{}}},
		},
		"pods without devices go by node and completion index": {
			in: Input{Workload: running, Pods: []corev1.Pod{
				boundPod("b", "node-a", 5, "10"), boundPod("a", "node-a", 5, "9"), boundPod("a2", "node-b", 6, "9"),
			}},
			want: []Pod{{"main", 0, "node-a", []string{}}, {"main", 1, "node-b", []string{}}},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, Workload(c.in).Pods); diff != "" {
				t.Errorf("pods (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCharged(t *testing.T) {
	plain := func(wl *kueue.Workload) {
		wl.Spec.PodSets[0].Template.Spec.Overhead = nil
		wl.Status.Admission.PodSetAssignments[0].Flavors["cpu"] = "cpus"
	}
	type want struct{ charged, flavors map[string]string }
	for name, c := range map[string]struct {
		in   Input
		want want
	}{
		"a written charge says under which name": {
			Input{Workload: workload(reserved(at(1)), admitted(at(2))), Quota: "other"},
			want{map[string]string{"gpus": "2"}, map[string]string{"main": "a100"}},
		},
		"a plain extended resource is charged under the policy's name": {
			Input{Workload: workload(reserved(at(1)), admitted(at(2)), plain), Quota: "gpus"},
			want{map[string]string{"gpus": "2"}, map[string]string{"main": "a100"}},
		},
		"without device quota nothing is charged, and the flavor is that of cpu": {
			Input{Workload: workload(reserved(at(1)), admitted(at(2)), plain), Quota: "other"},
			want{map[string]string{}, map[string]string{"main": "cpus"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := Workload(c.in)
			if diff := cmp.Diff(c.want, want{e.Charged, e.Flavors}, cmp.AllowUnexported(want{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestEntryAsJSON(t *testing.T) {
	placement := promise()
	placement.Spec.PodSets[0].Nodes = placement.Spec.PodSets[0].Nodes[:1]
	placement.Status.Record = &v1alpha1.DecisionRecord{
		Time: at(1), Verdict: v1alpha1.VerdictAdmit, Message: "main: 1 pod of a100 on node-a",
		Standings: []v1alpha1.FlavorStanding{
			{PodSet: "main", Flavor: "h100", Standing: v1alpha1.StandingBusy, Nodes: 1, Reasons: []v1alpha1.StandingReason{{Reason: "DevicesInUse", Nodes: 1, Message: "8 of 8"}}},
			{PodSet: "main", Flavor: "a100", Standing: v1alpha1.StandingFits},
		},
	}
	placement.Status.History = []v1alpha1.DecisionSummary{{Time: at(-2), Verdict: v1alpha1.VerdictWait, Reason: "DevicesInUse", Message: "busy"}}
	cases := map[string]struct {
		in   Input
		want string
	}{
		"finished: the last admission stays, the reason is null": {
			in: Input{
				Workload:  workload(reserved(at(1)), admitted(at(12)), condition(kueue.WorkloadFinished, metav1.ConditionTrue, "Succeeded", at(312))),
				Placement: placement,
			},
			want: `{
			  "namespace": "team-a", "name": "train", "kind": "Job", "queue": "gpus", "clusterQueue": "team-a",
			  "outcome": "Finished", "submittedAt": "0s", "admittedAt": "12s", "finishedAt": "312s",
			  "admissions": [{"at": "12s", "flavors": {"main": "a100"}, "endedAt": "312s", "end": "Finished"}],
			  "flavors": {"main": "a100"}, "charged": {"gpus": "2"},
			  "pods": [{"podSet": "main", "index": 0, "node": "node-a", "devices": ["d/node-a/gpu-1", "d/node-a/gpu-3"]}],
			  "standings": [
			    {"podSet": "main", "flavor": "h100", "standing": "Busy", "reasons": [{"reason": "DevicesInUse", "nodes": 1, "message": "8 of 8"}]},
			    {"podSet": "main", "flavor": "a100", "standing": "Fits", "reasons": []}],
			  "reason": null, "message": "it ran and succeeded",
			  "history": [{"at": "-2s", "verdict": "Wait", "reason": "DevicesInUse", "message": "busy"}]}`,
		},
		"never admitted: clocks are null, lists and maps are empty, not null": {
			in: Input{Workload: workload(func(wl *kueue.Workload) { wl.OwnerReferences = nil })},
			want: `{
			  "namespace": "team-a", "name": "job-train-1f2e3", "kind": "Workload", "queue": "gpus", "clusterQueue": "",
			  "outcome": "Waiting", "submittedAt": "0s", "admittedAt": null, "finishedAt": null, "admissions": [],
			  "flavors": {}, "charged": {}, "pods": [], "standings": [],
			  "reason": "Undecided", "message": "Plimsoll has not opened a flavor for it yet"}`,
		},
		"clocks count from the start that is given": {
			in: Input{Start: at(-30).Time, Workload: workload(reserved(at(1)), admitted(at(2)), condition(kueue.WorkloadEvicted, metav1.ConditionTrue, "Preempted", at(3)))},
			want: `{
			  "namespace": "team-a", "name": "train", "kind": "Job", "queue": "gpus", "clusterQueue": "team-a",
			  "outcome": "Waiting", "submittedAt": "30s", "admittedAt": "32s", "finishedAt": null,
			  "admissions": [{"at": "32s", "flavors": {"main": "a100"}, "endedAt": "33s", "end": "Preempted"}],
			  "flavors": {"main": "a100"}, "charged": {"gpus": "2"}, "pods": [], "standings": [],
			  "reason": null, "message": "Kueue is evicting it: Preempted"}`,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			raw, err := json.Marshal(Workload(c.in))
			if err != nil {
				t.Fatal(err)
			}
			var got, want any
			if err := json.Unmarshal(raw, &got); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(c.want), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("entry (-want +got):\n%s", diff)
			}
			var back Entry
			if err := json.Unmarshal(raw, &back); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(Workload(c.in), back); diff != "" {
				t.Errorf("read back (-want +got):\n%s", diff)
			}
		})
	}
}

func TestManagement(t *testing.T) {
	cases := map[string]struct {
		in   Input
		want Management
	}{
		"steered":                          {Input{Workload: workload()}, Managed},
		"decided, without devices":         {Input{Workload: workload(unmanaged), Placement: &v1alpha1.Placement{}}, Managed},
		"its queue has our check":          {Input{Workload: workload(unmanaged), Checks: []string{"plimsoll"}}, Managed},
		"its queue has no check of ours":   {Input{Workload: workload(unmanaged), Checks: []string{}}, NotManaged},
		"its queue's checks are not known": {Input{Workload: workload(unmanaged)}, ManagementUnknown},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := c.in.Management(); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestClock(t *testing.T) {
	cases := map[string]struct {
		at   time.Duration
		want string
	}{
		"the start":                      {0, "0s"},
		"part of a second is cut":        {1999 * time.Millisecond, "1s"},
		"minutes are written as seconds": {310 * time.Second, "310s"},
		"before the start it is cut too": {-1 * time.Millisecond, "-1s"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := ClockOf(start, start.Add(c.at)).String(); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
	var c Clock
	for _, bad := range []string{"", "s", "5", "5m", "1.5s"} {
		if err := c.UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q was read as %s", bad, c)
		}
	}
}
