package e2e

import (
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// matching returns which devices of a node a claim's own selectors accept, sorted.
func matching(claim *resourcev1.ResourceClaim, list *resourcev1.ResourceSliceList, node string) []string {
	GinkgoHelper()
	var expressions []string
	for _, s := range claim.Spec.Devices.Requests[0].Exactly.Selectors {
		expressions = append(expressions, s.CEL.Expression)
	}
	m := flavors.NewMatcher()
	var out []string
	for _, s := range list.Items {
		if s.Spec.NodeName == nil || *s.Spec.NodeName != node {
			continue
		}
		for i := range s.Spec.Devices {
			ok, err := m.Matches(s.Spec.Driver, &s.Spec.Devices[i], expressions...)
			Expect(err).NotTo(HaveOccurred())
			if ok {
				out = append(out, ledger.DeviceID{Driver: s.Spec.Driver, Pool: s.Spec.Pool.Name, Device: s.Spec.Devices[i].Name}.String())
			}
		}
	}
	slices.Sort(out)
	return out
}
