package observe

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// TestAClaimOfOursIsReadFromItsSpec until it is allocated; the annotation is a hint that may be missing. A claim that is not ours
// is nothing of the kind, whatever it says.
func TestAClaimOfOursIsReadFromItsSpec(t *testing.T) {
	const expression = `(device.driver == "d" && "uuid" in device.attributes["d"] && device.attributes["d"]["uuid"] in ["u"])`
	named := []ledger.Naming{{Driver: "d", Keys: []ledger.AttributeKey{{Domain: "d", ID: "uuid"}}, Values: [][]ledger.AttributeValue{{{Text: "u", IsText: true}}}}}
	noted := map[string]string{v1alpha1.DevicesAnnotation: "d/p/x"}
	ours := map[string]string{v1alpha1.OwnedLabel: "true"}
	for name, tc := range map[string]struct {
		labels, annotations map[string]string
		allocated           bool
		promised            []ledger.DeviceID
		named               []ledger.Naming
	}{
		"ours":                      {labels: ours, annotations: noted, promised: []ledger.DeviceID{{Driver: "d", Pool: "p", Device: "x"}}, named: named},
		"ours without the note":     {labels: ours, promised: []ledger.DeviceID{}, named: named},
		"ours that is allocated":    {labels: ours, annotations: noted, allocated: true, promised: []ledger.DeviceID{{Driver: "d", Pool: "p", Device: "x"}}},
		"one that says it was ours": {annotations: noted},
	} {
		t.Run(name, func(t *testing.T) {
			c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "c", ResourceVersion: "1", Labels: tc.labels, Annotations: tc.annotations}}
			c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{
				Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: expression}}}}}}
			if tc.allocated {
				c.Status.Allocation = &resourcev1.AllocationResult{}
			}
			o, ok := Of(c, false)
			if !ok {
				t.Fatal("the claim was not taken")
			}
			if d := cmp.Diff(tc.promised, o.Claim.Promised); d != "" {
				t.Errorf("promised (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tc.named, o.Claim.Named); d != "" {
				t.Errorf("named (-want +got):\n%s", d)
			}
		})
	}
}
