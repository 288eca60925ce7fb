package ledger

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
)

// DeviceID names one device in a cluster, as claims' allocation results do.
type DeviceID struct {
	Driver, Pool, Device string
}

// String returns "driver/pool/device".
func (d DeviceID) String() string { return d.Driver + "/" + d.Pool + "/" + d.Device }

// ParseDeviceID is the inverse of String. A pool's name may hold slashes, a driver's and a device's may not.
func ParseDeviceID(s string) (DeviceID, error) {
	first, last := strings.Index(s, "/"), strings.LastIndex(s, "/")
	if first <= 0 || last <= first+1 || last == len(s)-1 {
		return DeviceID{}, fmt.Errorf("device id %q is not driver/pool/device", s)
	}
	return DeviceID{Driver: s[:first], Pool: s[first+1 : last], Device: s[last+1:]}, nil
}

func compareDeviceIDs(a, b DeviceID) int {
	return cmp.Or(cmp.Compare(a.Driver, b.Driver), cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Device, b.Device))
}

// HolderKind says what holds a device.
type HolderKind string

// The kinds of holders, in the order in which they win over each other.
const (
	// HolderClaim: the device is in a claim's allocation.
	HolderClaim HolderKind = "Claim"
	// HolderReleased: the device is named by the claim of a pod that was released and has no allocation yet.
	HolderReleased HolderKind = "Released"
	// HolderPlacement: the device is promised by a live Placement.
	HolderPlacement HolderKind = "Placement"
)

// Holder is one claim or Placement that holds a device.
type Holder struct {
	Kind HolderKind
	// UID is the claim's or the Placement's.
	UID types.UID
	// Namespace and Name are the claim's, or the Workload's for a Placement.
	Namespace, Name string
	// Workload is the uid of the Workload that it serves; empty for what Kueue does not manage.
	Workload types.UID
	// Managed is true for what serves a Workload that Kueue manages, or is a claim that Plimsoll had made: it ends with
	// that Workload.
	Managed bool
	// Created is the creationTimestamp of a Placement in seconds since 1970; 0 for claims.
	Created int64
	// Resource names the extended resource of a promise that is held by number alone: any equal device will do. Empty for
	// others.
	Resource string
	// Share and Consumed are the share's, of a device that allows several allocations; a promise of such a device takes what a
	// claim that asks for no capacity is given. Empty and nil for others.
	Share    types.UID
	Consumed Consumption
	// Freeing is true while the holder's pod is terminating, or gone before its claim, or its Workload has lost its quota.
	Freeing bool
	// Until is when a holder that is freeing is no longer waited for; zero for no such time.
	Until time.Time
	// again says that its claim lists the device more than once, misnoted that what is noted beside its claim is not what the
	// claim's spec names.
	again, misnoted bool
	// at is the node for whose pods it holds the device; empty where that is not known. bound says that its pod is on the
	// node, whose requests hold what the device maps to.
	at    string
	bound bool
	// referring is how often the containers of its pod refer to its claim; 0 where that is not known.
	referring int
}

// times is how often the containers of its pod count as referring to its claim: once where that is not known.
func (h *Holder) times() int { return max(1, h.referring) }

// freeingGrace is how long past its pod's deletionTimestamp a holder that is freeing is waited for.
const freeingGrace = 60 * time.Second

// Ending says whether a holder is freeing and still waited for.
func (h *Holder) Ending(now time.Time) bool {
	return h.Freeing && (h.Until.IsZero() || now.Before(h.Until))
}

// Device is one device as a snapshot shows it. It is read-only.
type Device struct {
	ID DeviceID
	// Spec is the device as its slice lists it; owned by the observer.
	Spec *resourcev1.Device
	// Slice is the slice that lists it; owned by the observer.
	Slice *resourcev1.ResourceSlice
	// Holders is empty for a free device, and sorted by kind and uid.
	Holders []Holder
	// Lost is when the pool that lists the device was last complete, for a device of Node.Lost; zero for the others.
	Lost time.Time
	// Unserved is true for a device of Node.Lost that its pool lists still: its driver does not serve on the node, as
	// Node.Unserved was told.
	Unserved bool
	// Taints are those that its slice lists and those of the rules that select it; owned by the book.
	Taints []resourcev1.DeviceTaint
	// Inherited are the taints of the card that it is a part of, which kube-scheduler does not see in it.
	Inherited []resourcev1.DeviceTaint
	// Mappings says what it takes of its node's own resources; nil for nothing.
	Mappings *Mappings
	// Wide is true for a device that other nodes may use as well: it is in their accounts too.
	Wide bool
	// Cover names the device that holds the whole card that this one is a part of, so that this one must not be given. Empty
	// for none. Cards whose parts draw on counters are told by those instead.
	Cover string
	// whole is the card of which it is a part without counters.
	whole DeviceID
	// Unusable says in a few words why the device is never lent as it is; empty for one that can be.
	Unusable string
}

// Multiple says that the device allows several allocations at once.
func (d *Device) Multiple() bool {
	return d.Spec.AllowMultipleAllocations != nil && *d.Spec.AllowMultipleAllocations
}

// Free says that nothing holds the device.
func (d *Device) Free() bool { return len(d.Holders) == 0 }

// Left says whether a device that allows several allocations has so much left of its capacities beside those of its holders
// that count; for any other device whether none of them counts. A claim that was given the device as a whole, when it did not
// allow several yet, leaves none of it.
func (d *Device) Left(want Consumption, counts func(*Holder) bool) bool {
	if !d.Multiple() {
		for i := range d.Holders {
			if counts(&d.Holders[i]) {
				return false
			}
		}
		return true
	}
	used := Consumption{}
	for i := range d.Holders {
		h := &d.Holders[i]
		if !counts(h) {
			continue
		}
		if h.Kind == HolderClaim && h.Share == "" {
			return false
		}
		used.Add(h.Consumed)
	}
	return Takes(d.Spec, used, want)
}

// capacity is all that a device has of its capacities.
func (d *Device) capacity() Consumption {
	c := make(Consumption, len(d.Spec.Capacity))
	for name, x := range d.Spec.Capacity {
		c[name] = x.Value
	}
	return c
}

// Zone returns the NUMA zone that a device says it belongs to; false where it says none, or several.
func (d *Device) Zone() (int64, bool) {
	for _, name := range []resourcev1.QualifiedName{"resource.kubernetes.io/numaNode", "numaNode", resourcev1.QualifiedName(d.ID.Driver) + "/numaNode"} {
		if a, ok := d.Spec.Attributes[name]; ok && a.IntValue != nil && *a.IntValue >= 0 {
			return *a.IntValue, true
		}
	}
	return 0, false
}
