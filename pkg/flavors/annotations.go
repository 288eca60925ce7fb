package flavors

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// kept is what the user-affinity annotation keeps of one podset.
type kept struct {
	// Own is the required node affinity that the podset's user wants; nil is none.
	Own *corev1.NodeSelector `json:"own"`
	// Wrote is the digest of what steering put in its place.
	Wrote string `json:"wrote"`
	// Charged is the resource name under which a charge was written; empty while there is none.
	Charged corev1.ResourceName `json:"charged,omitempty"`
	// Fixed names the overhead that was added because the RuntimeClass fixes it, sorted.
	Fixed []corev1.ResourceName `json:"fixed,omitempty"`
}

// AllowedOf returns the allowed set that a Workload's annotation names, over all podsets, in its order; nil for the empty
// set.
func AllowedOf(wl *kueue.Workload) []string {
	return v1alpha1.UnionOfAllowedFlavors(wl.Annotations[v1alpha1.AllowedFlavorsAnnotation])
}

// AllowedFor returns the allowed set of one podset, in the annotation's order; nil for the empty set.
func AllowedFor(wl *kueue.Workload, podSet string) []string {
	plan := PlanOf(wl)
	return plan.allowedFor(podSet)
}

// PlanOf returns the allowed sets and the charges that a Workload's annotations name.
func PlanOf(wl *kueue.Workload) Plan {
	plan := Plan{Charge: ChargeOf(wl)}
	plan.Allowed, plan.AllowedFor = v1alpha1.ParseAllowedFlavors(wl.Annotations[v1alpha1.AllowedFlavorsAnnotation])
	return plan
}

// ChargeOf returns the charge a pod that a Workload's annotation names, by podset. What does not parse is left out.
func ChargeOf(wl *kueue.Workload) map[string]int64 {
	var raw map[string]string
	charges := map[string]int64{}
	if json.Unmarshal([]byte(wl.Annotations[v1alpha1.ChargeAnnotation]), &raw) != nil {
		return charges
	}
	for name, s := range raw {
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			charges[name] = n
		}
	}
	return charges
}

func keptOf(wl *kueue.Workload) (map[string]*kept, error) {
	known := map[string]*kept{}
	v := wl.Annotations[v1alpha1.UserAffinityAnnotation]
	if v == "" {
		return known, nil
	}
	if err := json.Unmarshal([]byte(v), &known); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", v1alpha1.UserAffinityAnnotation, err)
	}
	for name, k := range known {
		if k == nil {
			delete(known, name)
		}
	}
	return known, nil
}

// digest names one node selector.
func digest(s *corev1.NodeSelector) string {
	raw, err := json.Marshal(s)
	if err != nil { // it has only plain fields
		return "undigestible"
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8])
}

// annotate writes what is kept, the charges and the allowed set.
func annotate(wl *kueue.Workload, known map[string]*kept, charges map[string]int64, allowed map[string][]string) error {
	affinity, err := json.Marshal(known)
	if err != nil {
		return fmt.Errorf("user affinity: %w", err)
	}
	raw := map[string]string{}
	for name, c := range charges {
		raw[name] = strconv.FormatInt(c, 10)
	}
	charge, err := json.Marshal(raw)
	if err != nil {
		return fmt.Errorf("charge: %w", err)
	}
	if wl.Annotations == nil {
		wl.Annotations = map[string]string{}
	}
	wl.Annotations[v1alpha1.UserAffinityAnnotation] = string(affinity)
	wl.Annotations[v1alpha1.ChargeAnnotation] = string(charge)
	wl.Annotations[v1alpha1.AllowedFlavorsAnnotation] = v1alpha1.FormatAllowedFlavors(allowed)
	return nil
}
