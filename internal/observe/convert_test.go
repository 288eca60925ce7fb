package observe

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
)

// TestAChargeIsNoneOfANodesResources: a charge may have the name of a resource that nodes list.
func TestAChargeIsNoneOfANodesResources(t *testing.T) {
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: "w", UID: "w", ResourceVersion: "1"}}
	ps := kueue.PodSet{Name: "main", Count: 1}
	template := "t"
	ps.Template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &template}}
	wl.Spec.PodSets = []kueue.PodSet{ps}
	p := &flavors.Policy{
		Spec:    v1alpha1.DevicePolicySpec{QuotaResource: "nvidia.com/gpu"},
		Flavors: []flavors.Flavor{{Name: "h100", NodeLabels: map[string]string{"model": "h100"}, ChargePerDevice: 1}},
	}
	fixed := corev1.ResourceList{"cpu": resource.MustParse("250m")}
	err := p.Steer(wl, flavors.Plan{Allowed: []string{"h100"}, Charge: map[string]int64{"main": 8}, Overhead: map[string]corev1.ResourceList{"main": fixed}})
	if err != nil {
		t.Fatal(err)
	}
	if q := wl.Spec.PodSets[0].Template.Spec.Overhead["nvidia.com/gpu"]; q.Value() != 8 {
		t.Fatalf("the fixture is charged %s, want 8", q.String())
	}
	o, ok := Of(wl, false)
	if !ok {
		t.Fatal("the Workload was not taken")
	}
	if got := o.Workload.Requests["main"]; got["nvidia.com/gpu"] != 0 || got["cpu"] != 250 {
		t.Errorf("a pod asks for %v of a node, want what the RuntimeClass fixes alone", got)
	}
}

func TestHowOftenContainersReferToAClaimIsKeptWhereItIsMoreThanOnce(t *testing.T) {
	claims := func(names ...string) corev1.ResourceRequirements {
		var r corev1.ResourceRequirements
		for _, n := range names {
			r.Claims = append(r.Claims, corev1.ResourceClaim{Name: n})
		}
		return r
	}
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: "w", UID: "w", ResourceVersion: "1"}}
	twice, once := kueue.PodSet{Name: "twice"}, kueue.PodSet{Name: "once"}
	twice.Template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}, {Name: "nic"}}
	once.Template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}}
	twice.Template.Spec.InitContainers = []corev1.Container{{Name: "i", Resources: claims("gpu")}}
	twice.Template.Spec.Containers = []corev1.Container{{Name: "a", Resources: claims("gpu", "gpu", "nic")}, {Name: "b"}}
	once.Template.Spec.Containers = []corev1.Container{{Name: "a", Resources: claims("gpu")}}
	wl.Spec.PodSets = []kueue.PodSet{twice, once}
	o, ok := Of(wl, false)
	if !ok {
		t.Fatal("the Workload was not taken")
	}
	if diff := cmp.Diff(map[string]map[string]int{"twice": {"gpu": 3}}, o.Workload.Referring); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
