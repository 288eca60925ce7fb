package oracle

import (
	"context"
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
	"github.com/plimsoll-dev/plimsoll/test/oracle/world"
)

// Predictor answers for the ledger and admission. It is not safe for concurrent use.
type Predictor struct{}

// NewPredictor returns one.
func NewPredictor() *Predictor { return &Predictor{} }

// Predict answers what admission says of the world's pod, on a book that was given all of its objects, some as they were before
// and with others that have gone since.
func (p *Predictor) Predict(ctx context.Context, w *world.World) (world.Answer, error) {
	book, err := bookOf(w)
	if err != nil {
		return world.Answer{}, err
	}
	incoming := &admission.Incoming{Pod: w.Pod, Claims: map[string]*resourcev1.ResourceClaim{}}
	names := map[string]string{v1alpha1.ExtendedResourcesClaim: world.ExtendedResources}
	for i := range w.Pod.Spec.ResourceClaims {
		use := &w.Pod.Spec.ResourceClaims[i]
		name, _, err := resourceclaim.Name(w.Pod, use)
		if err != nil || name == nil {
			continue
		}
		for _, c := range w.Claims {
			if c.Name == *name {
				incoming.Claims[use.Name], names[use.Name] = c, c.Name
			}
		}
	}
	for _, c := range w.Claims {
		if c.Annotations[resourcev1.ExtendedResourceClaimAnnotation] == "true" && metav1.IsControlledBy(c, w.Pod) {
			incoming.Claims["earlier, for extended resources"] = c
		}
	}
	// Each world has a decider of its own: what is remembered of slices goes by their uids and versions, which worlds have in common.
	decider := &admission.Decider{Matcher: flavors.NewMatcher()}
	prediction := decider.Predict(ctx, book.Snapshot(), w.Node, incoming)
	if !prediction.Fits {
		return world.Answer{Why: fmt.Sprintf("%s: %s", prediction.Reason, prediction.Message), Unsure: prediction.Unsure, Quirk: prediction.Quirk}, nil
	}
	a := world.Answer{Fits: true, Devices: map[string][]string{}, Unsure: prediction.Unsure, Quirk: prediction.Quirk}
	for use, allocation := range prediction.Allocations {
		a.Devices[names[use]] = world.Given(allocation)
	}
	for name, n := range prediction.Mapped {
		if n == 0 {
			continue
		}
		if a.Mapped == nil {
			a.Mapped = ledger.Amounts{}
		}
		a.Mapped[name] = n
	}
	return a, nil
}
