package ledger

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"
)

// mapped136 is a device that maps one resource by the field of 1.36.
func mapped136(name corev1.ResourceName, key, multiplier string, change func(*resourcev1.Device)) *resourcev1.Device {
	of := resourcev1.NodeAllocatableResourceMapping{AllocationMultiplier: quantity(multiplier)}
	if key != "" {
		of.CapacityKey = ptr.To(resourcev1.QualifiedName(key))
	}
	d := shared("80Gi", nil)
	d.NodeAllocatableResourceMappings = map[corev1.ResourceName]resourcev1.NodeAllocatableResourceMapping{name: of}
	if change != nil {
		change(d)
	}
	return d
}

func TestMappingsOf(t *testing.T) {
	if m := MappingsOf(shared("1", nil)); m != nil || m.Mapped() {
		t.Errorf("a device without mappings has %v", m)
	}
	single := func(d *resourcev1.Device) { d.AllowMultipleAllocations = nil }
	for name, tc := range map[string]struct {
		device *resourcev1.Device
		// problem is part of what is wrong; empty for nothing.
		problem string
	}{
		"so much a device":                        {mapped136("cpu", "", "2", single), ""},
		"so much a unit of a capacity":            {mapped136("hugepages-1Gi", "memory", "2", nil), ""},
		"one a unit of a capacity":                {mapped136("memory", "memory", "", nil), ""},
		"neither a capacity nor a multiplier":     {mapped136("cpu", "", "", nil), "neither a capacity nor a multiplier"},
		"a negative multiplier":                   {mapped136("cpu", "", "-1", nil), "takes nothing, or less"},
		"a multiplier of nothing":                 {mapped136("cpu", "", "0", nil), "takes nothing, or less"},
		"a capacity that is not listed":           {mapped136("cpu", "cores", "1", nil), "by capacity cores, which it does not list"},
		"a capacity of which nothing is consumed": {mapped136("memory", "memory", "1", single), "does not allow multiple allocations"},
		"an empty capacity": {mapped136("cpu", "", "1", func(d *resourcev1.Device) {
			e := d.NodeAllocatableResourceMappings["cpu"]
			e.CapacityKey = ptr.To(resourcev1.QualifiedName(""))
			d.NodeAllocatableResourceMappings["cpu"] = e
		}), "empty capacity"},
		"an extended resource":                       {mapped136("example.com/foo", "", "1", nil), "not a resource of a node itself"},
		"more than any node has":                     {mapped136("memory", "", "1001P", nil), "more than any node has"},
		"more cpu than any node has":                 {mapped136("cpu", "", "1001T", nil), "more than any node has"},
		"much of a capacity":                         {mapped136("memory", "memory", "1M", nil), ""},
		"more of a whole capacity than any node has": {mapped136("memory", "memory", "1T", nil), "more than any node has"},
	} {
		t.Run(name, func(t *testing.T) {
			m := MappingsOf(tc.device)
			if m.Rules != Rules136 || len(m.List) != 1 || !m.Mapped() {
				t.Fatalf("mappings %+v", m)
			}
			if (m.Problem == "") != (tc.problem == "") || !strings.Contains(m.Problem, tc.problem) {
				t.Errorf("problem %q, want %q", m.Problem, tc.problem)
			}
		})
	}
}

func TestMappings137(t *testing.T) {
	key := func(s string) *resourcev1.QualifiedName { return ptr.To(resourcev1.QualifiedName(s)) }
	for name, tc := range map[string]struct {
		resource  corev1.ResourceName
		entry     NodeAllocatable137
		problem   string
		shareable bool
	}{
		"by device":                        {"cpu", NodeAllocatable137{Mapping: &NodeAllocatableMapping137{DeviceMultiplier: quantity("8")}}, "", false},
		"by capacity":                      {"memory", NodeAllocatable137{Mapping: &NodeAllocatableMapping137{CapacityKey: key("memory"), CapacityMultiplier: quantity("1")}}, "", false},
		"overhead alone":                   {"memory", NodeAllocatable137{Overhead: &NodeAllocatableOverhead137{PerPod: quantity("1Gi"), PerContainer: quantity("0")}}, "", true},
		"by both":                          {"cpu", NodeAllocatable137{Mapping: &NodeAllocatableMapping137{CapacityKey: key("memory"), CapacityMultiplier: quantity("1"), DeviceMultiplier: quantity("1")}}, "at once", false},
		"by neither":                       {"cpu", NodeAllocatable137{Mapping: &NodeAllocatableMapping137{}}, "neither a capacity nor a multiplier", true},
		"by a capacity without multiplier": {"cpu", NodeAllocatable137{Mapping: &NodeAllocatableMapping137{CapacityKey: key("memory")}}, "capacity without a multiplier", false},
		"nothing":                          {"cpu", NodeAllocatable137{}, "neither a mapping nor an overhead", true},
		"an overhead of nothing":           {"cpu", NodeAllocatable137{Overhead: &NodeAllocatableOverhead137{}}, "overhead of nothing", true},
		"a negative overhead":              {"cpu", NodeAllocatable137{Overhead: &NodeAllocatableOverhead137{PerPod: quantity("-1")}}, "negative", true},
		"an overhead beyond any node":      {"memory", NodeAllocatable137{Overhead: &NodeAllocatableOverhead137{PerContainer: quantity("2E")}}, "overhead that no node has", true},
		"a capacity that is not listed":    {"cpu", NodeAllocatable137{Mapping: &NodeAllocatableMapping137{CapacityKey: key("cores"), CapacityMultiplier: quantity("1")}}, "does not list", false},
		"ephemeral storage":                {"ephemeral-storage", NodeAllocatable137{Mapping: &NodeAllocatableMapping137{DeviceMultiplier: quantity("1")}}, "neither cpu, memory nor hugepages", false},
		"an empty capacity":                {"cpu", NodeAllocatable137{Mapping: &NodeAllocatableMapping137{CapacityKey: key(""), CapacityMultiplier: quantity("1")}}, "empty capacity", true},
	} {
		t.Run(name, func(t *testing.T) {
			m := Mappings137(shared("80Gi", nil), map[corev1.ResourceName]NodeAllocatable137{tc.resource: tc.entry})
			if m.Rules != Rules137 || len(m.List) != 1 || m.Mapped() == tc.shareable {
				t.Fatalf("mappings %+v", m)
			}
			if (m.Problem == "") != (tc.problem == "") || !strings.Contains(m.Problem, tc.problem) {
				t.Errorf("problem %q, want %q", m.Problem, tc.problem)
			}
		})
	}
	if m := Mappings137(shared("1", nil), nil); m != nil {
		t.Errorf("a device without mappings has %v", m)
	}
}

func TestMappedBy(t *testing.T) {
	of136 := func(name corev1.ResourceName, key, multiplier string) *Mappings {
		return MappingsOf(mapped136(name, key, multiplier, nil))
	}
	consumed := func(q string) Consumption { return Consumption{"memory": *quantity(q)} }
	both := MappingsOf(mapped136("cpu", "", "1500m", func(d *resourcev1.Device) {
		d.NodeAllocatableResourceMappings["memory"] = resourcev1.NodeAllocatableResourceMapping{CapacityKey: ptr.To(resourcev1.QualifiedName("memory")), AllocationMultiplier: quantity("2")}
	}))
	of137 := Mappings137(shared("80Gi", nil), map[corev1.ResourceName]NodeAllocatable137{
		"cpu":    {Mapping: &NodeAllocatableMapping137{DeviceMultiplier: quantity("8")}},
		"memory": {Overhead: &NodeAllocatableOverhead137{PerPod: quantity("10"), PerContainer: quantity("3")}},
	})
	for name, tc := range map[string]struct {
		devices    []Taken
		references int
		want       Amounts
		fails      bool
	}{
		"nothing is mapped":                                                                 {devices: []Taken{{}, {}}},
		"so much for each device":                                                           {devices: []Taken{{Mappings: of136("cpu", "", "2")}, {Mappings: of136("cpu", "", "2")}}, want: Amounts{"cpu": 4000}},
		"the sum is rounded up, not each":                                                   {devices: []Taken{{Mappings: of136("memory", "", "500m")}, {Mappings: of136("memory", "", "500m")}, {Mappings: of136("memory", "", "500m")}}, want: Amounts{"memory": 2}},
		"so much for each unit that is consumed":                                            {devices: []Taken{{Mappings: of136("memory", "memory", "2"), Consumed: consumed("10Gi")}}, want: Amounts{"memory": 20 << 30}},
		"one for each unit where there is no multiplier":                                    {devices: []Taken{{Mappings: of136("memory", "memory", ""), Consumed: consumed("10Gi")}}, want: Amounts{"memory": 10 << 30}},
		"a fraction of each unit":                                                           {devices: []Taken{{Mappings: of136("cpu", "memory", "100m"), Consumed: consumed("25")}}, want: Amounts{"cpu": 2500}},
		"other capacities that are consumed are nothing to it":                              {devices: []Taken{{Mappings: of136("memory", "memory", "2"), Consumed: Consumption{}}}},
		"a capacity of which nothing at all is consumed fails":                              {devices: []Taken{{Mappings: of136("memory", "memory", "2")}}, fails: true},
		"several resources of one device":                                                   {devices: []Taken{{Mappings: both, Consumed: consumed("3")}}, want: Amounts{"cpu": 1500, "memory": 6}},
		"how many containers refer to it is nothing to 1.36":                                {devices: []Taken{{Mappings: of136("cpu", "", "2")}}, references: 3, want: Amounts{"cpu": 2000}},
		"1.37 adds overhead for the pod and for each container that refers to it, a device": {devices: []Taken{{Mappings: of137}, {Mappings: of137}}, references: 3, want: Amounts{"cpu": 16000, "memory": 38}},
		"1.37 adds it for the pod alone where none does":                                    {devices: []Taken{{Mappings: of137}}, want: Amounts{"cpu": 8000, "memory": 10}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := MappedBy(tc.devices, tc.references)
			if (err != nil) != tc.fails {
				t.Fatalf("error %v", err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
