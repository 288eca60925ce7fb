package ledger

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

func quantity(s string) *resource.Quantity {
	if s == "" {
		return nil
	}
	q := resource.MustParse(s)
	return &q
}

// shared is a device that allows several allocations, with one capacity.
func shared(value string, policy *resourcev1.CapacityRequestPolicy) *resourcev1.Device {
	return &resourcev1.Device{Name: "dev", AllowMultipleAllocations: ptr.To(true), Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{
		"memory": {Value: *quantity(value), RequestPolicy: policy},
	}}
}

func steps(from, to, step, def string) *resourcev1.CapacityRequestPolicy {
	return &resourcev1.CapacityRequestPolicy{Default: quantity(def), ValidRange: &resourcev1.CapacityRequestPolicyRange{Min: quantity(from), Max: quantity(to), Step: quantity(step)}}
}

func oneOf(def string, values ...string) *resourcev1.CapacityRequestPolicy {
	p := &resourcev1.CapacityRequestPolicy{Default: quantity(def)}
	for _, v := range values {
		p.ValidValues = append(p.ValidValues, *quantity(v))
	}
	return p
}

func TestConsumption(t *testing.T) {
	for name, tc := range map[string]struct {
		device *resourcev1.Device
		asked  string
		// want is what is taken; empty where the device is passed over.
		want string
	}{
		"all of it where nothing is asked for and no policy says less": {shared("80Gi", nil), "", "80Gi"},
		"as much as is asked for without a policy":                     {shared("80Gi", nil), "7", "7"},
		"the policy's default where nothing is asked for":              {shared("80Gi", steps("1Gi", "", "", "10Gi")), "", "10Gi"},
		"the range's minimum for less":                                 {shared("80Gi", steps("2Gi", "", "", "10Gi")), "1", "2Gi"},
		"as it is within a range without a step":                       {shared("80Gi", steps("2Gi", "", "", "10Gi")), "2147483649", "2147483649"},
		"rounded up to the range's step, counted from its minimum":     {shared("80", steps("3", "", "5", "3")), "9", "13"},
		"a step that is met is kept":                                   {shared("80", steps("3", "", "5", "3")), "13", "13"},
		"above the maximum the device is passed over":                  {shared("80", steps("3", "20", "", "3")), "21", ""},
		"rounded up above the maximum it is passed over":               {shared("80", steps("3", "15", "5", "3")), "14", ""},
		"rounded up to the next value of a list":                       {shared("80", oneOf("10", "10", "20", "40")), "11", "20"},
		"above the list's last value it is passed over":                {shared("80", oneOf("10", "10", "20", "40")), "41", ""},
		"a step without a minimum is no policy to work with":           {shared("80", steps("", "", "5", "3")), "9", ""},
		"a step of nothing is no policy to work with":                  {shared("80", steps("3", "", "0", "3")), "9", ""},
	} {
		t.Run(name, func(t *testing.T) {
			requests := map[resourcev1.QualifiedName]resource.Quantity{}
			if tc.asked != "" {
				requests["memory"] = *quantity(tc.asked)
			}
			c, ok := ConsumptionOf(tc.device, requests)
			if ok != (tc.want != "") {
				t.Fatalf("takes %v, %t", c, ok)
			}
			if got := c["memory"]; ok && got.Cmp(*quantity(tc.want)) != 0 {
				t.Errorf("takes %s, want %s", got.String(), tc.want)
			}
		})
	}
	if _, ok := ConsumptionOf(shared("1", nil), map[resourcev1.QualifiedName]resource.Quantity{"cores": *quantity("1")}); ok {
		t.Error("a capacity that the device does not list can be had")
	}
}

func TestDefaultConsumption(t *testing.T) {
	dev := shared("80Gi", oneOf("10Gi", "10Gi"))
	if got := DefaultConsumption(dev)["memory"]; got.Cmp(*quantity("10Gi")) != 0 {
		t.Errorf("takes %s", got.String())
	}
	dev.AllowMultipleAllocations = nil
	if got := DefaultConsumption(dev); got != nil {
		t.Errorf("a device that allows one allocation is taken in parts: %v", got)
	}
	if got := DefaultConsumption(shared("80", steps("", "", "5", "3"))); got != nil {
		t.Errorf("a policy that cannot be worked with takes %v", got)
	}
}

func TestConsumptionsAddUp(t *testing.T) {
	a := Consumption{"memory": *quantity("1Gi")}
	c := a.Clone()
	c.Add(Consumption{"memory": *quantity("2Gi"), "cores": *quantity("4")})
	memory, cores, before := c["memory"], c["cores"], a["memory"]
	if memory.Cmp(*quantity("3Gi")) != 0 || cores.Value() != 4 || before.Cmp(*quantity("1Gi")) != 0 {
		t.Errorf("3Gi and 4 expected, not %s and %s; %s before", memory.String(), cores.String(), before.String())
	}
}

type oneClass struct{}

func (oneClass) List() ([]*resourcev1.DeviceClass, error) { return nil, nil }
func (oneClass) Get(name string) (*resourcev1.DeviceClass, error) {
	return &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
}

// given asks kube-scheduler's own allocator for a device; nil where it does not fit.
func given(t *rapid.T, dev *resourcev1.Device, used Consumption, requests map[resourcev1.QualifiedName]resource.Quantity) map[resourcev1.QualifiedName]resource.Quantity {
	slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "d", NodeName: ptr.To("n"), Pool: resourcev1.ResourcePool{Name: "n", Generation: 1, ResourceSliceCount: 1}, Devices: []resourcev1.Device{*dev.DeepCopy()},
	}}
	state := structured.AllocatedState{AggregatedCapacity: structured.NewConsumedCapacityCollection()}
	state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(structured.MakeDeviceID("d", "n", dev.Name), used))
	a, err := structured.NewAllocator(context.Background(), structured.Features{ConsumableCapacity: true, DeviceTaints: true, PrioritizedList: true}, state,
		oneClass{}, []*resourcev1.ResourceSlice{slice}, cel.NewCache(1, cel.Features{}))
	if err != nil {
		t.Fatal(err)
	}
	claim := &resourcev1.ResourceClaim{Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: "c", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1, Capacity: &resourcev1.CapacityRequirements{Requests: requests},
	}}}}}}
	results, err := a.Allocate(context.Background(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, []*resourcev1.ResourceClaim{claim})
	if err != nil {
		t.Fatal(err)
	}
	if len(results) == 0 {
		return nil
	}
	return results[0].Devices.Results[0].ConsumedCapacity
}

// What a request takes is what kube-scheduler's own allocator says, and so is whether the device has as much.
func TestConsumptionIsTheAllocators(t *testing.T) {
	number := rapid.Int64Range(1, 40)
	amount := func(t *rapid.T, name string) resource.Quantity {
		n := number.Draw(t, name)
		return rapid.SampledFrom([]resource.Quantity{*resource.NewQuantity(n, resource.DecimalSI), *resource.NewMilliQuantity(n*500, resource.DecimalSI), resource.MustParse(fmt.Sprintf("%dKi", n))}).Draw(t, name+" as")
	}
	policy := func(t *rapid.T) *resourcev1.CapacityRequestPolicy {
		p := &resourcev1.CapacityRequestPolicy{}
		from := number.Draw(t, "from")
		switch rapid.IntRange(0, 3).Draw(t, "policy") {
		case 0:
			return nil
		case 1:
			q := amount(t, "default")
			p.Default = &q
		case 2:
			p.ValidRange = &resourcev1.CapacityRequestPolicyRange{Min: resource.NewQuantity(from, resource.DecimalSI)}
			p.Default = resource.NewQuantity(from, resource.DecimalSI)
			if rapid.Bool().Draw(t, "max") {
				p.ValidRange.Max = resource.NewQuantity(from+number.Draw(t, "to"), resource.DecimalSI)
			}
			if rapid.Bool().Draw(t, "steps") {
				p.ValidRange.Step = resource.NewQuantity(number.Draw(t, "step"), resource.DecimalSI)
			}
		case 3:
			for i := range rapid.Int64Range(1, 4).Draw(t, "values") {
				p.ValidValues = append(p.ValidValues, *resource.NewQuantity(from*(i+1), resource.DecimalSI))
			}
			p.Default = resource.NewQuantity(from, resource.DecimalSI)
		}
		return p
	}
	rapid.Check(t, func(t *rapid.T) {
		dev := &resourcev1.Device{Name: "dev", AllowMultipleAllocations: ptr.To(true), Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{}}
		requests, used := map[resourcev1.QualifiedName]resource.Quantity{}, Consumption{}
		for _, name := range []resourcev1.QualifiedName{"memory", "cores"} {
			dev.Capacity[name] = resourcev1.DeviceCapacity{Value: amount(t, "value"), RequestPolicy: policy(t)}
			if rapid.Bool().Draw(t, "asked") {
				requests[name] = amount(t, "ask")
			}
			used[name] = amount(t, "used")
		}
		c, ok := ConsumptionOf(dev, requests)
		if ok {
			for name, capacity := range dev.Capacity {
				sum := used[name].DeepCopy()
				sum.Add(c[name])
				ok = ok && sum.Cmp(capacity.Value) <= 0
			}
		}
		want := given(t, dev, used, requests)
		if ok != (want != nil) {
			t.Fatalf("takes %v (%t), the allocator gives %v", c, ok, want)
		}
		for name, q := range want {
			if got := c[name]; got.Cmp(q) != 0 {
				t.Fatalf("takes %s of %s, the allocator gives %s", got.String(), name, q.String())
			}
		}
	})
}
