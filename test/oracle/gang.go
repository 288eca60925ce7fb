package oracle

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/constants"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/observe"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
	"github.com/plimsoll-dev/plimsoll/test/oracle/world"
)

const podSet = "main"

// slot is one pod of a gang with what it was promised.
type slot struct {
	name   string
	pod    *corev1.Pod
	claims []*resourcev1.ResourceClaim
	node   *ledger.Node
	dealt  []admission.Dealt
}

// decided is what came of a gang.
type decided struct {
	policy  *flavors.Policy
	podSets []v1alpha1.PlacementPodSet
	slots   []*slot
	// why says why it was not placed; empty where it was.
	why string
}

// decide has admission place a gang in a world, as the manager does, and returns its pods, each as it is released, in the order in
// which they may be.
func decide(ctx context.Context, w *world.World, g *world.Gang) (*decided, error) {
	decider := &admission.Decider{Matcher: flavors.NewMatcher()} // it remembers slices by uid and version, which worlds share
	book, err := bookOf(w)
	if err != nil {
		return nil, err
	}
	policy, err := policyOf(g)
	if err != nil {
		return nil, err
	}
	templates := map[string]*resourcev1.ResourceClaimTemplate{}
	for _, t := range g.Claims {
		templates[t.Name] = t
	}
	shape, no := flavors.ShapeOf(&g.Spec, func(name string) *resourcev1.ResourceClaimTemplate { return templates[name] })
	if no != nil {
		return &decided{why: fmt.Sprintf("%s: %s", no.Reason, no.Message)}, nil
	}
	snapshot := book.Snapshot()
	dec := decider.Decide(ctx, snapshot, &admission.Request{
		Now: time.Unix(1_800_003_000, 0), Policy: policy, Namespace: g.Tenant,
		PodSets: []admission.PodSet{{Name: podSet, Count: g.Count, Spec: &g.Spec, Shape: shape, Requests: ledger.RequestsOf(&corev1.Pod{Spec: g.Spec}, false)}},
	})
	out := &decided{policy: policy, podSets: dec.PodSets}
	if dec.Verdict != v1alpha1.VerdictAdmit {
		out.why = fmt.Sprintf("%s: %s", dec.Reason, dec.Message)
		return out, nil
	}
	for i := range dec.PodSets[0].Nodes {
		pn := &dec.PodSets[0].Nodes[i]
		slots, err := admission.Deal(pn)
		if err != nil {
			return nil, fmt.Errorf("gang: %w", err)
		}
		for _, dealt := range slots {
			s := &slot{name: fmt.Sprintf("gang-%d", len(out.slots)), node: snapshot.Node(pn.Name), dealt: dealt}
			if err := s.release(decider.Matcher, g, shape, policy, policy.Flavor(dec.PodSets[0].Flavor)); err != nil {
				return nil, err
			}
			out.slots = append(out.slots, s)
		}
	}
	return out, nil
}

// release makes the pod of the slot, as the manager releases it, with its claims.
func (s *slot) release(m *flavors.Matcher, g *world.Gang, shape flavors.Shape, policy *flavors.Policy, flavor int) error {
	name := s.name
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: g.Tenant, Name: name, UID: types.UID(name), ResourceVersion: "9", CreationTimestamp: metav1.Unix(1_800_002_000, 0),
		Labels:          map[string]string{v1alpha1.ManagedLabel: "true", constants.PodSetLabel: podSet},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "gang", UID: "job", Controller: ptr.To(true)}},
	}}
	pod.Spec = *g.Spec.DeepCopy()
	if pod.Spec.NodeSelector == nil {
		pod.Spec.NodeSelector = map[string]string{}
	}
	pod.Spec.NodeSelector[world.FlavorLabel] = "any" // as Kueue does
	pod.Spec.NodeSelector[corev1.LabelHostname] = s.node.Hostname
	for i := range shape.Claims {
		c := &shape.Claims[i]
		picks, no := admission.Picks(s.node, c, s.dealt)
		if no != nil {
			return fmt.Errorf("release: %s", no.Message)
		}
		spec, no := policy.Exact(m, *c, flavor, picks, s.node.Eligible())
		if no != nil {
			return fmt.Errorf("release: %s", no.Message)
		}
		var ids []string
		for _, pick := range picks {
			for _, d := range pick.Devices {
				ids = append(ids, d.ID.String())
			}
		}
		claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
			Namespace: g.Tenant, Name: name + "-" + c.Name, UID: types.UID(name + "-" + c.Name), ResourceVersion: "9",
			Labels: map[string]string{v1alpha1.OwnedLabel: "true"}, Annotations: map[string]string{v1alpha1.DevicesAnnotation: strings.Join(ids, ",")},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: name, UID: pod.UID, Controller: ptr.To(true)}},
		}, Spec: spec}
		for j := range pod.Spec.ResourceClaims {
			if use := &pod.Spec.ResourceClaims[j]; use.Name == c.Name {
				use.ResourceClaimTemplateName = ptr.To(name + "-" + c.Name)
			}
		}
		pod.Status.ResourceClaimStatuses = append(pod.Status.ResourceClaimStatuses, corev1.PodResourceClaimStatus{Name: c.Name, ResourceClaimName: &claim.Name})
		s.claims = append(s.claims, claim)
	}
	s.pod = pod
	return nil
}

// promised writes what the slot is promised of each of its claims, and how many devices by number.
func (s *slot) promised() (byClaim map[string][]string, byNumber int) {
	byClaim = map[string][]string{}
	for _, c := range s.claims {
		byClaim[c.Name] = []string{}
	}
	for _, d := range s.dealt {
		if d.Claim == v1alpha1.ExtendedResourcesClaim {
			byNumber = len(d.Devices)
			continue
		}
		claim := s.pod.Name + "-" + d.Claim
		for _, id := range d.Devices {
			byClaim[claim] = append(byClaim[claim], d.Request+" "+id.String())
		}
	}
	for _, list := range byClaim {
		slices.Sort(list)
	}
	return byClaim, byNumber
}

// mapped returns what the slot's devices take of its node.
func (s *slot) mapped() (map[corev1.ResourceName]int64, error) {
	total := corev1.ResourceList{}
	for _, c := range s.pod.Spec.ResourceClaims {
		var devices []ledger.Taken
		for _, d := range s.dealt {
			for _, id := range d.Devices {
				if dev := s.node.Device(id); d.Claim == c.Name && dev != nil {
					devices = append(devices, ledger.Taken{Device: id, Mappings: dev.Mappings, Consumed: ledger.DefaultConsumption(dev.Spec)})
				}
			}
		}
		list, err := ledger.MappedList(devices, 1)
		if err != nil {
			return nil, fmt.Errorf("gang: %w", err)
		}
		for name, q := range list {
			sum := total[name]
			sum.Add(q)
			total[name] = sum
		}
	}
	return world.Amounts(total), nil
}

// bookOf returns a book that was given all objects of a world, some as they were before and with others that have gone since.
func bookOf(w *world.World) (*ledger.Book, error) {
	book := ledger.New()
	objects := w.Objects()
	for _, v := range history(rand.New(rand.NewPCG(uint64(len(objects)), 1)), objects) {
		observation, ok := observe.Of(v.object, v.gone)
		if !ok {
			return nil, fmt.Errorf("the book does not take %T %s", v.object, v.object.GetName())
		}
		observation.At = time.Unix(1_800_000_000, 0)
		book.Apply(observation)
	}
	return book, nil
}

// policyOf returns a policy of one flavor, which every device belongs to.
func policyOf(g *world.Gang) (*flavors.Policy, error) {
	dp := &v1alpha1.DevicePolicy{ObjectMeta: metav1.ObjectMeta{Name: "policy"}}
	dp.Spec.QuotaResource, dp.Spec.Ordering = g.Resource, v1alpha1.OrderingPack
	dp.Spec.Flavors = []v1alpha1.PolicyFlavor{{Name: "any", Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver.endsWith(".example.com")`}}}}}
	p, problems := flavors.Resolve(dp, func(name string) *kueue.ResourceFlavor {
		return &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{world.FlavorLabel: name}}}
	})
	if len(problems) > 0 {
		return nil, fmt.Errorf("policy: %s", problems[0].Message)
	}
	return p, nil
}

// gangDisagreement compares what kube-scheduler did with the pods of a gang with what they were promised.
func gangDisagreement(d *decided, a *world.Answer) (string, error) {
	for i, s := range d.slots {
		if i >= len(a.Gang) {
			return "", fmt.Errorf("%d of %d pods were answered", len(a.Gang), len(d.slots))
		}
		got := &a.Gang[i]
		switch {
		case !got.Fits:
			return fmt.Sprintf("pod %d was placed on node %s; kube-scheduler says: %s", i, s.node.Name, got.Why), nil
		case got.Node != s.node.Name:
			return fmt.Sprintf("pod %d was placed on node %s; kube-scheduler bound it to %s", i, s.node.Name, got.Node), nil
		}
		want, byNumber := s.promised()
		if n := len(got.Devices[world.ExtendedResources]); n != byNumber {
			return fmt.Sprintf("pod %d was promised %d devices by number, and got %d", i, byNumber, n), nil
		}
		for _, claim := range slices.Sorted(maps.Keys(want)) {
			var given []string
			for _, g := range got.Devices[claim] {
				f := strings.Fields(g)
				given = append(given, f[0]+" "+f[1])
			}
			if slices.Sort(given); !slices.Equal(given, want[claim]) {
				return fmt.Sprintf("pod %d: claim %s was promised %v, and got %v", i, claim, want[claim], given), nil
			}
		}
		mapped, err := s.mapped()
		if err != nil {
			return "", err
		}
		if !maps.Equal(mapped, got.Mapped) {
			return fmt.Sprintf("pod %d was to take %v of its node with its devices, and took %v", i, mapped, got.Mapped), nil
		}
	}
	return "", nil
}
