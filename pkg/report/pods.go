package report

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// PodSetLabel is Kueue's label that names a pod's podset.
const PodSetLabel = "kueue.x-k8s.io/podset"

// AssignedFlavor returns the flavor of quota (or of cpu, where the podset is not charged for devices) that Kueue
// assigned to a podset; "" where it assigned neither.
func AssignedFlavor(a *kueue.PodSetAssignment, quota corev1.ResourceName) string {
	if f, ok := a.Flavors[quota]; ok {
		return string(f)
	}
	return string(a.Flavors[corev1.ResourceCPU])
}

// pods returns the places of the last admission: the promise while there is one, else where the pods are.
func (in *Input) pods() []Pod {
	places := in.promised()
	if places == nil {
		places = in.placed()
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.PodSet, b.PodSet), cmp.Compare(a.Node, b.Node), cmp.Compare(a.slot, b.slot), cmp.Compare(a.pod, b.pod))
	})
	out := make([]Pod, 0, len(places))
	for i, p := range places {
		if i > 0 && p.PodSet == out[i-1].PodSet {
			p.Index = out[i-1].Index + 1
		}
		out = append(out, p.Pod)
	}
	return out
}

// place is a Pod with what it is sorted by.
type place struct {
	Pod
	slot int
	pod  string
}

// promised returns the slots of a live Placement, or nil without one.
func (in *Input) promised() []place {
	if in.Placement == nil || in.Placement.Spec.Key == nil || in.Placement.Spec.Key.WorkloadUID != in.Workload.UID {
		return nil
	}
	places := []place{}
	for i := range in.Placement.Spec.PodSets {
		ps := &in.Placement.Spec.PodSets[i]
		for j := range ps.Nodes {
			for slot := range int(ps.Nodes[j].Slots) {
				p := Pod{PodSet: ps.Name, Node: ps.Nodes[j].Name, Devices: SlotDevices(&ps.Nodes[j], slot)}
				places = append(places, place{Pod: p, slot: slot})
			}
		}
	}
	return places
}

// SlotDevices returns the devices of slot i on a node, sorted: of each request's, the i-th of as many equal parts as
// there are slots.
func SlotDevices(n *v1alpha1.PlacementNode, i int) []string {
	devices := []string{}
	for _, r := range n.Requests {
		per := len(r.Devices) / max(1, int(n.Slots))
		devices = append(devices, r.Devices[i*per:(i+1)*per]...)
	}
	slices.Sort(devices)
	return devices
}

// placed returns where the pods were bound, each slot once: the last pod that had it.
func (in *Input) placed() []place {
	type slotKey struct{ podSet, slot string }
	last := map[slotKey]*corev1.Pod{}
	for i := range in.Pods {
		pod := &in.Pods[i]
		if pod.Spec.NodeName == "" {
			continue
		}
		key := slotKey{pod.Labels[PodSetLabel], in.slotOf(pod)}
		if before, ok := last[key]; !ok || newer(pod, before) {
			last[key] = pod
		}
	}
	places := []place{}
	for key, pod := range last {
		p := place{Pod: Pod{PodSet: key.podSet, Node: pod.Spec.NodeName, Devices: in.devicesOf(pod)}, pod: pod.Name}
		parts := strings.Split(key.slot, "/")
		p.slot, _ = strconv.Atoi(parts[len(parts)-1]) // 0 for a pod without a slot: they go by name
		places = append(places, p)
	}
	return places
}

// slotOf returns what tells the pods of a podset apart over retries: the slot that its template names, else its
// completion index, else its name.
func (in *Input) slotOf(pod *corev1.Pod) string {
	for _, t := range in.templatesOf(pod) {
		if slot := t.Annotations[v1alpha1.SlotAnnotation]; slot != "" {
			return slot
		}
	}
	if index, ok := pod.Labels[batchv1.JobCompletionIndexAnnotation]; ok {
		return index
	}
	return pod.Name
}

// devicesOf returns the devices that a pod's claims were cut to, or were given where nobody cut them, sorted.
func (in *Input) devicesOf(pod *corev1.Pod) []string {
	devices := []string{}
	for _, t := range in.templatesOf(pod) {
		for _, id := range strings.Split(t.Annotations[v1alpha1.DevicesAnnotation], ",") {
			if id != "" {
				devices = append(devices, id)
			}
		}
	}
	if len(devices) == 0 {
		devices = in.allocated(pod)
	}
	slices.Sort(devices)
	return devices
}

// allocated returns the devices of a pod's claims that were read.
func (in *Input) allocated(pod *corev1.Pod) []string {
	devices := []string{}
	for i := range in.Claims {
		c := &in.Claims[i]
		if ref := metav1.GetControllerOf(c); ref == nil || ref.UID != pod.UID || c.Status.Allocation == nil {
			continue
		}
		for _, r := range c.Status.Allocation.Devices.Results {
			devices = append(devices, r.Driver+"/"+r.Pool+"/"+r.Device)
		}
	}
	return devices
}

// templatesOf returns the claim templates of a pod that were made for it. An owner that is somebody else's pod makes a
// template that only looks so.
func (in *Input) templatesOf(pod *corev1.Pod) []*resourcev1.ResourceClaimTemplate {
	var out []*resourcev1.ResourceClaimTemplate
	for i := range in.Templates {
		t := &in.Templates[i]
		ref := metav1.GetControllerOf(t)
		if ref == nil || ref.UID != pod.UID {
			continue
		}
		for j := range pod.Spec.ResourceClaims {
			if name := pod.Spec.ResourceClaims[j].ResourceClaimTemplateName; name != nil && *name == t.Name {
				out = append(out, t)
			}
		}
	}
	return out
}

func newer(a, b *corev1.Pod) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.After(b.CreationTimestamp.Time)
	}
	return a.Name > b.Name
}
