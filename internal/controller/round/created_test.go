package round

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// TestAWorkloadIsDecidedOnWhatItsPodsWillAskFor: a node of 8 cpus takes no pod that a LimitRange makes ask for 6 and whose
// RuntimeClass adds 3, and none of it is in the Workload.
func TestAWorkloadIsDecidedOnWhatItsPodsWillAskFor(t *testing.T) {
	for name, tc := range map[string]struct {
		cpu, overhead string
		open          string
		left          int64
	}{
		"both fit":              {"6", "2", "wl=h100", 0},
		"the default is large":  {"9", "", "", 0},
		"so are both together":  {"6", "3", "", 0},
		"nothing says anything": {"", "", "wl=h100", 8000},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, map[string]string{"h": "h100"}, func(cq *kueue.ClusterQueue, _ *v1alpha1.DevicePolicySpec) {
				g := &cq.Spec.ResourceGroups[0]
				g.CoveredResources = append(g.CoveredResources, "cpu")
				for i := range g.Flavors {
					g.Flavors[i].Resources = append(g.Flavors[i].Resources, kueue.ResourceQuota{Name: "cpu", NominalQuota: resource.MustParse("1000")})
				}
			})
			if tc.cpu != "" {
				b.make(&corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "l"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
					Type: corev1.LimitTypeContainer, DefaultRequest: corev1.ResourceList{"cpu": resource.MustParse(tc.cpu)},
				}}}})
			}
			if tc.overhead != "" {
				b.make(&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "kata"}, Handler: "kata",
					Overhead: &nodev1.Overhead{PodFixed: corev1.ResourceList{"cpu": resource.MustParse(tc.overhead)}}})
			}
			b.waits("wl", func(wl *kueue.Workload) {
				spec := &wl.Spec.PodSets[0].Template.Spec
				spec.RuntimeClassName = ptr.To("kata")
				spec.Containers = []corev1.Container{{Name: "main"}}
			})
			b.settle(0)
			if got := b.open("wl"); got != tc.open {
				t.Fatalf("open is %q, want %q", got, tc.open)
			}
			if tc.open == "" {
				return
			}
			b.reserve("wl", "h100")
			b.settle(1)
			if got := b.Book.Snapshot().Node("h").Free["cpu"]; got != tc.left {
				t.Errorf("%d thousandths of cpu are left beside the promise, want %d", got, tc.left)
			}
		})
	}
}
