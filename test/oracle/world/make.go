package world

import (
	"fmt"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// namespace is where all claims and pods are.
const namespace = "team"

// theme is something that a world may have. Each world has some of them, so that what it has too much of does not turn every
// pod down.
type theme string

const (
	mapped      theme = "devices that map to the node's own resources"
	multiple    theme = "devices that allow several allocations"
	counters    theme = "devices that draw on shared counters"
	tainted     theme = "device taints in slices"
	rules       theme = "device taint rules"
	wide        theme = "slices for several nodes"
	binding     theme = "binding conditions, and devices that bind to a node"
	twins       theme = "the same names in two drivers"
	extended    theme = "extended resources, by DeviceClass and by device plugin"
	oddPools    theme = "older generations and missing slices"
	prioritized theme = "firstAvailable"
	everything  theme = "mode All"
	constrained theme = "constraints"
	admin       theme = "adminAccess"
	allocated   theme = "claims that are allocated already"
	podLevel    theme = "resources of the pod as a whole"
	avoided     theme = "nodes with taints, cordons, and pods that choose nodes"
	unreferred  theme = "claims that no container refers to"
	huge        theme = "hugepages"
	resized     theme = "pods that were resized in place"
	amiss       theme = "claims that are missing, going or not the pod's"
	broken      theme = "pools that cannot be, and allocations of what is not there"
	lists       theme = "attributes that are lists"
	odd         theme = "requests of nothing, and of what nobody has"
)

// likelihood of each theme, in percent. The order is part of what a seed means.
var likelihood = []struct {
	theme   theme
	percent int
}{
	{mapped, 55}, {multiple, 25}, {counters, 20}, {tainted, 15}, {rules, 10}, {wide, 20}, {binding, 8}, {twins, 6},
	{extended, 20}, {oddPools, 12}, {prioritized, 20}, {everything, 12}, {constrained, 20}, {admin, 10}, {allocated, 15},
	{podLevel, 15}, {avoided, 15}, {unreferred, 6}, {huge, 30}, {resized, 10}, {amiss, 5}, {broken, 8},
	{lists, 6}, {odd, 6},
}

// maker makes one world.
type maker struct {
	*rand.Rand
	w      *World
	themes map[theme]bool
	// target is the node that is asked about, other one beside it.
	target, other *corev1.Node
	drivers       []*driver
	made          int
	// extendedNames are the resources that a class is for.
	extendedNames []corev1.ResourceName
	// gang says that the devices are told apart by an attribute.
	gang bool
}

// Make returns the world of a seed: the same each time. About half of the pods fit.
func Make(seed uint64) *World {
	m := newMaker(seed, 1)
	m.makeNodes()
	m.makeDrivers()
	m.makeClasses()
	m.makeRules()
	m.makeHolders()
	m.makePod()
	return m.w
}

// newMaker returns one for a seed; what it is for says which of its worlds.
func newMaker(seed, purpose uint64) *maker {
	m := &maker{Rand: rand.New(rand.NewPCG(seed, purpose)), w: &World{}, themes: map[theme]bool{}}
	for _, l := range likelihood {
		m.themes[l.theme] = m.chance(l.percent)
	}
	return m
}

// has says whether the world has a theme and it comes up this time, which it does with the given likelihood.
func (m *maker) has(t theme, percent int) bool { return m.themes[t] && m.chance(percent) }

func (m *maker) chance(percent int) bool { return m.IntN(100) < percent }

// between returns a number from low to high.
func (m *maker) between(low, high int) int { return low + m.IntN(high-low+1) }

func pick[T any](m *maker, list ...T) T { return list[m.IntN(len(list))] }

// meta names an object; all have versions and uids of their own.
func (m *maker) meta(kind, name string) metav1.ObjectMeta {
	m.made++
	return metav1.ObjectMeta{
		Name: name, UID: types.UID(fmt.Sprintf("%s-%d", kind, m.made)), ResourceVersion: fmt.Sprint(100 + m.made),
		CreationTimestamp: metav1.Unix(1_800_000_000+int64(m.made), 0),
	}
}

func (m *maker) spaced(kind, name string) metav1.ObjectMeta {
	meta := m.meta(kind, name)
	meta.Namespace = namespace
	return meta
}

func quantity(s string) resource.Quantity { return resource.MustParse(s) }

func amount(format string, n int) resource.Quantity { return quantity(fmt.Sprintf(format, n)) }

const plugin corev1.ResourceName = "plugin.example.com/card"

func (m *maker) makeNodes() {
	m.target = m.makeNode("node-a")
	m.other = m.makeNode("node-b")
	if m.themes[avoided] {
		m.avoid(m.target)
	}
	m.w.Node = m.target.Name
}

func (m *maker) makeNode(name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: m.meta("node", name)}
	n.Labels = map[string]string{
		corev1.LabelHostname: name, corev1.LabelTopologyZone: pick(m, "one", "two"), "disk": pick(m, "fast", "slow"),
	}
	n.Status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU:              pick(m, quantity("4"), quantity("8"), quantity("3920m"), quantity("16")),
		corev1.ResourceMemory:           pick(m, quantity("8Gi"), quantity("16Gi"), quantity("15872Mi"), quantity("64Gi")),
		corev1.ResourceEphemeralStorage: pick(m, quantity("20Gi"), quantity("100Gi")),
		corev1.ResourcePods:             pick(m, quantity("110"), quantity("110"), quantity("110"), quantity("5"), quantity("4")),
	}
	if m.themes[huge] {
		n.Status.Allocatable["hugepages-2Mi"] = amount("%dMi", 2*m.between(8, 128))
		n.Status.Allocatable["hugepages-1Gi"] = amount("%dGi", m.between(0, 8))
	}
	if m.themes[extended] {
		n.Status.Allocatable[plugin] = amount("%d", m.between(0, 8))
	}
	n.Status.Capacity = n.Status.Allocatable.DeepCopy()
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	m.w.Nodes = append(m.w.Nodes, n)
	return n
}

// avoid gives a node what keeps some pods away.
func (m *maker) avoid(n *corev1.Node) {
	n.Spec.Unschedulable = m.chance(15)
	if n.Spec.Unschedulable {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
	for range m.between(0, 2) {
		t := corev1.Taint{
			Key: pick(m, "dedicated", "maintenance"), Value: pick(m, "", "gpu", "other"),
			Effect: pick(m, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute, corev1.TaintEffectPreferNoSchedule),
		}
		if len(n.Spec.Taints) == 0 || n.Spec.Taints[len(n.Spec.Taints)-1].Key != t.Key {
			n.Spec.Taints = append(n.Spec.Taints, t)
		}
	}
}
