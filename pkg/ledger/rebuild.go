package ledger

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Snapshot returns the accounts that were exported; its Digest is the export's. Nodes have of their objects, and devices of
// their slices, what is in the export. Departed is empty. Lines that do not belong together are an error.
func (e *Export) Snapshot() (*Snapshot, error) {
	b := &rebuilt{
		Snapshot: &Snapshot{Version: e.Header.Version, at: map[string]int{}, classes: &Classes{map[string]*resourcev1.DeviceClass{}}},
		slices:   map[string]*resourcev1.ResourceSlice{},
	}
	var nodes []*Node
	for i := range e.Entries {
		if l, ok := e.Entries[i].Line.(*NodeLine); ok {
			b.at[l.Node] = len(nodes)
			nodes = append(nodes, l.node())
		}
	}
	if !slices.IsSortedFunc(nodes, func(x, y *Node) int { return compareNames(x.Name, y.Name) }) {
		return nil, fmt.Errorf("the export's nodes are not in order of their names")
	}
	b.nodes = listOf(nodes)
	// Pools come after devices, since their slices are made of those.
	for i := range e.Entries {
		if _, pool := e.Entries[i].Line.(*PoolLine); pool {
			continue
		}
		if err := b.add(e.Entries[i].Line); err != nil {
			return nil, fmt.Errorf("%s: %w", quoted(e.Entries[i].Key()), err)
		}
	}
	for i := range e.Entries {
		if l, ok := e.Entries[i].Line.(*PoolLine); ok {
			if err := b.addPool(l); err != nil {
				return nil, fmt.Errorf("%s: %w", quoted(l.Key()), err)
			}
		}
	}
	for i := range e.Entries {
		switch l := e.Entries[i].Line.(type) {
		case *RegressedLine:
			b.withhold(l.Node, pool{l.Driver, l.Pool}, PoolRegressed)
		case *PoolLine:
			if l.State == PoolImpossible {
				b.withhold(l.Node, pool{l.Driver, l.Pool}, PoolImpossible)
			}
		}
	}
	b.join()
	return b.Snapshot, nil
}

func compareNames(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// rebuilt is a snapshot under construction.
type rebuilt struct {
	*Snapshot
	// slices are by node and name.
	slices map[string]*resourcev1.ResourceSlice
}

func (l *NodeLine) node() *Node {
	n := &Node{
		Name: l.Node, Hostname: l.Hostname, Ready: l.Ready, Unallocated: l.Unallocated,
		Allocatable: Amounts{}, Free: Amounts{}, Managed: Amounts{}, Mapped: Amounts{}, told: &told{},
		Object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: l.Node, Labels: l.Labels}, Spec: corev1.NodeSpec{Unschedulable: l.Unschedulable}},
	}
	if l.Stopped != "" {
		n.Stopped = &Stopped{Message: l.Stopped}
	}
	for _, t := range l.Taints {
		n.Object.Spec.Taints = append(n.Object.Spec.Taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect})
	}
	for name, t := range l.Resources {
		r := corev1.ResourceName(name)
		n.Allocatable[r], n.Free[r], n.Managed[r], n.Mapped[r] = t.Allocatable, t.Free, t.Managed, t.Mapped
	}
	return n
}

// add takes in a line of any kind but a node or a pool.
func (b *rebuilt) add(line Line) error {
	switch l := line.(type) {
	case *ClassLine:
		b.classes.byName[l.Name] = &resourcev1.DeviceClass{
			ObjectMeta: metav1.ObjectMeta{Name: l.Name, UID: l.UID, CreationTimestamp: metav1.NewTime(l.Created)}, Spec: l.Spec,
		}
		return nil
	case *RuleLine:
		b.rules = append(b.rules, l)
		return nil
	case *NodeLine, *DepartedLine, *RegressedLine:
		return nil
	}
	n := b.Node(nodeOf(line))
	if n == nil {
		return fmt.Errorf("the export has no node %s", quoted(nodeOf(line)))
	}
	switch l := line.(type) {
	case *UseLine:
		n.Uses = append(n.Uses, Use{Workload: l.Workload, Placement: l.Placement, Requests: l.Requests, Times: 1, Freeing: l.Freeing, Until: l.Until})
	case *DeviceLine:
		d, err := b.device(&l.devicePlace, &l.deviceState, b.slice(&l.devicePlace, l.Slice, ""))
		n.Devices = append(n.Devices, d)
		return err
	case *ShownLine:
		return b.list(b.slice(&l.devicePlace, l.Slice, ""), l.Spec, l.Device)
	case *CounterLine:
		return n.told.addCounter(l)
	case *ZoneLine:
		n.told.zones = append(n.told.zones, Zone{l.Number, l.Devices, l.FreeDevices, l.Allocatable, l.Free})
	case *FlagLine:
		n.told.flags = append(n.told.flags, Flag{l.Reason, l.Object, l.Message})
	case *MappedLine:
		n.MappedClaims = append(n.MappedClaims, MappedClaim{Namespace: l.Namespace, Name: l.Name, Pods: l.Pods})
	case *AgentLine:
		n.Agents = append(n.Agents, Agent{Namespace: l.Namespace, Name: l.Name, Labels: l.Labels, Serving: l.Serving})
	case *NotReadyLine:
		n.NotReadySince = l.Since
	case *LostLine:
		d, err := b.device(&l.devicePlace, &l.deviceState, b.slice(&l.devicePlace, l.Slice, "lost"))
		d.Lost = l.At
		n.Lost = append(n.Lost, d)
		return err
	case *GoneLine:
		n.AgentsGone = append(n.AgentsGone, Agent{Namespace: l.Namespace, Name: l.Name, Labels: l.Labels, Since: l.Since})
	}
	return nil
}

// nodeOf returns the node that a line is about.
func nodeOf(line Line) string {
	switch l := line.(type) {
	case *UseLine:
		return l.Node
	case *DeviceLine:
		return l.Node
	case *ShownLine:
		return l.Node
	case *CounterLine:
		return l.Node
	case *ZoneLine:
		return l.Node
	case *FlagLine:
		return l.Node
	case *MappedLine:
		return l.Node
	case *AgentLine:
		return l.Node
	case *NotReadyLine:
		return l.Node
	case *LostLine:
		return l.Node
	case *GoneLine:
		return l.Node
	}
	return ""
}

// told is what an export says that is worked out of more than is in it.
type told struct {
	counters []Counter
	zones    []Zone
	flags    []Flag
}

func (t *told) addCounter(l *CounterLine) error {
	total, err := quantityOf(l.Total)
	if err != nil {
		return err
	}
	used, err := quantityOf(l.Used)
	if err != nil {
		return err
	}
	t.counters = append(t.counters, Counter{l.Driver, l.Pool, l.Set, l.Name, total, used})
	return nil
}

func (b *rebuilt) addPool(l *PoolLine) error {
	n := b.Node(l.Node)
	if n == nil {
		return fmt.Errorf("the export has no node %s", quoted(l.Node))
	}
	p := Pool{Driver: l.Driver, Name: l.Pool, Generation: l.Generation, State: l.State, Wide: l.Wide, Problem: l.Problem}
	for _, name := range l.Slices {
		p.Slices = append(p.Slices, b.slice(&devicePlace{Node: l.Node, Driver: l.Driver, Pool: l.Pool}, name, ""))
	}
	n.Pools = append(n.Pools, p)
	return nil
}

// withhold has a pool lend nothing, for what it was before or what it says.
func (b *rebuilt) withhold(node string, p pool, state PoolState) {
	n := b.Node(node)
	if n == nil {
		return
	}
	of := func(driver, name string) bool { return driver == p.driver && name == p.name }
	for i := range n.Pools {
		if of(n.Pools[i].Driver, n.Pools[i].Name) {
			n.Pools[i].State = state
		}
	}
	for i := range n.Devices {
		if of(n.Devices[i].ID.Driver, n.Devices[i].ID.Pool) {
			n.Withheld = append(n.Withheld, n.Devices[i])
		}
	}
	n.Devices = slices.DeleteFunc(n.Devices, func(d Device) bool { return of(d.ID.Driver, d.ID.Pool) })
}

// slice returns a slice of a pool on a node; of one name there may be the one that is and the one that was.
func (b *rebuilt) slice(at *devicePlace, name, was string) *resourcev1.ResourceSlice {
	key := fmt.Sprintf("%s%q %q %q %q", was, at.Node, at.Driver, at.Pool, name)
	s := b.slices[key]
	if s == nil {
		s = &resourcev1.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(key)},
			Spec:       resourcev1.ResourceSliceSpec{Driver: at.Driver, NodeName: &at.Node, Pool: resourcev1.ResourcePool{Name: at.Pool}},
		}
		b.slices[key] = s
	}
	return s
}

// list has a slice list a device.
func (b *rebuilt) list(s *resourcev1.ResourceSlice, d *resourcev1.Device, name string) error {
	if d == nil || d.Name != name {
		return fmt.Errorf("the device's spec is of another name")
	}
	s.Spec.Devices = append(s.Spec.Devices, *d)
	return nil
}

// device makes a device of its line. Its slice has it too, though Spec is set once all are there.
func (b *rebuilt) device(at *devicePlace, l *deviceState, of *resourcev1.ResourceSlice) (Device, error) {
	d := Device{ID: at.id(), Slice: of, Unusable: l.Unusable, Wide: l.Wide, Cover: l.Cover, Spec: l.Spec}
	if l.Spec != nil {
		d.Taints, d.Inherited = taintsOf(l.Taints), taintsOf(l.Inherited)
		l.Spec.Taints = d.Taints
	}
	if l.Mappings != nil {
		m, err := l.Mappings.mappings()
		if err != nil {
			return d, err
		}
		d.Mappings = m
	}
	for i := range l.Holders {
		h, err := l.Holders[i].holder()
		if err != nil {
			return d, err
		}
		d.Holders = append(d.Holders, h)
	}
	return d, b.list(d.Slice, l.Spec, at.Device)
}

func taintsOf(list []DeviceTaint) []resourcev1.DeviceTaint {
	var out []resourcev1.DeviceTaint
	for _, t := range list {
		out = append(out, resourcev1.DeviceTaint{Key: t.Key, Value: t.Value, Effect: t.Effect})
	}
	return out
}

func (l *MappingsLine) mappings() (*Mappings, error) {
	m := &Mappings{Rules: l.Rules, Problem: l.Problem}
	for _, x := range l.List {
		out := Mapping{Resource: x.Resource, Capacity: x.Capacity}
		for text, into := range map[*string]*resource.Quantity{&x.Multiplier: &out.Multiplier, &x.PerPod: &out.PerPod, &x.PerContainer: &out.PerContainer} {
			if *text == "" {
				continue
			}
			q, err := quantityOf(*text)
			if err != nil {
				return nil, err
			}
			*into = q
		}
		m.List = append(m.List, out)
	}
	return m, nil
}

func (l *HolderLine) holder() (Holder, error) {
	h := Holder{
		Kind: l.Kind, UID: l.UID, Namespace: l.Namespace, Name: l.Name, Workload: l.Workload, Managed: l.Managed,
		Resource: l.Resource, Share: l.Share, Freeing: l.Freeing, Until: l.Until,
	}
	for name, text := range l.Consumed {
		q, err := quantityOf(text)
		if err != nil {
			return h, err
		}
		if h.Consumed == nil {
			h.Consumed = Consumption{}
		}
		h.Consumed[resourcev1.QualifiedName(name)] = q
	}
	return h, nil
}

// join has devices point into their slices, which do not grow any more.
func (b *rebuilt) join() {
	for _, n := range b.Nodes() {
		for _, list := range [][]Device{n.Devices, n.Lost, n.Withheld} {
			for i := range list {
				of := list[i].Slice.Spec.Devices
				if k := slices.IndexFunc(of, func(d resourcev1.Device) bool { return d.Name == list[i].ID.Device }); k >= 0 {
					list[i].Spec = &of[k]
				}
			}
		}
	}
}
