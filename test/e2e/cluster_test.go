package e2e

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/observe"
	"github.com/plimsoll-dev/plimsoll/internal/parts"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
	"github.com/plimsoll-dev/plimsoll/test/lab"
)

// The sample cluster: four H100 nodes (h100-0 … h100-3) and two A100 nodes (a100-0, a100-1) of eight devices each, two L4
// nodes of four (l4-0, l4-1), and mixed-0 with four H100 and four A100; tenants team-a and team-b, each with a LocalQueue.
const (
	teamA = "team-a"
	teamB = "team-b"
	queue = "gpus"
	check = "plimsoll"
)

// cluster is a lab with the sample cluster, and an administrator's client for it.
type cluster struct {
	*lab.Lab
	client.Client
}

// startCluster returns a lab with the sample cluster, as new, for the specs of one container.
func startCluster(ctx context.Context) *cluster {
	GinkgoHelper()
	c := takeOver(ctx)
	if c == nil {
		l, err := lab.Start(ctx, lab.Options{Out: GinkgoWriter, Release: release(), Manager: true, Plimsoll: true})
		Expect(err).NotTo(HaveOccurred())
		c = &cluster{Lab: l, Client: clientFor(l.Admin())}
		left = &estate{cluster: c, spoilt: true}
		Expect(l.Apply(ctx, "../../examples/queues", "../../examples/cluster")).To(Succeed())
		c.expectActive(ctx)
		leave(ctx, c)
	}
	c.expectActive(ctx)
	return c
}

// expectActive waits until the queues are at work.
func (c *cluster) expectActive(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		for _, name := range []string{teamA, teamB} {
			cq := &kueue.ClusterQueue{}
			g.Expect(c.Get(ctx, client.ObjectKey{Name: name}, cq)).To(Succeed())
			g.Expect(meta.IsStatusConditionTrue(cq.Status.Conditions, kueue.ClusterQueueActive)).To(BeTrue())
		}
	}).WithTimeout(late).Should(Succeed())
	c.expectFree(ctx)
}

func clientFor(cfg *rest.Config) client.Client {
	GinkgoHelper()
	c, err := client.New(cfg, client.Options{Scheme: parts.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	return c
}

// job describes a Job; the zero value asks for one pod without devices that runs until it is deleted.
type job struct {
	namespace, name string
	// pods run at once; completions are as many.
	pods int32
	// gpus each pod asks for, by a template of the Job's name.
	gpus int64
	// product, if set, is a part of the productName that the claim selects.
	product string
	// runSeconds ends each pod after so long; 0 lets it run.
	runSeconds int
	// change, if set, has the last word.
	change func(*batchv1.Job)
}

// template returns the Job's claim template; nil for a Job without devices.
func (j job) template() *resourcev1.ResourceClaimTemplate {
	if j.gpus == 0 {
		return nil
	}
	exactly := &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu.nvidia.com", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: j.gpus}
	if j.product != "" {
		exactly.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
			Expression: fmt.Sprintf(`device.attributes["gpu.nvidia.com"].productName.contains(%q)`, j.product)}}}
	}
	return &resourcev1.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: j.namespace, Name: j.name},
		Spec: resourcev1.ResourceClaimTemplateSpec{Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
			Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: exactly}}}}},
	}
}

func (j job) object() *batchv1.Job {
	pods := max(j.pods, 1)
	out := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: j.namespace, Name: j.name, Labels: map[string]string{"kueue.x-k8s.io/queue-name": queue}},
		Spec: batchv1.JobSpec{
			Suspend: ptr.To(true), Parallelism: &pods, Completions: &pods, CompletionMode: ptr.To(batchv1.IndexedCompletion),
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever,
				Containers: []corev1.Container{{Name: "main", Image: "training", Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")}}}},
			}},
		},
	}
	if j.runSeconds > 0 {
		out.Spec.Template.Annotations = map[string]string{lab.RunSecondsAnnotation: strconv.Itoa(j.runSeconds)}
	}
	if j.gpus > 0 {
		spec := &out.Spec.Template.Spec
		spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: ptr.To(j.name)}}
		spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
	}
	if j.change != nil {
		j.change(out)
	}
	return out
}

// submit creates a Job and its template.
func (c *cluster) submit(ctx context.Context, j job) *batchv1.Job {
	GinkgoHelper()
	if t := j.template(); t != nil {
		Expect(c.Create(ctx, t)).To(Succeed())
	}
	out := j.object()
	Expect(c.Create(ctx, out)).To(Succeed())
	return out
}

// remove deletes a Job, its pods and its template, and waits until the pods and claims are gone.
func (c *cluster) remove(ctx context.Context, j job) {
	GinkgoHelper()
	Expect(client.IgnoreNotFound(c.Delete(ctx, j.object(), client.PropagationPolicy(metav1.DeletePropagationBackground)))).To(Succeed())
	if t := j.template(); t != nil {
		Expect(client.IgnoreNotFound(c.Delete(ctx, t))).To(Succeed())
	}
	Eventually(func(g Gomega) {
		g.Expect(c.podsOf(ctx, j)).To(BeEmpty())
		claims := &resourcev1.ResourceClaimList{}
		g.Expect(c.List(ctx, claims, client.InNamespace(j.namespace))).To(Succeed())
		for i := range claims.Items {
			g.Expect(claims.Items[i].Name).NotTo(HavePrefix(j.name + "-"))
		}
	}).Should(Succeed())
}

// workload returns the Workload of a Job; nil while there is none.
func (c *cluster) workload(ctx context.Context, j job) *kueue.Workload {
	GinkgoHelper()
	list := &kueue.WorkloadList{}
	Expect(c.List(ctx, list, client.InNamespace(j.namespace))).To(Succeed())
	for i := range list.Items {
		if ref := metav1.GetControllerOf(&list.Items[i]); ref != nil && ref.Kind == "Job" && ref.Name == j.name {
			return &list.Items[i]
		}
	}
	return nil
}

// placement returns the Placement of a Job's Workload; nil while there is none.
func (c *cluster) placement(ctx context.Context, j job) *v1alpha1.Placement {
	GinkgoHelper()
	wl := c.workload(ctx, j)
	if wl == nil {
		return nil
	}
	p := &v1alpha1.Placement{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(wl), p); err != nil {
		Expect(client.IgnoreNotFound(err)).To(Succeed())
		return nil
	}
	return p
}

// podsOf returns a Job's pods in order of completion index and creation.
func (c *cluster) podsOf(ctx context.Context, j job) []corev1.Pod {
	GinkgoHelper()
	list := &corev1.PodList{}
	Expect(c.List(ctx, list, client.InNamespace(j.namespace), client.MatchingLabels{batchv1.JobNameLabel: j.name})).To(Succeed())
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return list.Items
}

// bound waits until all pods of a Job are bound, and returns them.
func (c *cluster) bound(ctx context.Context, j job) []corev1.Pod {
	GinkgoHelper()
	var pods []corev1.Pod
	Eventually(func(g Gomega) {
		pods = c.podsOf(ctx, j)
		g.Expect(pods).To(HaveLen(int(max(j.pods, 1))))
		for i := range pods {
			g.Expect(pods[i].Spec.NodeName).NotTo(BeEmpty())
		}
	}).WithTimeout(late).Should(Succeed(), func() string { return c.story(ctx, j) })
	return pods
}

// end makes a running pod succeed.
func (c *cluster) end(ctx context.Context, p *corev1.Pod) {
	GinkgoHelper()
	patch := client.MergeFrom(p.DeepCopy())
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[lab.RunSecondsAnnotation] = "0"
	Expect(c.Patch(ctx, p, patch)).To(Succeed())
}

// finished waits until a Job has completed.
func (c *cluster) finished(ctx context.Context, j job) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		have := &batchv1.Job{}
		g.Expect(c.Get(ctx, client.ObjectKeyFromObject(j.object()), have)).To(Succeed())
		g.Expect(have.Status.CompletionTime).NotTo(BeNil())
	}).WithTimeout(late).Should(Succeed(), func() string { return c.story(ctx, j) })
}

// devicesOf returns the devices that a pod's claims have allocated, sorted.
func (c *cluster) devicesOf(ctx context.Context, p *corev1.Pod) []string {
	GinkgoHelper()
	var out []string
	for _, s := range p.Status.ResourceClaimStatuses {
		claim := &resourcev1.ResourceClaim{}
		Expect(c.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: *s.ResourceClaimName}, claim)).To(Succeed())
		Expect(claim.Status.Allocation).NotTo(BeNil())
		for _, r := range claim.Status.Allocation.Devices.Results {
			out = append(out, ledger.DeviceID{Driver: r.Driver, Pool: r.Pool, Device: r.Device}.String())
		}
	}
	slices.Sort(out)
	return out
}

// promisedOn returns, by node, the slots and the devices that a Placement promises.
func promisedOn(p *v1alpha1.Placement) (slots map[string]int32, devices map[string][]string) {
	slots, devices = map[string]int32{}, map[string][]string{}
	for _, ps := range p.Spec.PodSets {
		for _, n := range ps.Nodes {
			slots[n.Name] += n.Slots
			for _, r := range n.Requests {
				devices[n.Name] = append(devices[n.Name], r.Devices...)
			}
		}
	}
	for _, d := range devices {
		slices.Sort(d)
	}
	return slots, devices
}

// expectAsPromised holds every pod's node and devices against the Placement: each device of each node exactly once.
func (c *cluster) expectAsPromised(ctx context.Context, j job, pods []corev1.Pod) {
	GinkgoHelper()
	slots, devices := promisedOn(c.placement(ctx, j))
	gotSlots, gotDevices := map[string]int32{}, map[string][]string{}
	for i := range pods {
		gotSlots[pods[i].Spec.NodeName]++
		gotDevices[pods[i].Spec.NodeName] = append(gotDevices[pods[i].Spec.NodeName], c.devicesOf(ctx, &pods[i])...)
	}
	for _, d := range gotDevices {
		slices.Sort(d)
	}
	Expect(gotSlots).To(Equal(slots))
	Expect(gotDevices).To(Equal(devices))
}

// usage returns how much of the quota for gpus a ClusterQueue has in use, over all flavors.
func (c *cluster) usage(ctx context.Context, name string) int64 {
	GinkgoHelper()
	cq := &kueue.ClusterQueue{}
	Expect(c.Get(ctx, client.ObjectKey{Name: name}, cq)).To(Succeed())
	var sum int64
	for _, f := range cq.Status.FlavorsReservation {
		for _, r := range f.Resources {
			if r.Name == "gpus" {
				sum += r.Total.Value()
			}
		}
	}
	return sum
}

// book rebuilds the ledger from what the API server holds, as a manager does when it starts.
func (c *cluster) book(ctx context.Context) *ledger.Snapshot {
	GinkgoHelper()
	b := ledger.New()
	for _, list := range []client.ObjectList{
		&corev1.NodeList{}, &corev1.PodList{}, &resourcev1.ResourceSliceList{}, &resourcev1.ResourceClaimList{},
		&resourcev1.DeviceClassList{}, &v1alpha1.PlacementList{}, &kueue.WorkloadList{},
	} {
		Expect(c.List(ctx, list)).To(Succeed())
		Expect(meta.EachListItem(list, func(o runtime.Object) error {
			observation, ok := observe.Of(o.(metav1.Object), false)
			Expect(ok).To(BeTrue())
			b.Apply(observation)
			return nil
		})).To(Succeed())
	}
	return b.Snapshot()
}

// held returns the ids of all devices that somebody holds, sorted.
func held(s *ledger.Snapshot) []string {
	out := []string{}
	for _, n := range s.Nodes() {
		for i := range n.Devices {
			if !n.Devices[i].Free() {
				out = append(out, n.Devices[i].ID.String())
			}
		}
	}
	return out
}

// expectFree waits until no quota for devices is in use and no device is held.
func (c *cluster) expectFree(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(c.usage(ctx, teamA) + c.usage(ctx, teamB)).To(BeZero())
		g.Expect(held(c.book(ctx))).To(BeEmpty())
	}).WithTimeout(late).Should(Succeed())
}

// events returns what the events about an object say, oldest first.
func (c *cluster) events(ctx context.Context, namespace, kind, name string) []string {
	GinkgoHelper()
	list := &corev1.EventList{}
	Expect(c.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
	slices.SortFunc(list.Items, func(a, b corev1.Event) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	var out []string
	for _, e := range list.Items {
		if e.InvolvedObject.Kind == kind && e.InvolvedObject.Name == name {
			out = append(out, e.Reason+": "+e.Message)
		}
	}
	return out
}

// story tells what is known about a Job, for a failed expectation.
func (c *cluster) story(ctx context.Context, j job) string {
	var b strings.Builder
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if wl := c.workload(ctx, j); wl != nil {
		fmt.Fprintf(&b, "Workload %s: annotations %v, status %+v\n", wl.Name, wl.Annotations, wl.Status)
	}
	if p := c.placement(ctx, j); p != nil {
		fmt.Fprintf(&b, "Placement: spec %+v, record %+v\n", p.Spec, p.Status.Record)
	}
	for _, p := range c.podsOf(ctx, j) {
		fmt.Fprintf(&b, "Pod %s: gates %v, node %q, claims %v, events %q\n", p.Name, p.Spec.SchedulingGates, p.Spec.NodeName,
			p.Status.ResourceClaimStatuses, c.events(ctx, p.Namespace, "Pod", p.Name))
	}
	return b.String()
}
