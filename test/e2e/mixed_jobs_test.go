package e2e

import (
	"fmt"
	"math/rand/v2"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/plimsoll-dev/plimsoll/test/lab"
)

const teamC = "team-c"

// mixedJob is one Job of a mixed load, with the claim templates of its own.
type mixedJob struct {
	job
	shape     string
	templates []*resourcev1.ResourceClaimTemplate
}

// wish is one request for devices: a number of one product, or of any.
type wish struct {
	product string
	count   int64
}

// mix draws a mixed load: every shape for every tenant, in a random order, each within what its tenant's quota can ever give
// and the sample cluster has. The same seed draws the same load.
func mix(seed int64, n int) []mixedJob {
	draw := rand.New(rand.NewPCG(uint64(seed), 0)) //nolint:gosec // a load, not a secret
	tenants := []string{teamA, teamB, teamC}
	var out []mixedJob
	for i := range n {
		t := tenants[i%len(tenants)]
		m := shapes[i/len(tenants)%len(shapes)](draw, t)
		m.namespace, m.name = t, fmt.Sprintf("mixed-%02d", i)
		m.runSeconds = 1 + draw.IntN(4)
		for k, claim := range m.templates {
			claim.Namespace, claim.Name = t, fmt.Sprintf("%s-%d", m.name, k)
		}
		out = append(out, m)
	}
	draw.Shuffle(len(out), func(i, k int) { out[i], out[k] = out[k], out[i] })
	return out
}

// products a tenant's quota can give, with how many at most.
func largest(tenant string, draw *rand.Rand) wish {
	of := map[string][]wish{
		teamA: {{"H100", 8}, {"H100", 8}, {"A100", 8}, {"L4", 4}},
		teamB: {{"H100", 4}, {"A100", 8}, {"A100", 8}, {"L4", 4}},
		teamC: {{"A100", 8}, {"L4", 4}},
	}[tenant]
	return of[draw.IntN(len(of))]
}

var shapes = []func(draw *rand.Rand, tenant string) mixedJob{
	func(draw *rand.Rand, _ string) mixedJob {
		return mixedJob{shape: "any", job: job{pods: 1}, templates: claims(requests(wish{count: 1 + draw.Int64N(8)}))}
	},
	func(draw *rand.Rand, tenant string) mixedJob {
		w := largest(tenant, draw)
		w.count = 1 + draw.Int64N(w.count)
		return mixedJob{shape: "selector", job: job{pods: 1}, templates: claims(requests(w))}
	},
	func(draw *rand.Rand, tenant string) mixedJob {
		gang := map[string][]mixedJob{
			teamA: {{job: job{pods: 4}, templates: claims(requests(wish{"H100", 8}))}, {job: job{pods: 3}, templates: claims(requests(wish{"H100", 4}))}},
			teamB: {{job: job{pods: 2}, templates: claims(requests(wish{"A100", 8}))}, {job: job{pods: 4}, templates: claims(requests(wish{"H100", 1}))}},
			teamC: {{job: job{pods: 2}, templates: claims(requests(wish{"L4", 4}))}, {job: job{pods: 3}, templates: claims(requests(wish{"A100", 2}))}},
		}[tenant]
		m := gang[draw.IntN(len(gang))]
		m.shape = "gang"
		return m
	},
	func(draw *rand.Rand, _ string) mixedJob {
		first := resourcev1.DeviceRequest{Name: "gpu"}
		for i, w := range []wish{{"H100", 1 + draw.Int64N(4)}, {"A100", 1 + draw.Int64N(4)}, {"L4", 1 + draw.Int64N(4)}} {
			exactly := w.exactly()
			first.FirstAvailable = append(first.FirstAvailable, resourcev1.DeviceSubRequest{
				Name: "choice-" + strconv.Itoa(i), DeviceClassName: exactly.DeviceClassName, Selectors: exactly.Selectors,
				AllocationMode: exactly.AllocationMode, Count: exactly.Count,
			})
		}
		return mixedJob{shape: "firstAvailable", job: job{pods: 1 + draw.Int32N(2)}, templates: claims([]resourcev1.DeviceRequest{first})}
	},
	func(draw *rand.Rand, _ string) mixedJob {
		return mixedJob{shape: "CPU", job: job{pods: 1 + draw.Int32N(4)}}
	},
	func(draw *rand.Rand, tenant string) mixedJob {
		w := largest(tenant, draw)
		w.count = 1 + draw.Int64N(w.count/2)
		if draw.IntN(2) == 0 {
			return mixedJob{shape: "two requests", job: job{pods: 1}, templates: claims(requests(w, w))}
		}
		return mixedJob{shape: "two claims", job: job{pods: 1}, templates: claims(requests(w), requests(w))}
	},
	func(draw *rand.Rand, _ string) mixedJob {
		return mixedJob{shape: "singles", job: job{pods: 2 + draw.Int32N(3)}, templates: claims(requests(wish{count: 1}))}
	},
}

func (w wish) exactly() *resourcev1.ExactDeviceRequest {
	return job{gpus: w.count, product: w.product}.template().Spec.Spec.Devices.Requests[0].Exactly
}

func requests(wishes ...wish) []resourcev1.DeviceRequest {
	var out []resourcev1.DeviceRequest
	for i, w := range wishes {
		out = append(out, resourcev1.DeviceRequest{Name: "gpu-" + strconv.Itoa(i), Exactly: w.exactly()})
	}
	return out
}

func claims(of ...[]resourcev1.DeviceRequest) []*resourcev1.ResourceClaimTemplate {
	var out []*resourcev1.ResourceClaimTemplate
	for _, r := range of {
		out = append(out, &resourcev1.ResourceClaimTemplate{Spec: resourcev1.ResourceClaimTemplateSpec{
			Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: r}}}})
	}
	return out
}

func (m mixedJob) object() *batchv1.Job {
	out := m.job.object()
	out.Spec.Template.Annotations = map[string]string{lab.RunSecondsAnnotation: strconv.Itoa(m.runSeconds)}
	spec := &out.Spec.Template.Spec
	for i, t := range m.templates {
		name := "gpus-" + strconv.Itoa(i)
		spec.ResourceClaims = append(spec.ResourceClaims, corev1.PodResourceClaim{Name: name, ResourceClaimTemplateName: ptr.To(t.Name)})
		spec.Containers[0].Resources.Claims = append(spec.Containers[0].Resources.Claims, corev1.ResourceClaim{Name: name})
	}
	out.ObjectMeta = metav1.ObjectMeta{Namespace: m.namespace, Name: m.name, Labels: out.Labels}
	return out
}
