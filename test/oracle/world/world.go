// Package world is what the two sides of the oracle say to each other: a cluster with a pod that is to go to one of its nodes,
// and what came of it. It knows of neither side, since what each is made of cannot be in one process: Kueue and kube-scheduler
// both register the feature gates that they read, each with a history of its own.
package world

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ExtendedResources is the name by which the claim goes that kube-scheduler makes for a pod's extended resources.
const ExtendedResources = "extended-resources"

// World is what an API server holds, and a pod that is to go to one of its nodes.
type World struct {
	Nodes      []*corev1.Node
	Slices     []*resourcev1.ResourceSlice
	Classes    []*resourcev1.DeviceClass
	TaintRules []*resourcev1beta2.DeviceTaintRule
	Claims     []*resourcev1.ResourceClaim
	// Pods are all but the one that is asked about.
	Pods []*corev1.Pod
	// Pod is the one, Node where it is to go: its affinity allows no other. Pod is nil where a gang is asked about.
	Pod  *corev1.Pod
	Node string
	// Gang are pods that are to be bound one after another, each to where its node selector says.
	Gang []*corev1.Pod
}

// Objects returns all that the world holds but the pod that is asked about.
func (w *World) Objects() []metav1.Object {
	var out []metav1.Object
	out = add(out, w.Nodes)
	out = add(out, w.Slices)
	out = add(out, w.Classes)
	out = add(out, w.TaintRules)
	out = add(out, w.Claims)
	return add(out, w.Pods)
}

func add[T metav1.Object](list []metav1.Object, more []T) []metav1.Object {
	for _, o := range more {
		list = append(list, o)
	}
	return list
}

// Answer is what came of the pod.
type Answer struct {
	Fits bool
	// Why says why it does not fit, in the words of whoever answered.
	Why string
	// Devices are what its claims were given, by claim, one a string, in order; claims that were allocated before are left out.
	// Nil where it does not fit.
	Devices map[string][]string
	// Mapped is what its claims take of the node's own resources, in thousandths for cpu. Nil for nothing, or where it does not
	// fit.
	Mapped map[corev1.ResourceName]int64
	// Unsure is true for a prediction that kube-scheduler may come to another answer each time; Fits is true where each is.
	Unsure bool
	// Quirk says where kube-scheduler counts otherwise than it is, of a prediction.
	Quirk string
	// Gang is what came of each pod of a gang, up to the first that does not fit.
	Gang []Answer
	// Node is where a pod of a gang was bound.
	Node string
	// Error is what kept the question from being answered; empty where it was.
	Error string
}

// Given writes an allocation down, without what is made up for it, such as the ids of shares.
func Given(a *resourcev1.AllocationResult) []string {
	out := []string{}
	for _, r := range a.Devices.Results {
		s := r.Request + " " + r.Driver + "/" + r.Pool + "/" + r.Device
		if r.AdminAccess != nil && *r.AdminAccess {
			s += " admin"
		}
		if r.ShareID != nil {
			s += " shared"
		}
		for _, name := range slices.Sorted(maps.Keys(r.ConsumedCapacity)) {
			q := r.ConsumedCapacity[name]
			s += fmt.Sprintf(" %s=%s", name, q.AsDec())
		}
		out = append(out, s)
	}
	return out
}

// Amounts returns quantities as whole numbers, rounded up, cpu in thousandths, without zeros; nil for none.
func Amounts(list map[corev1.ResourceName]resource.Quantity) map[corev1.ResourceName]int64 {
	var out map[corev1.ResourceName]int64
	for name, q := range list {
		n := q.Value()
		if name == corev1.ResourceCPU {
			n = q.MilliValue()
		}
		if n == 0 {
			continue
		}
		if out == nil {
			out = map[corev1.ResourceName]int64{}
		}
		out[name] = n
	}
	return out
}

// String returns the world as JSON.
func (w *World) String() string {
	data, err := json.MarshalIndent(w, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(data)
}
