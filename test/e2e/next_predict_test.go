package e2e

import (
	"context"
	"fmt"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/plimsoll-dev/plimsoll/internal/observe"
	"github.com/plimsoll-dev/plimsoll/internal/parts"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// foretold is a stranger and what becomes of it.
type foretold struct {
	stranger
	// device is the one that its claim names; empty for all four of the node.
	device string
	binds  bool
	// stays has it go on while those after it are looked at.
	stays bool
}

// taken137 is what a pod's status says that its claims take of its node, as kube-scheduler counts it.
func taken137(statuses []claimStatus137) ledger.Amounts {
	GinkgoHelper()
	sum := corev1.ResourceList{}
	add := func(name, quantity string, times int) {
		if quantity == "" {
			return
		}
		q, have := resource.MustParse(quantity), sum[corev1.ResourceName(name)]
		q.Mul(int64(times))
		have.Add(q)
		sum[corev1.ResourceName(name)] = have
	}
	for _, s := range statuses {
		for _, m := range s.Mapping {
			add(m.Name, m.Quantity, 1)
		}
		for _, o := range s.Overhead {
			add(o.Name, o.PerPod, 1)
			add(o.Name, o.PerContainer, len(s.Containers))
		}
	}
	return ledger.AmountsOf(sum)
}

// predicted is what admission says of a pod, on a ledger that is computed from the API server.
func (c *cluster) predicted(ctx context.Context, pod *corev1.Pod, claim *resourcev1.ResourceClaim, node string) admission.Prediction {
	GinkgoHelper()
	cold, err := observe.NewCold(c.Admin(), parts.Scheme())
	Expect(err).NotTo(HaveOccurred())
	book, err := cold.Book(ctx)
	Expect(err).NotTo(HaveOccurred())
	d := &admission.Decider{Matcher: flavors.NewMatcher()}
	return d.Predict(ctx, book.Snapshot(), node, &admission.Incoming{Pod: pod, Claims: map[string]*resourcev1.ResourceClaim{"gpu": claim}})
}

var _ = onNext("pods are foretold", func() {
	const node, later = "l4-0", "example.com/later"
	It("as its kube-scheduler decides", func(ctx context.Context) {
		c := startCluster(ctx)
		c.mapDevices(ctx, node)
		at := func(device, cpu, memory string, containers int) foretold {
			return foretold{stranger: stranger{node: node, cpu: cpu, memory: memory, containers: containers}, device: device}
		}
		binds := func(f foretold) foretold {
			f.binds = true
			return f
		}
		stays := func(f foretold) foretold {
			f.binds, f.stays = true, true
			return f
		}
		whole := func(f foretold, cpu string) foretold {
			f.wholeCPU = cpu
			return f
		}
		for i, f := range []foretold{
			binds(at("gpu-0", "54", "1Gi", 1)),
			at("gpu-0", "54001m", "1Gi", 1),
			binds(at("gpu-1", "78", "1Gi", 1)),
			at("gpu-1", "78001m", "1Gi", 1),
			binds(at("gpu-2", "85500m", "1Gi", 1)),
			at("gpu-2", "85501m", "1Gi", 1),
			binds(at("gpu-0", "1", "364Gi", 1)),
			at("gpu-0", "1", "364Gi", 2),
			binds(at("gpu-0", "1", "363Gi", 2)),
			binds(at("gpu-0", "1", "365Gi", 0)),
			at("gpu-0", "1", "366Gi", 0),
			binds(whole(at("gpu-0", "1", "1Gi", 1), "41")),
			whole(at("gpu-0", "1", "1Gi", 1), "40"),
			binds(at("", "29500m", "1Gi", 1)),
			at("", "29501m", "1Gi", 1),
			stays(at("gpu-0", "40", "1Gi", 1)),
			at("gpu-2", "6", "1Gi", 1),
			stays(at("gpu-2", "5500m", "1Gi", 1)),
			at("gpu-3", "1", "1Gi", 1),
		} {
			f.name = fmt.Sprint("foretold-", i)
			count := int64(1)
			if f.device == "" {
				count = 4
			}
			f.devices = c.apart(ctx, count, node, f.device)
			By(fmt.Sprintf("%+v", f))
			pod, claim := f.objects()
			pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: later}}
			Expect(c.Create(ctx, claim)).To(Succeed())
			Expect(c.Create(ctx, pod)).To(Succeed())
			DeferCleanup(func(ctx context.Context) { c.giveBack(ctx, pod) })
			prediction := c.predicted(ctx, pod, claim, node)

			patch := client.MergeFrom(pod.DeepCopy())
			pod.Spec.SchedulingGates = nil
			Expect(c.Patch(ctx, pod, patch)).To(Succeed())
			refused := c.settled(ctx, pod)
			if f.binds {
				Expect(refused).To(BeEmpty(), f.name)
			} else {
				Expect(refused).NotTo(BeEmpty(), f.name)
			}
			Expect(prediction.Fits).To(Equal(f.binds), "%s: foretold %s: %s, kube-scheduler says %q", f.name, prediction.Reason, prediction.Message, refused)
			Expect(prediction.Unsure).To(BeFalse())
			if f.binds {
				Expect(taken137(c.statuses137(ctx, pod))).To(Equal(prediction.Mapped), f.name)
				Expect(c.Get(ctx, client.ObjectKeyFromObject(claim), claim)).To(Succeed())
				Expect(devicesIn(claim.Status.Allocation)).To(Equal(devicesIn(prediction.Allocations["gpu"])), f.name)
			}
			if !f.stays {
				c.giveBack(ctx, pod)
			}
		}
	})
})

// devicesIn are the devices of an allocation, sorted.
func devicesIn(a *resourcev1.AllocationResult) []string {
	var out []string
	for _, r := range a.Devices.Results {
		out = append(out, r.Pool+"/"+r.Device)
	}
	slices.Sort(out)
	return out
}
