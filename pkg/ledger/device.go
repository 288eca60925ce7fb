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
}

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
	// Taints are those that its slice lists and those of the rules that select it; owned by the book.
	Taints []resourcev1.DeviceTaint
	// Mappings says what it takes of its node's own resources; nil for nothing.
	Mappings *Mappings
	// Wide is true for a device that other nodes may use as well: it is in their accounts too.
	Wide bool
	// Cover names the device of the same card that is held, so that this one must not be given: the whole card for its parts, a
	// part for the whole card. Empty for none. Devices that draw on counters are told apart by those instead.
	Cover string
	// Unusable says in a few words why the device is never lent as it is; empty for one that can be.
	Unusable string
}

// Multiple says that the device allows several allocations at once.
func (d *Device) Multiple() bool {
	return d.Spec.AllowMultipleAllocations != nil && *d.Spec.AllowMultipleAllocations
}

// Free says that nothing holds the device.
func (d *Device) Free() bool { return len(d.Holders) == 0 }

// unusable returns why a device cannot be lent by this version of the ledger, or "".
func unusable(d *resourcev1.Device) string {
	switch {
	case len(d.ConsumesCounters) > 0:
		return "it draws on shared counters, which are not supported yet"
	case d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations:
		return "it allows multiple allocations, which is not supported yet"
	case len(d.BindingConditions) > 0:
		return "it has binding conditions, which are not supported yet"
	case len(d.NodeAllocatableResourceMappings) > 0:
		return "it maps node allocatable resources, which is not supported yet"
	case d.NodeName != nil || d.NodeSelector != nil || d.AllNodes != nil:
		return "its slice selects nodes per device, which is not supported yet"
	}
	return ""
}
