package ledger

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// load makes what runs on a world's cluster, or is about to.
func (w *world) load() {
	jobs := 1 + w.upTo("workloads", 2)
	for i := range jobs {
		name := fmt.Sprintf("w%d", i)
		w.workload(name)
		w.placement(name)
	}
	for i := range w.upTo("pods", 4) {
		w.pod(fmt.Sprintf("p%d", i), jobs)
	}
	for i := range w.upTo("claims", 2) {
		name := fmt.Sprintf("shared-%d", i)
		w.claim(name, func(c *Claim) {
			for _, p := range []types.UID{"p0", "p1"} {
				if w.upTo("reserved for", 1) == 1 {
					c.Pods = append(c.Pods, p)
				}
			}
		})
	}
	for i := range w.upTo("agents", 2) {
		w.versions(func() Observation {
			return seePod(fmt.Sprintf("agent-%d", i), 0, Pod{
				Node: w.nodeName(), Labels: map[string]string{"app": "driver"}, Serving: w.upTo("serving", 1) == 1,
			})
		}, 4)
	}
}

// additions are what pods are given when they are created.
func (w *world) additions() {
	for i := range w.upTo("limit ranges", 2) {
		w.versions(func() Observation {
			return seeLimits(fmt.Sprintf("limits-%d", i), 0, corev1.LimitRangeItem{DefaultRequest: list("memory", fmt.Sprintf("%dGi", 1+w.upTo("default", 2)))})
		}, 3)
	}
	if w.upTo("runtime classes", 1) == 1 {
		w.versions(func() Observation { return seeRuntime("kata", 0, "cpu", fmt.Sprintf("%dm", 100*w.upTo("overhead", 2))) }, 3)
	}
}

func (w *world) nodeName() string { return []string{"a", "b", "c"}[w.upTo("node", 2)] }

func (w *world) anyDevice() DeviceID { return w.ids[w.upTo("device", len(w.ids)-1)] }

// workload is made by a Job; now and then two are made by one.
func (w *world) workload(name string) {
	w.versions(func() Observation {
		o := seeWorkload(name, 0, int64(w.upTo("reserved", 2))*100)
		if name == "w2" && w.rarely("same owner", 3) {
			o.Workload.Owner = "job-w0"
		}
		o.Workload.Requests = map[string]Amounts{
			"main": {"cpu": int64(1000 * (1 + w.upTo("asks", 1))), "pods": 1}, "other": {"cpu": 500, "pods": 1, "example.com/gpu": 1},
		}
		main := corev1.PodSpec{RuntimeClassName: ptr.To("kata"), Containers: containers(corev1.ResourceList{"cpu": *resource.NewMilliQuantity(o.Workload.Requests["main"]["cpu"], resource.DecimalSI)})}
		o.Workload.Templates = map[string]Template{"main": {Spec: &main}}
		return o
	}, 5)
}

func (w *world) placement(workload string) {
	w.versions(func() Observation {
		o := seePlacement(workload, 0, int64(1+w.upTo("promised", 1))*100, w.nodeName(), int32(1+w.upTo("slots", 1)))
		o.Placement.CreatedUnix = int64(w.upTo("created", 2))
		first := &o.Placement.Spec.PodSets[0].Nodes[0]
		first.Requests = []v1alpha1.PlacementRequest{w.promises()}
		if w.upTo("more nodes", 1) == 1 {
			second := v1alpha1.PlacementPodSet{Name: "other", Nodes: []v1alpha1.PlacementNode{{
				Name: w.nodeName(), Slots: 1, Requests: []v1alpha1.PlacementRequest{w.promises()},
			}}}
			o.Placement.Spec.PodSets = append(o.Placement.Spec.PodSets, second)
		}
		return o
	}, 4)
}

func (w *world) promises() v1alpha1.PlacementRequest {
	r := v1alpha1.PlacementRequest{Claim: "gpu", Request: "gpu"}
	if w.rarely("by number", 4) {
		r.Claim, r.Request = v1alpha1.ExtendedResourcesClaim, "example.com/gpu"
	}
	for range w.upTo("promised devices", 2) {
		r.Devices = append(r.Devices, w.anyDevice().String())
	}
	return r
}

// pod is gated, pinned or bound, and has at most one claim of its own and one of several.
func (w *world) pod(name string, jobs int) {
	own := w.upTo("own claim", 2)
	w.versions(func() Observation {
		p := Pod{PodSet: []string{"main", "main", "other"}[w.upTo("podset", 2)], CreatedUnix: int64(w.upTo("created", 3)) * 100}
		if owner := w.upTo("owner", jobs); owner > 0 {
			p.Owner = types.UID(fmt.Sprintf("job-w%d", owner-1))
		}
		if p.Terminating = w.rarely("terminating", 4); p.Terminating {
			p.EndsUnix = noon.Add(time.Minute).Unix() * int64(w.upTo("ends", 1))
		}
		switch w.upTo("where", 3) {
		case 1, 2:
			p.Node = w.nodeName()
		case 3:
			p.Pin = w.nodeName()
		}
		p.Requests = Amounts{"cpu": int64(1000 + 500*w.upTo("asks", 2)), "pods": 1}
		if w.rarely("extended", 4) {
			p.Requests["example.com/gpu"] = 1
		}
		if own > 0 {
			p.Claims, p.Referring = append(p.Claims, name+"-c"), append(p.Referring, 1)
		}
		if w.rarely("shares", 3) {
			p.Claims, p.Referring = append(p.Claims, "shared-0"), append(p.Referring, w.upTo("referring", 2))
		}
		if p.Node != "" && w.upTo("status", 1) == 1 {
			for _, c := range p.Claims {
				p.Mapped = append(p.Mapped, ClaimStatus{Claim: c, Amounts: Amounts{"cpu": 4000}})
				p.Requests.Add(Amounts{"cpu": 4000}, 1)
			}
		}
		return seePod(name, 0, p)
	}, 5)
	if own > 0 {
		w.claim(name+"-c", func(c *Claim) { c.Pod = types.UID(name) })
	}
}

func (w *world) claim(name string, change func(*Claim)) {
	w.versions(func() Observation {
		var c Claim
		switch w.upTo("claim", 5) {
		case 1:
			c.Allocated = []DeviceID{w.anyDevice()}
		case 2:
			c.Promised = []DeviceID{w.anyDevice()}
		case 3:
			c.Promised = []DeviceID{w.anyDevice()}
			c.Allocated = c.Promised
		case 4:
			c.Allocated, c.Admin = []DeviceID{w.anyDevice()}, []DeviceID{w.anyDevice()}
		case 5:
			c.Allocated = []DeviceID{}
			c.Shares = []Share{{Device: w.anyDevice(), ID: types.UID(name + "-share"), Consumed: Consumption{"size": *resource.NewQuantity(int64(1+w.upTo("consumed", 5))<<30, resource.BinarySI)}}}
		}
		if w.upTo("spec", 1) == 1 {
			c.Spec = &resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
				Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1},
			}}}}
		}
		change(&c)
		return seeClaim(name, 0, c)
	}, 4)
}
