package e2e

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/observe"
	"github.com/plimsoll-dev/plimsoll/internal/parts"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// history is every version of all that holds devices, from when it was begun. All kinds are in one etcd, so the order of
// their resourceVersions is the order in which they were written, whatever the order in which they are seen here.
type history struct {
	mu       sync.Mutex
	versions []version
	broken   []string
}

type version struct {
	revision uint64
	gone     bool
	object   client.Object
	// seen is when it came here.
	seen time.Time
}

func holders() []client.ObjectList {
	return []client.ObjectList{&resourcev1.ResourceClaimList{}, &v1alpha1.PlacementList{}, &kueue.WorkloadList{}, &corev1.PodList{}}
}

// history begins one; it is ended when the spec has run.
func (c *cluster) history() *history {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(context.Background())
	DeferCleanup(cancel)
	watcher, err := client.NewWithWatch(c.Admin(), client.Options{Scheme: parts.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	h := &history{}
	for _, list := range holders() {
		w, err := watcher.Watch(ctx, list)
		Expect(err).NotTo(HaveOccurred())
		go func() {
			for e := range w.ResultChan() {
				h.see(e)
			}
			if ctx.Err() == nil {
				h.miss(fmt.Sprintf("the watch of %T ended", list))
			}
		}()
	}
	return h
}

func (h *history) see(e watch.Event) {
	o, ok := e.Object.(client.Object)
	if !ok {
		h.miss(fmt.Sprintf("a watch said %v", e))
		return
	}
	revision, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		h.miss(err.Error())
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.versions = append(h.versions, version{revision, e.Type == watch.Deleted, o, time.Now()})
}

func (h *history) miss(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.broken = append(h.broken, what)
}

// expectNothingDoubled waits until the history has come to what is there now, and holds every moment of it against the
// rule that a device is one holder's: no two claims have it allocated, no two live Placements promise it, and no claim of
// one Workload has it allocated that a live Placement promises to another, but for the claim of a pod that is ending while
// the Placement says that it is not there yet.
func (c *cluster) expectNothingDoubled(ctx context.Context, h *history) {
	GinkgoHelper()
	for _, list := range holders() {
		Expect(c.List(ctx, list)).To(Succeed())
		Expect(meta.EachListItem(list, func(o runtime.Object) error {
			have := o.(client.Object)
			Eventually(func() bool { return h.has(have) }).Should(BeTrue(), "%T %s/%s", have, have.GetNamespace(), have.GetName())
			return nil
		})).To(Succeed())
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	Expect(h.broken).To(BeEmpty())
	slices.SortStableFunc(h.versions, func(a, b version) int { return cmp.Compare(a.revision, b.revision) })
	Expect(doubled(h.versions)).To(BeEmpty())
}

func (h *history) has(o client.Object) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.versions, func(v version) bool {
		return v.object.GetUID() == o.GetUID() && v.object.GetResourceVersion() == o.GetResourceVersion()
	})
}

// each goes over the versions of one kind in the order in which they were written, with when each was seen.
func each[T client.Object](h *history, see func(o T, gone bool, seen time.Time)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	slices.SortStableFunc(h.versions, func(a, b version) int { return cmp.Compare(a.revision, b.revision) })
	for _, v := range h.versions {
		if o, ok := v.object.(T); ok {
			see(o, v.gone, v.seen)
		}
	}
}

// moment is what was stored at one revision.
type moment struct {
	claims     map[types.UID]*resourcev1.ResourceClaim
	placements map[types.UID]*v1alpha1.Placement
	workloads  map[types.UID]*kueue.Workload
	pods       map[types.UID]*corev1.Pod
}

// doubled returns what was held twice in a history that is sorted by revision.
func doubled(versions []version) []string {
	m := moment{
		claims: map[types.UID]*resourcev1.ResourceClaim{}, placements: map[types.UID]*v1alpha1.Placement{},
		workloads: map[types.UID]*kueue.Workload{}, pods: map[types.UID]*corev1.Pod{},
	}
	var out []string
	for _, v := range versions {
		switch o := v.object.(type) {
		case *resourcev1.ResourceClaim:
			set(m.claims, o.UID, o, v.gone)
		case *v1alpha1.Placement:
			set(m.placements, o.UID, o, v.gone)
		case *kueue.Workload:
			set(m.workloads, o.UID, o, v.gone)
		case *corev1.Pod:
			set(m.pods, o.UID, o, false) // a claim may outlive its pod
		}
		for _, what := range m.doubled() {
			if !slices.Contains(out, what) {
				out = append(out, what)
			}
		}
	}
	return out
}

func set[T any](of map[types.UID]*T, uid types.UID, o *T, gone bool) {
	if gone {
		delete(of, uid)
		return
	}
	of[uid] = o
}

func (m *moment) doubled() []string {
	var out []string
	claimed, promised := map[string]*resourcev1.ResourceClaim{}, map[string]*v1alpha1.Placement{}
	for _, claim := range m.claims {
		for _, d := range allocatedTo(claim) {
			if other := claimed[d]; other != nil {
				out = append(out, pair(d, "claim "+claim.Name, "claim "+other.Name))
			}
			claimed[d] = claim
		}
	}
	for _, p := range m.placements {
		if !m.live(p) {
			continue
		}
		_, devices := promisedOn(p)
		for _, d := range slices.Concat(slices.Collect(maps.Values(devices))...) {
			if other := promised[d]; other != nil {
				out = append(out, pair(d, "Placement "+p.Name, "Placement "+other.Name))
			}
			promised[d] = p
			if claim := claimed[d]; claim != nil && m.workloadOf(claim) != p.Namespace+"/"+p.Name && !m.onItsWay(p, claim) {
				out = append(out, pair(d, "Placement "+p.Name, "claim "+claim.Name))
			}
		}
	}
	return out
}

func pair(device, a, b string) string {
	names := []string{a, b}
	slices.Sort(names)
	return device + ": " + strings.Join(names, " and ")
}

// live says whether a Placement is one that counts (DESIGN §3).
func (m *moment) live(p *v1alpha1.Placement) bool {
	if p.Spec.Key == nil {
		return false
	}
	wl := m.workloads[p.Spec.Key.WorkloadUID]
	if wl == nil {
		return false
	}
	key, err := admission.KeyOf(wl)
	return err == nil && key != nil && ledger.SameKey(p.Spec.Key, key)
}

// onItsWay says whether a Placement that says itself not to be complete waits for what a claim holds, whose pod is ending.
func (m *moment) onItsWay(p *v1alpha1.Placement, claim *resourcev1.ResourceClaim) bool {
	pod := m.pods[observe.ControllerOf(claim)]
	return pod != nil && pod.DeletionTimestamp != nil && !meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.PlacementReserved)
}

// workloadOf names the Workload of the pod that owns a claim, as Kueue wrote it on the pod.
func (m *moment) workloadOf(claim *resourcev1.ResourceClaim) string {
	pod := m.pods[observe.ControllerOf(claim)]
	if pod == nil {
		return ""
	}
	return pod.Namespace + "/" + pod.Annotations["kueue.x-k8s.io/workload"]
}

func allocatedTo(claim *resourcev1.ResourceClaim) []string {
	if claim.Status.Allocation == nil {
		return nil
	}
	var out []string
	for _, r := range claim.Status.Allocation.Devices.Results {
		out = append(out, ledger.DeviceID{Driver: r.Driver, Pool: r.Pool, Device: r.Device}.String())
	}
	return out
}

var _ = Describe("The history of holders", func() {
	claim := func(name, device string) *resourcev1.ResourceClaim {
		c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
		if device != "" {
			c.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
				Results: []resourcev1.DeviceRequestAllocationResult{{Driver: "d", Pool: "p", Device: device}}}}
		}
		return c
	}
	workload := func(name string) (*kueue.Workload, *v1alpha1.Placement) {
		wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
		wl.Status.Admission = &kueue.Admission{ClusterQueue: "q"}
		meta.SetStatusCondition(&wl.Status.Conditions, metav1.Condition{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue, Reason: "QuotaReserved"})
		key, err := admission.KeyOf(wl)
		Expect(err).NotTo(HaveOccurred())
		p := &v1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("placement of " + name)}}
		p.Spec.Key = key
		p.Spec.PodSets = []v1alpha1.PlacementPodSet{{Name: "main", Nodes: []v1alpha1.PlacementNode{{Name: "n", Slots: 1,
			Requests: []v1alpha1.PlacementRequest{{Claim: "gpu", Request: "gpu", Devices: []string{"d/p/0"}}}}}}}
		return wl, p
	}
	at := func(objects ...client.Object) []version {
		var out []version
		for i, o := range objects {
			out = append(out, version{revision: uint64(i), object: o}) //nolint:gosec // small
		}
		return out
	}

	It("shows a device that two claims had for one moment", func() {
		Expect(doubled(at(claim("a", "0"), claim("b", "0"), claim("a", "")))).To(Equal([]string{"d/p/0: claim a and claim b"}))
		Expect(doubled(at(claim("a", "0"), claim("a", ""), claim("b", "0")))).To(BeEmpty())
	})

	It("shows a device that two live Placements promised, and one that a Placement promised and another's claim had", func() {
		a, pa := workload("a")
		b, pb := workload("b")
		Expect(doubled(at(a, pa, b, pb))).To(Equal([]string{"d/p/0: Placement a and Placement b"}))
		Expect(doubled(at(a, pa, claim("c", "0")))).To(Equal([]string{"d/p/0: Placement a and claim c"}))
		evicted := a.DeepCopy()
		meta.SetStatusCondition(&evicted.Status.Conditions, metav1.Condition{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: "Deactivated"})
		Expect(doubled(at(a, pa, evicted, b, pb))).To(BeEmpty())
	})

	It("lets a Placement wait for what the claim of an ending pod has, until it says that all is there", func() {
		a, pa := workload("a")
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p"}}
		ending := pod.DeepCopy()
		ending.DeletionTimestamp = &metav1.Time{}
		held := claim("c", "0")
		Expect(controllerutil.SetControllerReference(pod, held, clientgoscheme.Scheme)).To(Succeed())
		there := pa.DeepCopy()
		meta.SetStatusCondition(&there.Status.Conditions, metav1.Condition{Type: v1alpha1.PlacementReserved, Status: metav1.ConditionTrue, Reason: "Promised"})
		Expect(doubled(at(pod, held, ending, a, pa))).To(BeEmpty())
		Expect(doubled(at(pod, held, a, pa))).To(Equal([]string{"d/p/0: Placement a and claim c"}))
		Expect(doubled(at(pod, held, ending, a, there))).To(Equal([]string{"d/p/0: Placement a and claim c"}))
	})
})
