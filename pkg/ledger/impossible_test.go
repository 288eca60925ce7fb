package ledger

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

func q(s string) resource.Quantity { return resource.MustParse(s) }

// seePool is a pool of node a that is complete with two slices: one of devices gpu-0-0 and gpu-0-1, the other of counters.
func seePool(change func(devices, counters *resourcev1.ResourceSliceSpec)) []Observation {
	devices, counters := seeSlice("a", 1, 1, 2, 0, 2), seeSlice("a", 1, 1, 2, 1, 0)
	counters.Slice.Spec.SharedCounters = []resourcev1.CounterSet{{Name: "card", Counters: map[string]resourcev1.Counter{"memory": {Value: q("80Gi")}}}}
	change(&devices.Slice.Spec, &counters.Slice.Spec)
	return []Observation{seeNode("a", 1, nil), devices, counters}
}

func draws(set, counter, amount string) []resourcev1.DeviceCounterConsumption {
	return []resourcev1.DeviceCounterConsumption{{CounterSet: set, Counters: map[string]resourcev1.Counter{counter: {Value: q(amount)}}}}
}

// gtOf is a node selector that the API server takes and nobody can evaluate, unless value is a number.
func gtOf(value string) *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: "cards", Operator: corev1.NodeSelectorOpGt, Values: []string{value}},
	}}}}
}

func TestAPoolThatCannotBeLendsNothingAndSaysWhy(t *testing.T) {
	for name, c := range map[string]struct {
		change func(devices, counters *resourcev1.ResourceSliceSpec)
		says   string
	}{
		"a device listed twice in a slice": {
			func(d, _ *resourcev1.ResourceSliceSpec) { d.Devices[1].Name = "gpu-0-0" }, "device gpu-0-0 is listed twice"},
		"a device listed in two slices": {
			func(_, c *resourcev1.ResourceSliceSpec) {
				c.SharedCounters, c.Devices = nil, []resourcev1.Device{{Name: "gpu-0-1"}}
			}, "device gpu-0-1 is listed twice"},
		"a counter set that is not there": {
			func(d, _ *resourcev1.ResourceSliceSpec) {
				d.Devices[0].ConsumesCounters = draws("cards", "memory", "1")
			}, "counter set cards, which the pool does not have"},
		"a counter that is not there": {
			func(d, _ *resourcev1.ResourceSliceSpec) { d.Devices[0].ConsumesCounters = draws("card", "slices", "1") }, "counter slices, which counter set card does not have"},
		"a counter set listed twice": {
			func(_, c *resourcev1.ResourceSliceSpec) {
				c.SharedCounters = append(c.SharedCounters, c.SharedCounters[0])
			}, "counter set card is listed twice"},
		"two slices that differ about how many there are": {
			func(_, c *resourcev1.ResourceSliceSpec) { c.Pool.ResourceSliceCount = 3 }, "says that the pool has 2 slices"},
		"no slices at all": {
			func(d, c *resourcev1.ResourceSliceSpec) { d.Pool.ResourceSliceCount, c.Pool.ResourceSliceCount = 0, 0 }, "says that the pool has 0 slices"},
		"fewer slices than none": {
			func(d, c *resourcev1.ResourceSliceSpec) {
				d.Pool.ResourceSliceCount, c.Pool.ResourceSliceCount = -2, -2
			}, "says that the pool has -2 slices"},
		"a negative generation": {
			func(d, c *resourcev1.ResourceSliceSpec) { d.Pool.Generation, c.Pool.Generation = -1, -1 }, "is of generation -1"},
		"devices beside counters in one slice": {
			func(d, c *resourcev1.ResourceSliceSpec) { d.SharedCounters, c.SharedCounters = c.SharedCounters, nil }, "lists both devices and counters"},
		"more devices than a slice may have": {
			func(d, _ *resourcev1.ResourceSliceSpec) { d.Devices = make([]resourcev1.Device, 129) }, "lists 129 devices, more than 128"},
		"nodes selected in two ways": {
			func(d, _ *resourcev1.ResourceSliceSpec) { d.AllNodes = ptr.To(true) }, "does not select nodes in one way"},
		"a selector beside those of the devices": {
			func(d, _ *resourcev1.ResourceSliceSpec) {
				d.PerDeviceNodeSelection = ptr.To(true)
				d.Devices[0].NodeName, d.Devices[1].NodeName = ptr.To("a"), ptr.To("a")
			}, "does not select nodes in one way"},
		"a selector of counters that cannot be read": {
			func(_, c *resourcev1.ResourceSliceSpec) { c.NodeName, c.NodeSelector = nil, gtOf("many") }, "node selector that cannot be read"},
		"a selector of a device that cannot be read": {
			func(d, _ *resourcev1.ResourceSliceSpec) {
				d.NodeName, d.PerDeviceNodeSelection = nil, ptr.To(true)
				d.Devices[0].NodeName, d.Devices[1].NodeSelector = ptr.To("a"), gtOf("many")
			}, "device gpu-0-1 has a node selector that cannot be read"},
		"a selector of another node's slice that cannot be read": {
			func(_, c *resourcev1.ResourceSliceSpec) {
				c.SharedCounters, c.NodeName, c.NodeSelector = nil, nil, gtOf("many")
			}, "node selector that cannot be read"},
		"what another node's slice draws on is not there": {
			func(d, c *resourcev1.ResourceSliceSpec) {
				c.SharedCounters, c.NodeName, c.Devices = nil, ptr.To("b"), []resourcev1.Device{{Name: "far", ConsumesCounters: draws("card", "memory", "1")}}
			}, "device far draws on counter set card, which the pool does not have"},
	} {
		t.Run(name, func(t *testing.T) {
			n := bookOf(seePool(c.change)...).Snapshot().Node("a")
			if len(n.Pools) != 1 || n.Pools[0].State != PoolImpossible || !strings.Contains(n.Pools[0].Problem, c.says) {
				t.Fatalf("pools %+v, want one that is Impossible: %s", n.Pools, c.says)
			}
			if len(n.Devices) != 0 {
				t.Errorf("%d devices are lent", len(n.Devices))
			}
			if flags := n.Flags(); len(flags) != 1 || flags[0].Reason != FlagImpossible || flags[0].Object != "gpu.example.com/a" || !strings.Contains(flags[0].Message, c.says) {
				t.Errorf("flags %+v, want one: %s", flags, c.says)
			}
		})
	}
}

func TestAPoolThatCannotBeReadInFullLendsNothing(t *testing.T) {
	const says = "device gpu-0-0 has compatibilityGroups in counter set card"
	sees := seePool(func(devices, _ *resourcev1.ResourceSliceSpec) {
		devices.Devices[0].ConsumesCounters = draws("card", "memory", "10Gi")
	})
	b := bookOf(sees...)
	if n := b.Snapshot().Node("a"); n.Pools[0].State != PoolFresh || len(n.Devices) != 2 || len(n.Pools[0].Every) != 2 {
		t.Fatalf("pools %+v and %d devices, want a fresh pool of two slices and two devices", n.Pools, len(n.Devices))
	}
	digest := b.Snapshot().Digest()
	unread := sees[1]
	unread.Ref.ResourceVersion, unread.Unread = 2, says // its typed form is the same
	b.Apply(unread)
	n := b.Snapshot().Node("a")
	if p := &n.Pools[0]; p.State != PoolImpossible || p.Problem != says || len(n.Devices) != 0 {
		t.Errorf("pool %s, %q, with %d devices lent; want it Impossible for %q", p.State, p.Problem, len(n.Devices), says)
	}
	if every := n.Pools[0].Every; len(every) != 1 || len(every[0].Spec.SharedCounters) != 1 {
		t.Errorf("kube-scheduler is taken to look at %d slices, want that of the counters alone", len(every))
	}
	if flags := n.Flags(); len(flags) != 1 || flags[0].Reason != FlagImpossible || !strings.Contains(flags[0].Message, says) {
		t.Errorf("flags %+v, want one: %s", flags, says)
	}
	if b.Snapshot().Digest() == digest {
		t.Error("the digest is that of a pool which lends")
	}
	read := sees[1]
	read.Ref.ResourceVersion = 3
	b.Apply(read)
	if n := b.Snapshot().Node("a"); n.Pools[0].State != PoolFresh || len(n.Devices) != 2 || b.Snapshot().Digest() != digest {
		t.Errorf("pool %s with %d devices after it can be read again", n.Pools[0].State, len(n.Devices))
	}
}

func policy(change func(*resourcev1.CapacityRequestPolicy)) func(*resourcev1.Device) {
	return func(d *resourcev1.Device) {
		p := &resourcev1.CapacityRequestPolicy{Default: ptr.To(q("10")), ValidRange: &resourcev1.CapacityRequestPolicyRange{
			Min: ptr.To(q("10")), Max: ptr.To(q("80")), Step: ptr.To(q("10")),
		}}
		change(p)
		d.AllowMultipleAllocations, d.Capacity = ptr.To(true), map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"cores": {Value: q("100"), RequestPolicy: p}}
	}
}

func values(p *resourcev1.CapacityRequestPolicy, list ...string) {
	p.ValidRange = nil
	for _, v := range list {
		p.ValidValues = append(p.ValidValues, q(v))
	}
}

func attribute(a resourcev1.DeviceAttribute) func(*resourcev1.Device) {
	return func(d *resourcev1.Device) {
		d.Attributes = map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"model": a}
	}
}

func maps136(m resourcev1.NodeAllocatableResourceMapping) func(*resourcev1.Device) {
	return func(d *resourcev1.Device) {
		d.NodeAllocatableResourceMappings = map[corev1.ResourceName]resourcev1.NodeAllocatableResourceMapping{"cpu": m}
	}
}

func TestADeviceThatCannotBeIsKeptOutAlone(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*resourcev1.Device)
		says   string // nothing for a device that can be
	}{
		"a device of nothing": {func(*resourcev1.Device) {}, ""},
		"a capacity below zero": {func(d *resourcev1.Device) {
			d.Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: q("-1Gi")}}
		}, "capacity memory is -1Gi"},
		"a draw above the total": {func(d *resourcev1.Device) { d.ConsumesCounters = draws("card", "memory", "81Gi") }, "draws 81Gi of counter card/memory, which has 80Gi"},
		"all of the total":       {func(d *resourcev1.Device) { d.ConsumesCounters = draws("card", "memory", "80Gi") }, ""},
		"a draw that gives":      {func(d *resourcev1.Device) { d.ConsumesCounters = draws("card", "memory", "-1") }, "draws -1 of counter card/memory"},
		"two draws above the total": {func(d *resourcev1.Device) {
			d.ConsumesCounters = append(draws("card", "memory", "41Gi"), draws("card", "memory", "41Gi")...)
		}, "draws 82Gi"},
		"a name with a slash":        {func(d *resourcev1.Device) { d.Name = "gpu/0" }, `"gpu/0" cannot be the name`},
		"no name":                    {func(d *resourcev1.Device) { d.Name = "" }, `"" cannot be the name`},
		"nodes of its own":           {func(d *resourcev1.Device) { d.NodeName = ptr.To("b") }, "selects nodes, which its slice does"},
		"an attribute without value": {attribute(resourcev1.DeviceAttribute{}), "attribute model has no value"},
		"an attribute of two kinds":  {attribute(resourcev1.DeviceAttribute{IntValue: ptr.To[int64](1), StringValue: ptr.To("one")}), "attribute model has several kinds"},
		"a version":                  {attribute(resourcev1.DeviceAttribute{VersionValue: ptr.To("1.2.3-rc.1+a-b")}), ""},
		"no version":                 {attribute(resourcev1.DeviceAttribute{VersionValue: ptr.To("570.1")}), `version "570.1", which cannot be read`},
		"a version beyond 64 bits":   {attribute(resourcev1.DeviceAttribute{VersionValue: ptr.To("99999999999999999999.0.0")}), "which cannot be read"},
		"a list with no version":     {attribute(resourcev1.DeviceAttribute{VersionValues: []string{"1.0.0", "v1"}}), `version "v1"`},
		"a request policy":           {policy(func(*resourcev1.CapacityRequestPolicy) {}), ""},
		"a policy and one allocation": {func(d *resourcev1.Device) {
			policy(func(*resourcev1.CapacityRequestPolicy) {})(d)
			d.AllowMultipleAllocations = nil
		}, "allows but one allocation"},
		"values and a range":          {policy(func(p *resourcev1.CapacityRequestPolicy) { p.ValidValues = []resource.Quantity{q("10")} }), "both values and a range"},
		"no default":                  {policy(func(p *resourcev1.CapacityRequestPolicy) { p.Default = nil }), "without a default"},
		"a default below zero":        {policy(func(p *resourcev1.CapacityRequestPolicy) { p.ValidRange, p.Default = nil, ptr.To(q("-10")) }), "default is -10"},
		"no minimum":                  {policy(func(p *resourcev1.CapacityRequestPolicy) { p.ValidRange.Min = nil }), "without a minimum"},
		"a minimum below zero":        {policy(func(p *resourcev1.CapacityRequestPolicy) { p.ValidRange.Min = ptr.To(q("-10")) }), "from -10"},
		"a minimum above the maximum": {policy(func(p *resourcev1.CapacityRequestPolicy) { p.ValidRange.Min = ptr.To(q("90")) }), "from 90 up to 80"},
		"a minimum above it all":      {policy(func(p *resourcev1.CapacityRequestPolicy) { p.ValidRange.Max, p.ValidRange.Min = nil, ptr.To(q("110")) }), "from 110 up to 100"},
		"a maximum above it all":      {policy(func(p *resourcev1.CapacityRequestPolicy) { p.ValidRange.Max = ptr.To(q("110")) }), "up to 110, above its own of 100"},
		"a default out of the range":  {policy(func(p *resourcev1.CapacityRequestPolicy) { p.Default = ptr.To(q("90")) }), "default 90 is out of its range"},
		"a step of nothing":           {policy(func(p *resourcev1.CapacityRequestPolicy) { p.ValidRange.Step = ptr.To(q("0")) }), "in steps of 0"},
		"a step backwards":            {policy(func(p *resourcev1.CapacityRequestPolicy) { p.ValidRange.Step = ptr.To(q("-10")) }), "in steps of -10"},
		"a default between steps":     {policy(func(p *resourcev1.CapacityRequestPolicy) { p.Default = ptr.To(q("15")) }), "no whole number of steps"},
		"steps of fractions": {policy(func(p *resourcev1.CapacityRequestPolicy) { p.ValidRange.Step = ptr.To(q("2500m")) }),
			"request policy in steps of 2500m from 10, which releases of kube-scheduler round differently"},
		"steps from a fraction": {policy(func(p *resourcev1.CapacityRequestPolicy) { p.ValidRange.Min = ptr.To(q("500m")) }), "from 500m, which releases"},
		"steps to a fraction":   {policy(func(p *resourcev1.CapacityRequestPolicy) { p.ValidRange.Max = ptr.To(q("79500m")) }), "round differently"},
		"a fraction without steps": {policy(func(p *resourcev1.CapacityRequestPolicy) {
			p.ValidRange.Step, p.ValidRange.Min = nil, ptr.To(q("500m"))
		}), ""},
		"values":                      {policy(func(p *resourcev1.CapacityRequestPolicy) { values(p, "10", "20") }), ""},
		"a value above it all":        {policy(func(p *resourcev1.CapacityRequestPolicy) { values(p, "10", "200") }), "value 200, above its own of 100"},
		"a value below zero":          {policy(func(p *resourcev1.CapacityRequestPolicy) { values(p, "-10", "10") }), "value -10"},
		"values that descend":         {policy(func(p *resourcev1.CapacityRequestPolicy) { values(p, "20", "10") }), "do not ascend"},
		"a default beside the values": {policy(func(p *resourcev1.CapacityRequestPolicy) { values(p, "20", "30") }), "default 10 is not among"},
		"a mapping":                   {maps136(resourcev1.NodeAllocatableResourceMapping{AllocationMultiplier: ptr.To(q("2"))}), ""},
		"a mapping of less":           {maps136(resourcev1.NodeAllocatableResourceMapping{AllocationMultiplier: ptr.To(q("-2"))}), "mapping of cpu takes nothing, or less"},
		"a mapping of nothing":        {maps136(resourcev1.NodeAllocatableResourceMapping{}), "mapping of cpu has neither"},
		"a mapping by what is not there": {maps136(resourcev1.NodeAllocatableResourceMapping{CapacityKey: ptr.To[resourcev1.QualifiedName]("cores")}),
			"mapping of cpu is by capacity cores, which it does not list"},
	} {
		t.Run(name, func(t *testing.T) {
			n := bookOf(seePool(func(devices, _ *resourcev1.ResourceSliceSpec) { c.change(&devices.Devices[0]) })...).Snapshot().Node("a")
			if len(n.Pools) != 1 || n.Pools[0].State != PoolFresh || len(n.Devices) != 2 {
				t.Fatalf("pools %+v and %d devices, want a fresh pool of two", n.Pools, len(n.Devices))
			}
			flags := n.Flags()
			for i := range n.Devices {
				d := &n.Devices[i]
				switch changed := d.ID.Device != "gpu-0-1"; {
				case !changed && d.Unusable != "":
					t.Errorf("the other device is kept out: %s", d.Unusable)
				case changed && (d.Unusable != "") != (c.says != ""), changed && !strings.Contains(d.Unusable, c.says):
					t.Errorf("unusable %q, want %q", d.Unusable, c.says)
				case changed && c.says != "" && (len(flags) != 1 || flags[0].Reason != FlagImpossible || flags[0].Object != d.ID.String()):
					t.Errorf("flags %+v, want one of the device", flags)
				}
			}
			if c.says == "" && len(flags) != 0 {
				t.Errorf("flags %+v, want none", flags)
			}
		})
	}
}

func TestACounterBelowZeroKeepsOutAllThatDrawsOnAny(t *testing.T) {
	n := bookOf(seePool(func(devices, counters *resourcev1.ResourceSliceSpec) {
		counters.SharedCounters[0].Counters["slices"] = resourcev1.Counter{Value: q("-1")}
		devices.Devices[0].ConsumesCounters = draws("card", "memory", "1Gi")
	})...).Snapshot().Node("a")
	if got := n.Device(device("a", 0, 0)).Unusable; !strings.Contains(got, "card/slices is below zero") {
		t.Errorf("unusable %q, want the counter below zero", got)
	}
	if got := n.Device(device("a", 0, 1)).Unusable; got != "" {
		t.Errorf("unusable %q, want the one that draws on nothing lent", got)
	}
}

func TestWhatAnImpossiblePoolsClaimsHoldStaysHeld(t *testing.T) {
	seen := append(seePool(func(d, _ *resourcev1.ResourceSliceSpec) { d.Devices[1].Name = "gpu-0-0" }),
		seeClaim("c", 1, Claim{Allocated: []DeviceID{device("a", 0, 0)}}))
	n := bookOf(seen...).Snapshot().Node("a")
	if len(n.Withheld) != 1 || len(n.Withheld[0].Holders) != 1 || !strings.Contains(n.Withheld[0].Unusable, "listed twice") {
		t.Errorf("withheld %+v, want the device once, held", n.Withheld)
	}
}
