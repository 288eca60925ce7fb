package lab

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Release is a release of Kubernetes whose API server, controller manager and scheduler a lab runs. The rest of a lab is the same
// with each.
type Release string

// The releases.
const (
	// Current is 1.36.3, whose libraries Plimsoll is built with.
	Current Release = ""
	// Next is 1.37.2.
	Next Release = "next"
)

// featureGates are the device features that Plimsoll reads, for every Kubernetes component. In 1.36 the ones for node
// allocatable resources, taint rules and list attributes are off by default; the others are named so that a change of
// default shows.
var featureGates = map[string]bool{
	"DRANodeAllocatableResources": true,
	"DRADeviceTaintRules":         true,
	"DRADeviceTaints":             true,
	"DRAPartitionableDevices":     true,
	"DRAConsumableCapacity":       true,
	"DRAExtendedResource":         true,
	"DRAPrioritizedList":          true,
	"DRAListTypeAttributes":       true,
}

// nextGates are what is otherwise in 1.37. There the gate for node allocatable resources alone is off by default of those that
// Plimsoll reads; that for list attributes is too, and has the scheduler use another allocator than it does by default.
var nextGates = map[string]bool{
	"DRAListTypeAttributes": false,
}

// nextAPIGates are those of the API server of 1.37 alone. It then stores what the scheduler has no eye for by default.
var nextAPIGates = map[string]bool{
	"DRADeviceCompatibilityGroups": true,
}

// gates returns the feature gates of a component.
func (r Release) gates(component string) map[string]bool {
	gates := maps.Clone(featureGates)
	if r == Next {
		maps.Copy(gates, nextGates)
		if component == APIServer {
			maps.Copy(gates, nextAPIGates)
		}
	}
	return gates
}

// controllers are those that the controller manager runs: all but those of clouds, which 1.37 has no more.
func (r Release) controllers() string {
	if r == Next {
		return "*"
	}
	return "*,-cloud-node-lifecycle-controller,-service-lb-controller,-node-route-controller"
}

func formatGates(gates map[string]bool) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		list = append(list, name+"="+strconv.FormatBool(gates[name]))
	}
	return strings.Join(list, ",")
}

// folder is where in bin/ a component's binary lies.
func (r Release) folder(component string) string {
	if r == Next && slices.Contains(nextKubernetes.binaries, component) {
		return nextKubernetes.folder
	}
	return ""
}

// pinned returns the components to build for a lab of the release.
func (r Release) pinned() ([]component, error) {
	switch r {
	case Current:
		return pinned, nil
	case Next:
		return append(slices.Clone(pinned), nextKubernetes), nil
	}
	return nil, fmt.Errorf("there is no release %q of Kubernetes to run", string(r))
}
