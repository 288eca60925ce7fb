package round

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

func strict(cq *kueue.ClusterQueue, _ *v1alpha1.DevicePolicySpec) {
	cq.Spec.QueueingStrategy = kueue.StrictFIFO
}

func TestAHeadWithoutDevicesHoldsUpAStrictQueue(t *testing.T) {
	b := newBench(t, map[string]string{"h": "h100"}, strict)
	b.waits("plain", func(wl *kueue.Workload) { wl.Spec.PodSets[0].Template.Spec.ResourceClaims = nil })
	b.waits("next", nil)
	b.settle(0)
	if got := b.open("next"); got != "" {
		t.Errorf("open are %s behind a head that Kueue has not admitted", got)
	}
	if r := b.placement("next").Status.Record; r == nil || r.Reason != v1alpha1.ReasonBehindQueueHead || !strings.HasSuffix(r.Message, ": plain") {
		t.Errorf("the next says %+v", r)
	}
	if wl := b.workload("plain"); len(wl.Annotations) > 0 || wl.Spec.PodSets[0].Template.Spec.Overhead != nil {
		t.Errorf("the head was steered: %+v", wl.Annotations)
	}
	b.gone(b.workload("plain"))
	b.settle(1)
	if got := b.open("next"); got != "next=h100" {
		t.Errorf("open are %q when the head is gone", got)
	}
}

func TestAStoppedLocalQueueIsSaidAndHoldsUpNobody(t *testing.T) {
	b := newBench(t, map[string]string{"h": "h100"}, strict)
	b.make(&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "stopped"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "shared", StopPolicy: ptr.To(kueue.Hold)}})
	b.waits("first", func(wl *kueue.Workload) { wl.Spec.QueueName = "stopped" })
	b.waits("next", nil)
	b.settle(0)
	if r := b.placement("first").Status.Record; r == nil || r.Reason != v1alpha1.ReasonQueueInactive || r.Message != "LocalQueue stopped is stopped" {
		t.Errorf("who waits in the stopped queue is told %+v", r)
	}
	if got := b.open("next"); got != "next=h100" {
		t.Errorf("the next has %q open", got)
	}
}

func TestWithoutItsPolicyAPromiseOfWhatEndsIsNotAdmitted(t *testing.T) {
	b := promisedOnWhatEnds(t)
	dp := &v1alpha1.DevicePolicy{}
	b.must(b.Client.Get(t.Context(), client.ObjectKey{Name: "gpu"}, dp))
	spec := dp.Spec
	b.must(b.Client.Delete(t.Context(), dp))
	b.InputChanged()
	b.settle(2)
	b.goes("old")
	b.settle(3)
	if got := b.check("wl"); !strings.HasPrefix(got, "Pending PolicyNotReady: its place is kept") {
		t.Errorf("without a policy the check is %q", got)
	}
	if b.placement("wl").Spec.Key == nil {
		t.Error("the promise is withdrawn")
	}
	b.make(&v1alpha1.DevicePolicy{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: spec})
	b.InputChanged()
	b.settle(4)
	if got := b.check("wl"); got != "Ready every pod has a place that is kept for it" {
		t.Errorf("with its policy back the check is %q", got)
	}
}
