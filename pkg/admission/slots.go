package admission

import (
	"fmt"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// Dealt is what one slot is promised for one request of a claim.
type Dealt struct {
	// Claim and Request are named as in a promise.
	Claim, Request string
	Devices        []ledger.DeviceID
}

// Deal returns what each slot of one node of a promise is promised, by slot and request, in the promise's order. A device id
// that does not parse is an error.
func Deal(n *v1alpha1.PlacementNode) ([][]Dealt, error) {
	out := make([][]Dealt, n.Slots)
	for _, r := range n.Requests {
		each := len(r.Devices) / int(n.Slots)
		for i := range out {
			part := Dealt{Claim: r.Claim, Request: r.Request}
			for _, id := range r.Devices[i*each : (i+1)*each] {
				d, err := ledger.ParseDeviceID(id)
				if err != nil {
					return nil, fmt.Errorf("placement: %w", err)
				}
				part.Devices = append(part.Devices, d)
			}
			out[i] = append(out[i], part)
		}
	}
	return out, nil
}

// Picks returns the devices of node n that a slot is promised for one claim, as Policy.Exact takes them, in the slot's order.
// The claim is as its template is now, the promise may be older: a refusal says where they differ, or that a device is gone.
func Picks(n *ledger.Node, claim *flavors.ClaimShape, slot []Dealt) ([]flavors.Pick, *flavors.Refusal) {
	changed := func(format string, args ...any) ([]flavors.Pick, *flavors.Refusal) {
		return nil, &flavors.Refusal{Reason: v1alpha1.ReasonPodChanged,
			Message: fmt.Sprintf("ResourceClaimTemplate %s "+format, append([]any{claim.Template}, args...)...)}
	}
	var picks []flavors.Pick
	for _, r := range slot {
		if r.Claim != claim.Name {
			continue
		}
		request, alternative, ok := claim.Find(r.Request)
		if !ok {
			return changed("has no request %s any more, for which devices were promised", r.Request)
		}
		pick := flavors.Pick{Request: request, Alternative: alternative}
		for _, id := range r.Devices {
			d := n.Device(id)
			if d == nil {
				return nil, &flavors.Refusal{Reason: v1alpha1.ReasonDevicesUnhealthy, Message: fmt.Sprintf("device %s is gone", id)}
			}
			pick.Devices = append(pick.Devices, d)
		}
		if want := claim.Requests[request].Alternatives[alternative].Count; int64(len(pick.Devices)) != want {
			return changed("asks for %d devices now, %d were promised", want, len(pick.Devices))
		}
		picks = append(picks, pick)
	}
	if len(picks) != len(claim.Requests) {
		return changed("has %d requests now, devices were promised for %d", len(claim.Requests), len(picks))
	}
	return picks, nil
}
