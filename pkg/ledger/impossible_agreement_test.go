package ledger

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

// asked asks kube-scheduler's allocator for devices of slices in an empty cluster: the one of a name, or for an empty name all.
func asked(t *rapid.T, of []*resourcev1.ResourceSlice, name string) (bool, error) {
	t.Helper()
	features := cel.Features{EnableConsumableCapacity: true}
	a, err := structured.NewAllocator(context.Background(), structured.Features{
		AdminAccess: true, PrioritizedList: true, PartitionableDevices: true, DeviceTaints: true, DeviceBindingAndStatus: true, ConsumableCapacity: true,
	}, structured.AllocatedState{AggregatedCapacity: structured.NewConsumedCapacityCollection()}, oneClass{}, of, cel.NewCache(10, features))
	if err != nil {
		t.Fatal(err)
	}
	r := &resourcev1.ExactDeviceRequest{DeviceClassName: "c", AllocationMode: resourcev1.DeviceAllocationModeAll}
	if name != "" {
		r.AllocationMode, r.Count = resourcev1.DeviceAllocationModeExactCount, 1
		r.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: fmt.Sprintf(`device.attributes["gpu.example.com"].name == %q`, name)}}}
	}
	claim := &resourcev1.ResourceClaim{Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "r", Exactly: r}}}}}
	results, err := a.Allocate(context.Background(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, []*resourcev1.ResourceClaim{claim})
	return err == nil && len(results) == 1, err
}

// TestWhatIsKeptOutIsWhatKubeSchedulerKeepsOut makes pools that the API server would take, with what it cannot see.
func TestWhatIsKeptOutIsWhatKubeSchedulerKeepsOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		few := rapid.IntRange(0, 2)
		amount := rapid.SampledFrom([]string{"-1", "0", "1", "2", "2", "3"})
		slices := []Observation{seeSlice("a", 1, 1, 2, 0, 0), seeSlice("a", 1, 1, 2, 1, 0)}
		totals := map[string]resourcev1.Counter{}
		for i := range few.Draw(t, "counters") + 1 {
			totals[fmt.Sprint("counter-", i)] = resourcev1.Counter{Value: q(amount.Draw(t, "total"))}
		}
		slices[1].Slice.Spec.SharedCounters = []resourcev1.CounterSet{{Name: "set-0", Counters: totals}}
		if rapid.IntRange(0, 9).Draw(t, "set") == 0 {
			slices[1].Slice.Spec.SharedCounters[0].Name = "set-9"
		}
		if rapid.Bool().Draw(t, "more") {
			slices = append(slices, seeSlice("a", 1, 1, 3, 2, 0))
			for i := range slices {
				slices[i].Slice.Spec.Pool.ResourceSliceCount = 3
			}
		}
		gives := map[string]bool{} // those that give rather than take, which the ledger alone keeps out
		for _, o := range slices {
			if len(o.Slice.Spec.SharedCounters) > 0 {
				continue
			}
			for i := range few.Draw(t, "devices") {
				name := fmt.Sprint(o.Slice.Name, "-", i)
				if rapid.IntRange(0, 9).Draw(t, "again") == 0 {
					name = "again"
				}
				d := resourcev1.Device{Name: name, Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"name": {StringValue: ptr.To(name)}}}
				if rapid.Bool().Draw(t, "capacity") {
					v := q(amount.Draw(t, "value"))
					gives[name] = gives[name] || v.Sign() < 0
					d.Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: v}}
				}
				if rapid.Bool().Draw(t, "draws") {
					v := amount.Draw(t, "draw")
					gives[name] = gives[name] || v == "-1"
					d.ConsumesCounters = draws("set-0", fmt.Sprint("counter-", min(few.Draw(t, "which"), few.Draw(t, "low"))), v)
				}
				o.Slice.Spec.Devices = append(o.Slice.Spec.Devices, d)
			}
		}
		var of []*resourcev1.ResourceSlice
		for _, o := range slices {
			of = append(of, o.Slice)
		}
		n := bookOf(append([]Observation{seeNode("a", 1, nil)}, slices...)...).Snapshot().Node("a")
		if len(n.Pools) == 0 {
			return // no slice of devices is for the node
		}
		_, err := asked(t, of, "")
		invalid := err != nil && strings.Contains(err.Error(), "is currently invalid")
		if impossible := n.Pools[0].State == PoolImpossible; impossible != invalid {
			t.Fatalf("pool is %s (%s), the allocator says %v", n.Pools[0].State, n.Pools[0].Problem, err)
		}
		for i := range n.Devices {
			d := &n.Devices[i]
			given, err := asked(t, of, d.ID.Device)
			if usable := d.Unusable == ""; usable && !given || !usable && given && !gives[d.ID.Device] {
				t.Fatalf("device %s is kept out for %q, the allocator gives it: %t, %v", d.ID.Device, d.Unusable, given, err)
			}
		}
	})
}

// FuzzVersion compares which versions can be read with those that selectors can.
func FuzzVersion(f *testing.F) {
	for _, v := range []string{"", "1.2.3", "1.2", "01.2.3", "1.2.3-", "1.2.3-a.1+b.01", "1.2.3-01", "1.2.3+", "v1.2.3", "99999999999999999999.0.0", "1.2.3-99999999999999999999", "1.2.3-a..b", "1.2.3+a+b", "1.2.3--", "1.2.-3"} {
		f.Add(v)
	}
	program := cel.GetCompiler(cel.Features{}).CompileCELExpression(`device.driver == "d"`, cel.Options{})
	if program.Error != nil {
		f.Fatal(program.Error)
	}
	f.Fuzz(func(t *testing.T, v string) {
		_, _, err := program.DeviceMatches(context.Background(), cel.Device{Driver: "d", Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"v": {VersionValue: &v}}})
		if got := readableVersion(v); got != (err == nil) {
			t.Errorf("%q is readable: %t, selectors say %v", v, got, err)
		}
	})
}
