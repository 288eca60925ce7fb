package ledger

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A Line is one line of an export: one thing that the book holds. Two lines of one snapshot have different keys. Equal
// things are equal bytes.
type Line interface {
	// Key names what the line is about, such as "device node-a gpu.nvidia.com/node-a/gpu-0".
	Key() string
	// History says that the line is about what was, which a book that was filled anew does not know, or about what counts by its
	// effects alone, which other lines show, and may have none. The Digest leaves it out.
	History() bool
}

// The values of a line's field kind, in the order in which they follow each other.
const (
	lineClass     = "class"
	lineNode      = "node"
	lineUse       = "use"
	linePool      = "pool"
	lineDevice    = "device"
	lineShown     = "shown"
	lineCounter   = "counter"
	lineZone      = "zone"
	lineFlag      = "flag"
	lineMapped    = "mapped"
	lineAgent     = "agent"
	lineRule      = "rule"
	lineRegressed = "regressed"
	lineNotReady  = "not-ready"
	lineLost      = "lost"
	lineGone      = "agent-gone"
	lineDeparted  = "departed"
)

// present is what all lines about the present have in common.
type present struct {
	Kind string `json:"kind"`
}

// History is false.
func (present) History() bool { return false }

// past is what all lines have in common that are about the past, or that count by their effects alone.
type past struct {
	Kind string `json:"kind"`
}

// History is true.
func (past) History() bool { return true }

// ClassLine is a DeviceClass.
type ClassLine struct {
	present
	Name string    `json:"name"`
	UID  types.UID `json:"uid,omitempty"`
	// Created is the creationTimestamp.
	Created time.Time                  `json:"created,omitzero"`
	Spec    resourcev1.DeviceClassSpec `json:"spec"`
}

// Key returns the name of what the line is about.
func (l *ClassLine) Key() string { return lineClass + " " + l.Name }

// RuleLine is a DeviceTaintRule. What it does to devices is in theirs.
type RuleLine struct {
	past
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
	// Version is the version of the API in which it was read: what a rule without a selector means depends on it.
	Version string `json:"version,omitempty"`
	// Devices says that it selects all of them, or none; empty where the following say which, each of them empty for any.
	Devices string      `json:"devices,omitempty"`
	Driver  string      `json:"driver,omitempty"`
	Pool    string      `json:"pool,omitempty"`
	Device  string      `json:"device,omitempty"`
	Taint   DeviceTaint `json:"taint"`
}

// Key returns the name of what the line is about.
func (l *RuleLine) Key() string { return fmt.Sprintf("%s %q %q", lineRule, l.Name, l.UID) }

// NodeLine is a node's own accounts.
type NodeLine struct {
	present
	Node          string                   `json:"node"`
	Hostname      string                   `json:"hostname,omitempty"`
	Ready         bool                     `json:"ready"`
	Unschedulable bool                     `json:"unschedulable,omitempty"`
	Labels        map[string]string        `json:"labels,omitempty"`
	Taints        []NodeTaint              `json:"taints,omitempty"`
	Resources     map[string]ResourceTotal `json:"resources,omitempty"`
	Unallocated   int                      `json:"unallocated,omitempty"`
	// Stopped says why kube-scheduler gives up every pod with claims.
	Stopped string `json:"stopped,omitempty"`
}

// NodeTaint is a taint of a node.
type NodeTaint struct {
	Key    string             `json:"key"`
	Value  string             `json:"value,omitempty"`
	Effect corev1.TaintEffect `json:"effect"`
}

// ResourceTotal is what a node has of one resource, in thousandths of a cpu, bytes or pieces.
type ResourceTotal struct {
	Allocatable int64 `json:"allocatable"`
	Free        int64 `json:"free"`
	Managed     int64 `json:"managed,omitempty"`
	Mapped      int64 `json:"mapped,omitempty"`
}

// Key returns the name of what the line is about.
func (l *NodeLine) Key() string { return lineNode + " " + l.Node }

// UseLine is all that the pods of one Workload, those that Kueue does not manage, or the open slots of one promise take of a
// node's own resources.
type UseLine struct {
	present
	Node     string    `json:"node"`
	Workload types.UID `json:"workload,omitempty"`
	Freeing  bool      `json:"freeing,omitempty"`
	Until    time.Time `json:"until,omitzero"`
	// Placement is set where these are the open slots of a promise.
	Placement types.UID `json:"placement,omitempty"`
	Requests  Amounts   `json:"requests"`
}

// Key returns the name of what the line is about.
func (l *UseLine) Key() string {
	who := fmt.Sprintf("%s %s placement=%s", lineUse, l.Node, l.Placement)
	if l.Placement == "" {
		who = fmt.Sprintf("%s %s workload=%s", lineUse, l.Node, l.Workload)
	}
	if !l.Freeing {
		return who
	}
	return fmt.Sprintf("%s freeing until %s", who, l.Until.Format(time.RFC3339))
}

// PoolLine is the newest generation of a pool on a node.
type PoolLine struct {
	present
	Node       string    `json:"node"`
	Driver     string    `json:"driver"`
	Pool       string    `json:"pool"`
	Generation int64     `json:"generation"`
	State      PoolState `json:"state"`
	// Wide is true where slices of it are for more than this node.
	Wide bool `json:"wide,omitempty"`
	// Problem says why it is Impossible.
	Problem string `json:"problem,omitempty"`
	// Slices are the names of those of the generation that concern the node.
	Slices []string `json:"slices"`
}

// Key returns the name of what the line is about.
func (l *PoolLine) Key() string {
	return fmt.Sprintf("%s %s %s/%s", linePool, l.Node, l.Driver, l.Pool)
}

// place names a device on a node.
type devicePlace struct {
	Node   string `json:"node"`
	Driver string `json:"driver"`
	Pool   string `json:"pool"`
	Device string `json:"device"`
}

func (p *devicePlace) id() DeviceID {
	return DeviceID{Driver: p.Driver, Pool: p.Pool, Device: p.Device}
}

func (p *devicePlace) key(kind string) string { return kind + " " + p.Node + " " + p.id().String() }

// DeviceLine is a device of a complete pool.
type DeviceLine struct {
	present
	devicePlace
	deviceState
}

// Key returns the name of what the line is about.
func (l *DeviceLine) Key() string { return l.key(lineDevice) + " of " + l.Slice }

// deviceState is what is known of a device.
type deviceState struct {
	Unusable string        `json:"unusable,omitempty"`
	Wide     bool          `json:"wide,omitempty"`
	Cover    string        `json:"cover,omitempty"`
	Taints   []DeviceTaint `json:"taints,omitempty"`
	// Inherited are the taints of the card that it is a part of.
	Inherited []DeviceTaint `json:"inherited,omitempty"`
	Mappings  *MappingsLine `json:"mappings,omitempty"`
	Holders   []HolderLine  `json:"holders,omitempty"`
	// Slice is the slice that lists it.
	Slice string `json:"slice"`
	// Spec is the device as its slice lists it, without the taints.
	Spec *resourcev1.Device `json:"spec"`
}

// DeviceTaint is a taint of a device, of its slice or of a rule.
type DeviceTaint struct {
	Key    string                       `json:"key"`
	Value  string                       `json:"value,omitempty"`
	Effect resourcev1.DeviceTaintEffect `json:"effect"`
}

// MappingsLine is what a device takes of its node's own resources.
type MappingsLine struct {
	Rules   MappingRules  `json:"rules"`
	Problem string        `json:"problem,omitempty"`
	List    []MappingLine `json:"list,omitempty"`
}

// MappingLine is one resource of them.
type MappingLine struct {
	Resource     corev1.ResourceName      `json:"resource"`
	Capacity     resourcev1.QualifiedName `json:"capacity,omitempty"`
	Multiplier   string                   `json:"multiplier,omitempty"`
	PerPod       string                   `json:"perPod,omitempty"`
	PerContainer string                   `json:"perContainer,omitempty"`
}

// HolderLine is one holder of a device.
type HolderLine struct {
	Kind      HolderKind        `json:"kind"`
	UID       types.UID         `json:"uid"`
	Namespace string            `json:"namespace,omitempty"`
	Name      string            `json:"name,omitempty"`
	Workload  types.UID         `json:"workload,omitempty"`
	Managed   bool              `json:"managed,omitempty"`
	Resource  string            `json:"resource,omitempty"`
	Share     types.UID         `json:"share,omitempty"`
	Consumed  map[string]string `json:"consumed,omitempty"`
	Freeing   bool              `json:"freeing,omitempty"`
	Until     time.Time         `json:"until,omitzero"`
}

// ShownLine is a device of a pool that is not complete, or cannot be.
type ShownLine struct {
	present
	devicePlace
	Slice string             `json:"slice"`
	Spec  *resourcev1.Device `json:"spec"`
}

// Key returns the name of what the line is about.
func (l *ShownLine) Key() string { return l.key(lineShown) + " of " + l.Slice }

// CounterLine is a shared counter of a pool.
type CounterLine struct {
	present
	Node   string `json:"node"`
	Driver string `json:"driver"`
	Pool   string `json:"pool"`
	Set    string `json:"set"`
	Name   string `json:"name"`
	Total  string `json:"total"`
	Used   string `json:"used"`
}

// Key returns the name of what the line is about.
func (l *CounterLine) Key() string {
	return strings.Join([]string{lineCounter, l.Node, l.Driver + "/" + l.Pool, l.Set, l.Name}, " ")
}

// ZoneLine is a NUMA zone of a node.
type ZoneLine struct {
	present
	Node        string  `json:"node"`
	Number      int64   `json:"number"`
	Devices     int     `json:"devices"`
	FreeDevices int     `json:"freeDevices"`
	Allocatable Amounts `json:"allocatable,omitempty"`
	Free        Amounts `json:"free,omitempty"`
}

// Key returns the name of what the line is about.
func (l *ZoneLine) Key() string { return fmt.Sprintf("%s %s %d", lineZone, l.Node, l.Number) }

// FlagLine is what is odd about a node.
type FlagLine struct {
	present
	Node    string     `json:"node"`
	Reason  FlagReason `json:"reason"`
	Object  string     `json:"object,omitempty"`
	Message string     `json:"message"`
}

// Key returns the name of what the line is about.
func (l *FlagLine) Key() string {
	return fmt.Sprintf("%s %s %s %s %q", lineFlag, l.Node, l.Reason, l.Object, l.Message)
}

// MappedLine is a claim that takes of a node's own resources, by what the status of pods on it says.
type MappedLine struct {
	present
	Node      string      `json:"node"`
	Namespace string      `json:"namespace"`
	Name      string      `json:"name"`
	Pods      []types.UID `json:"pods"`
}

// Key returns the name of what the line is about.
func (l *MappedLine) Key() string {
	return fmt.Sprintf("%s %s %s/%s", lineMapped, l.Node, l.Namespace, l.Name)
}

// AgentLine is a pod on a node among which a driver's is found.
type AgentLine struct {
	present
	agentState
	Serving bool `json:"serving"`
}

// Key returns the name of what the line is about.
func (l *AgentLine) Key() string { return l.key(lineAgent) }

type agentState struct {
	Node      string            `json:"node"`
	Namespace string            `json:"namespace"`
	Name      string            `json:"name"`
	Labels    map[string]string `json:"labels,omitempty"`
}

func (a *agentState) key(kind string) string {
	return kind + " " + a.Node + " " + a.Namespace + "/" + a.Name
}

// RegressedLine is a pool whose newest generation was taken back while slices of an older one are left: it lends nothing,
// though its devices are listed.
type RegressedLine struct {
	past
	Node   string `json:"node"`
	Driver string `json:"driver"`
	Pool   string `json:"pool"`
}

// Key returns the name of what the line is about.
func (l *RegressedLine) Key() string {
	return fmt.Sprintf("%s %s %s/%s", lineRegressed, l.Node, l.Driver, l.Pool)
}

// NotReadyLine says since when a node is not Ready.
type NotReadyLine struct {
	past
	Node  string    `json:"node"`
	Since time.Time `json:"since"`
}

// Key returns the name of what the line is about.
func (l *NotReadyLine) Key() string { return lineNotReady + " " + l.Node }

// LostLine is a device of a pool that was complete once and is not now, as it was.
type LostLine struct {
	past
	devicePlace
	deviceState
	At time.Time `json:"at,omitzero"`
}

// Key returns the name of what the line is about.
func (l *LostLine) Key() string { return l.key(lineLost) + " of " + l.Slice }

// GoneLine is such a pod that is not there any more.
type GoneLine struct {
	past
	agentState
	// Order is its place among those that are gone, the oldest first.
	Order int       `json:"order"`
	Since time.Time `json:"since,omitzero"`
}

// Key returns the name of what the line is about.
func (l *GoneLine) Key() string { return fmt.Sprintf("%s %d", l.key(lineGone), l.Order) }

// DepartedLine is a node that was deleted.
type DepartedLine struct {
	past
	Node    string `json:"node"`
	Devices int    `json:"devices"`
}

// Key returns the name of what the line is about.
func (l *DepartedLine) Key() string { return lineDeparted + " " + l.Node }

// bytesOf returns a line as it is written, with its end. A line always has a form in JSON: the error of one that had none
// stands in its place.
func bytesOf(l any) []byte {
	data, err := json.Marshal(l)
	if err != nil {
		data = fmt.Appendf(nil, "{\"kind\":\"error\",\"message\":%q}", err.Error())
	}
	return append(data, '\n')
}
