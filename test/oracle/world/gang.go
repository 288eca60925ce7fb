package world

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// FlavorLabel is on nodes that a Gang may use.
const FlavorLabel = "example.com/flavor"

// Gang is what a Job asks for: so many pods of a template, whose claims are made from templates.
type Gang struct {
	Count int32
	// Spec is the pods', as its user wrote it; Claims are the templates that it names.
	Spec   corev1.PodSpec
	Claims []*resourcev1.ResourceClaimTemplate
	// Tenant is its namespace, Resource the quotaResource that it is decided by: it may be an extended resource that the pods
	// ask for.
	Tenant, Resource string
}

// uuid is the attribute by which devices are told apart.
const uuid = "uuid"

// MakeGang returns the world of a seed, and what is asked of it: the same each time. The world has no pod that is asked about.
func MakeGang(seed uint64) (*World, *Gang) {
	m := newMaker(seed, 2)
	for _, t := range []theme{everything, admin, allocated, amiss, odd, lists} { // Plimsoll takes no such claims
		m.themes[t] = false
	}
	m.gang = true
	m.makeNodes()
	m.makeDrivers()
	m.makeClasses()
	m.makeRules()
	m.makeHolders()
	for _, n := range m.w.Nodes {
		n.Labels[FlavorLabel] = "any"
	}
	return m.w, m.makeGang()
}

// makeGang makes pods that ask for about as much as is left, all of them together.
func (m *maker) makeGang() *Gang {
	g := &Gang{Count: int32(pick(m, 1, 1, 2, 2, 3)), Tenant: namespace, Resource: "gpus"}
	w := m.border()
	for _, r := range slices.Sorted(maps.Keys(w)) {
		w[r] = w[r] / int64(pick(m, 1, int(g.Count), int(g.Count), int(g.Count)+1)) / unit(r) * unit(r)
	}
	p := m.shape("pod", w)
	for i := range pick(m, 0, 1, 1, 1, 1, 2) {
		c := m.makeClaim(fmt.Sprintf("wanted-%d", i))
		m.w.Claims = m.w.Claims[:len(m.w.Claims)-1]
		for j := range c.Spec.Devices.Requests {
			r := &c.Spec.Devices.Requests[j]
			if r.Exactly != nil {
				r.Exactly.Capacity = nil
			}
			for k := range r.FirstAvailable {
				r.FirstAvailable[k].Capacity = nil
			}
		}
		m.refer(p, c)
		use := &p.Spec.ResourceClaims[len(p.Spec.ResourceClaims)-1]
		use.ResourceClaimName, use.ResourceClaimTemplateName = nil, ptr.To(c.Name)
		g.Claims = append(g.Claims, &resourcev1.ResourceClaimTemplate{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: c.Name}, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: c.Spec},
		})
	}
	if m.themes[extended] && len(m.extendedNames) > 0 && m.chance(50) {
		m.extend(p)
		g.Resource = string(pick(m, m.extendedNames...))
	}
	if m.themes[avoided] {
		m.choosy(p, &corev1.NodeSelectorTerm{})
	}
	g.Spec = p.Spec
	return g
}
