package ledger

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// ExportFormat is the format of an export. A later one that cannot be read as this one has another name.
const ExportFormat = "plimsoll.dev/ledger/v1"

// Header is the first line of an export.
type Header struct {
	Format string `json:"format"`
	// Version is the ledger's, local to the process that wrote the export.
	Version int64 `json:"version"`
	// Digest covers the lines that follow, but for those of history.
	Digest string    `json:"digest"`
	Time   time.Time `json:"time"`
	// Source says who wrote it: SourceManager or SourceAPI.
	Source Source `json:"source"`
	// Leader is whether that manager is the one that decides.
	Leader bool `json:"leader"`
	// Counts says how many lines of each kind follow.
	Counts map[string]int `json:"counts"`
}

// Source says where an export comes from.
type Source string

// The sources.
const (
	// SourceManager is a manager's live book.
	SourceManager Source = "manager"
	// SourceAPI is a book that was filled from the API server just then.
	SourceAPI Source = "api"
)

// Digest returns a hash of the accounts: equal accounts have equal digests, whatever the order of observations. It covers the
// lines of the export, but for those of history.
func (s *Snapshot) Digest() string {
	digest, _ := s.sum()
	return digest
}

// sum returns the digest, and how many lines there are of each kind.
func (s *Snapshot) sum() (string, map[string]int) {
	h, counts := sha256.New(), map[string]int{}
	for kind, l := range s.lines() {
		counts[kind]++
		if !l.History() {
			h.Write(bytesOf(l))
		}
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), counts
}

// Export writes the whole book as JSON lines: the header, whose Format, Version, Digest and Counts it fills in, and then the
// Lines. Two exports of equal accounts differ in the header and in history alone.
func (s *Snapshot) Export(w io.Writer, h Header) error {
	h.Format, h.Version = ExportFormat, s.Version
	h.Digest, h.Counts = s.sum()
	if _, err := w.Write(bytesOf(h)); err != nil {
		return fmt.Errorf("write header: %w", err)
	}
	for l := range s.Lines() {
		if _, err := w.Write(bytesOf(l)); err != nil {
			return fmt.Errorf("write line: %w", err)
		}
	}
	return nil
}

// Lines returns all that the book holds, in a fixed order: the classes; node by node its accounts, what takes of it, pools,
// devices, counters, zones, flags and agents; and last the rules that taint devices, and what is history.
func (s *Snapshot) Lines() iter.Seq[Line] {
	return func(yield func(Line) bool) {
		for _, l := range s.lines() {
			if !yield(l) {
				return
			}
		}
	}
}

// lines is Lines with the kind of each.
func (s *Snapshot) lines() iter.Seq2[string, Line] {
	return func(yield func(string, Line) bool) {
		for _, c := range s.DeviceClasses() {
			l := &ClassLine{present: present{lineClass}, Name: c.Name, UID: c.UID, Created: c.CreationTimestamp.UTC(), Spec: c.Spec}
			if !yield(lineClass, l) {
				return
			}
		}
		for _, n := range s.Nodes() {
			for kind, l := range n.lines {
				if !yield(kind, l) {
					return
				}
			}
		}
		for _, r := range s.rules {
			if !yield(lineRule, r) {
				return
			}
		}
		for _, n := range s.Nodes() {
			for kind, l := range n.history {
				if !yield(kind, l) {
					return
				}
			}
		}
		for _, n := range s.departed {
			if !yield(lineDeparted, &DepartedLine{past{lineDeparted}, n.Name, len(n.Lost)}) {
				return
			}
		}
	}
}

// lines gives the accounts of one node: what is listed now, whatever was before.
func (n *Node) lines(yield func(string, Line) bool) {
	n = n.asListed()
	ok := yield(lineNode, n.line())
	for _, u := range n.uses() {
		ok = ok && yield(lineUse, u)
	}
	for i := range n.Pools {
		p := &n.Pools[i]
		l := &PoolLine{present: present{linePool}, Node: n.Name, Driver: p.Driver, Pool: p.Name, Generation: p.Generation, State: p.listedAs(), Wide: p.Wide, Problem: p.Problem, Slices: []string{}}
		for _, s := range p.Slices {
			l.Slices = append(l.Slices, s.Name)
		}
		ok = ok && yield(linePool, l)
	}
	for _, l := range n.listed() {
		ok = ok && yield(lineDevice, l)
	}
	for _, l := range n.shown() {
		ok = ok && yield(lineShown, l)
	}
	for _, c := range n.Counters() {
		ok = ok && yield(lineCounter, &CounterLine{present{lineCounter}, n.Name, c.Driver, c.Pool, c.Set, c.Name, exact(c.Total), exact(c.Used)})
	}
	for _, z := range n.Zones() {
		ok = ok && yield(lineZone, &ZoneLine{present{lineZone}, n.Name, z.Number, z.Devices, z.FreeDevices, z.Allocatable.filled(), z.Free.filled()})
	}
	for _, f := range n.Flags() {
		ok = ok && yield(lineFlag, &FlagLine{present{lineFlag}, n.Name, f.Reason, f.Object, f.Message})
	}
	for i := range n.MappedClaims {
		m := &n.MappedClaims[i]
		ok = ok && yield(lineMapped, &MappedLine{present{lineMapped}, n.Name, m.Namespace, m.Name, m.Pods})
	}
	for i := range n.Agents {
		a := &n.Agents[i]
		ok = ok && yield(lineAgent, &AgentLine{present{lineAgent}, agentState{n.Name, a.Namespace, a.Name, a.Labels}, a.Serving})
	}
}

// asListed returns a node as one that was never seen before would be: what its pools were makes no difference.
func (n *Node) asListed() *Node {
	regressed := func(d Device) bool {
		return slices.ContainsFunc(n.Pools, func(p Pool) bool {
			return p.State == PoolRegressed && p.Driver == d.ID.Driver && p.Name == d.ID.Pool
		})
	}
	remembered := func(u Use) bool { return u.remembered }
	held := slices.ContainsFunc(n.Uses, remembered)
	if len(n.Lost) == 0 && !held && !slices.ContainsFunc(n.Withheld, regressed) {
		return n
	}
	c := *n
	if held {
		c = *n.clone()
		for i := range c.Uses {
			if u := &c.Uses[i]; u.remembered {
				c.giveBack(u)
			}
		}
		c.Uses = slices.DeleteFunc(c.Uses, remembered)
	}
	c.Devices, c.Withheld, c.Lost = slices.Clone(n.Devices), nil, nil
	for _, d := range n.Withheld {
		if regressed(d) {
			c.Devices = append(c.Devices, d)
		} else {
			c.Withheld = append(c.Withheld, d)
		}
	}
	slices.SortStableFunc(c.Devices, func(x, y Device) int { return compareDeviceIDs(x.ID, y.ID) })
	return &c
}

// listed are the devices of complete pools. One that a slice lists twice is there once.
func (n *Node) listed() []*DeviceLine {
	out := make([]*DeviceLine, 0, len(n.Devices)+len(n.Withheld))
	for _, list := range [][]Device{n.Devices, n.Withheld} {
		for i := range list {
			d := &list[i]
			out = append(out, &DeviceLine{present{lineDevice}, n.placeOf(d.ID), stateOf(d)})
		}
	}
	slices.SortStableFunc(out, func(a, b *DeviceLine) int {
		return cmp.Or(compareDeviceIDs(a.id(), b.id()), cmp.Compare(a.Slice, b.Slice))
	})
	return slices.CompactFunc(out, func(a, b *DeviceLine) bool { return a.Key() == b.Key() })
}

// history gives what was with one node.
func (n *Node) history(yield func(string, Line) bool) {
	for i := range n.Pools {
		if p := &n.Pools[i]; p.State == PoolRegressed && !yield(lineRegressed, &RegressedLine{past{lineRegressed}, n.Name, p.Driver, p.Name}) {
			return
		}
	}
	ok := n.NotReadySince.IsZero() || yield(lineNotReady, &NotReadyLine{past{lineNotReady}, n.Name, n.NotReadySince.UTC()})
	for _, l := range n.lost() {
		ok = ok && yield(lineLost, l)
	}
	for i := range n.AgentsGone {
		a := &n.AgentsGone[i]
		ok = ok && yield(lineGone, &GoneLine{past{lineGone}, agentState{n.Name, a.Namespace, a.Name, a.Labels}, i, a.Since.UTC()})
	}
}

// lost are the devices that were lost, each of a slice once: a pool may be so for a node and for several.
func (n *Node) lost() []*LostLine {
	out := make([]*LostLine, 0, len(n.Lost))
	for i := range n.Lost {
		d := &n.Lost[i]
		out = append(out, &LostLine{past{lineLost}, n.placeOf(d.ID), stateOf(d), d.Lost.UTC()})
	}
	slices.SortStableFunc(out, func(a, b *LostLine) int {
		return cmp.Or(compareDeviceIDs(a.id(), b.id()), cmp.Compare(a.Slice, b.Slice), a.At.Compare(b.At))
	})
	return slices.CompactFunc(out, func(a, b *LostLine) bool { return a.Key() == b.Key() })
}

func (n *Node) placeOf(d DeviceID) devicePlace {
	return devicePlace{n.Name, d.Driver, d.Pool, d.Device}
}

func (n *Node) line() *NodeLine {
	l := &NodeLine{
		present: present{lineNode}, Node: n.Name, Hostname: n.Hostname, Ready: n.Ready, Unschedulable: n.Object.Spec.Unschedulable,
		Labels: n.Object.Labels, Resources: map[string]ResourceTotal{}, Unallocated: n.Unallocated,
	}
	if n.Stopped != nil {
		l.Stopped = n.Stopped.Message
	}
	for _, t := range n.Object.Spec.Taints {
		l.Taints = append(l.Taints, NodeTaint{t.Key, t.Value, t.Effect})
	}
	slices.SortFunc(l.Taints, func(a, b NodeTaint) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Effect, b.Effect), cmp.Compare(a.Value, b.Value))
	})
	for _, amounts := range []Amounts{n.Allocatable, n.Free, n.Managed, n.Mapped} {
		for name := range amounts {
			if t := (ResourceTotal{n.Allocatable[name], n.Free[name], n.Managed[name], n.Mapped[name]}); t != (ResourceTotal{}) {
				l.Resources[string(name)] = t
			}
		}
	}
	return l
}

// uses sums up the node's uses by whose they are and whether they are ending.
func (n *Node) uses() []*UseLine {
	byKey := map[string]*UseLine{}
	for i := range n.Uses {
		u := &n.Uses[i]
		l := &UseLine{present: present{lineUse}, Node: n.Name, Workload: u.Workload, Freeing: u.Freeing, Placement: u.Placement, Requests: Amounts{}}
		if !u.Until.IsZero() {
			l.Until = u.Until.UTC()
		}
		if known := byKey[l.Key()]; known != nil {
			known.Workload = cmp.Or(known.Workload, u.Workload)
			l = known
		} else {
			byKey[l.Key()] = l
		}
		l.Requests.Add(u.Requests, u.Times)
	}
	out := make([]*UseLine, 0, len(byKey))
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		l := byKey[key]
		if l.Requests = l.Requests.filled(); len(l.Requests) > 0 {
			out = append(out, l)
		}
	}
	return out
}

// shown are the devices of pools that do not lend, but for those among the others.
func (n *Node) shown() []*ShownLine {
	var out []*ShownLine
	there := map[DeviceID]bool{}
	for i := range n.Withheld {
		there[n.Withheld[i].ID] = true
	}
	for i := range n.Pools {
		p := &n.Pools[i]
		if p.listedAs() == PoolFresh {
			continue
		}
		for _, s := range p.Slices {
			for k := range s.Spec.Devices {
				d := &s.Spec.Devices[k]
				if there[DeviceID{p.Driver, p.Name, d.Name}] {
					continue
				}
				out = append(out, &ShownLine{present{lineShown}, devicePlace{n.Name, p.Driver, p.Name, d.Name}, s.Name, exactSpec(d)})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b *ShownLine) int {
		return cmp.Or(compareDeviceIDs(a.id(), b.id()), cmp.Compare(a.Slice, b.Slice))
	})
	return slices.CompactFunc(out, func(a, b *ShownLine) bool { return a.Key() == b.Key() })
}

func stateOf(d *Device) deviceState {
	s := deviceState{Unusable: d.Unusable, Wide: d.Wide, Cover: d.Cover, Slice: d.Slice.Name, Spec: exactSpec(d.Spec), Taints: taintLines(d.Taints), Inherited: taintLines(d.Inherited)}
	if d.Mappings != nil {
		s.Mappings = &MappingsLine{Rules: d.Mappings.Rules, Problem: d.Mappings.Problem}
		for i := range d.Mappings.List {
			m := &d.Mappings.List[i]
			s.Mappings.List = append(s.Mappings.List, MappingLine{m.Resource, m.Capacity, some(m.Multiplier), some(m.PerPod), some(m.PerContainer)})
		}
	}
	for i := range d.Holders {
		s.Holders = append(s.Holders, holderLine(&d.Holders[i]))
	}
	slices.SortStableFunc(s.Holders, func(a, b HolderLine) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.UID, b.UID), cmp.Compare(a.Share, b.Share), cmp.Compare(a.Resource, b.Resource))
	})
	return s
}

func taintLines(list []resourcev1.DeviceTaint) []DeviceTaint {
	var out []DeviceTaint
	for _, t := range list {
		out = append(out, DeviceTaint{t.Key, t.Value, t.Effect})
	}
	slices.SortFunc(out, func(a, b DeviceTaint) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Effect, b.Effect), cmp.Compare(a.Value, b.Value))
	})
	return out
}

func holderLine(h *Holder) HolderLine {
	l := HolderLine{
		Kind: h.Kind, UID: h.UID, Namespace: h.Namespace, Name: h.Name, Workload: h.Workload, Managed: h.Managed,
		Resource: h.Resource, Share: h.Share, Freeing: h.Freeing,
	}
	if !h.Until.IsZero() {
		l.Until = h.Until.UTC()
	}
	for name, q := range h.Consumed {
		if l.Consumed == nil {
			l.Consumed = map[string]string{}
		}
		l.Consumed[string(name)] = exact(q)
	}
	return l
}

// filled returns what is not zero.
func (a Amounts) filled() Amounts {
	c := maps.Clone(a)
	maps.DeleteFunc(c, func(_ corev1.ResourceName, v int64) bool { return v == 0 })
	return c
}

// exact writes a quantity so that equal ones are equal, whatever suffix they were written with.
func exact(q resource.Quantity) string {
	c := plainly(q)
	return c.String()
}

// some is exact for what is not zero, and empty for zero.
func some(q resource.Quantity) string {
	if q.IsZero() {
		return ""
	}
	return exact(q)
}

// plainly returns a quantity in decimal units, without a memory of how it was written.
func plainly(q resource.Quantity) resource.Quantity {
	c := q.DeepCopy()
	c.Add(resource.Quantity{}) // forgets the text
	c.Format = resource.DecimalSI
	return c
}

// exactSpec returns a device without its taints, and with quantities that are equal where they mean the same.
func exactSpec(d *resourcev1.Device) *resourcev1.Device {
	c := *d
	c.Taints = nil
	c.Capacity = make(map[resourcev1.QualifiedName]resourcev1.DeviceCapacity, len(d.Capacity))
	for name, v := range d.Capacity {
		v.Value = plainly(v.Value)
		c.Capacity[name] = v
	}
	return &c
}
