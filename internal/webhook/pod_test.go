package webhook

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
)

const jobController = "system:serviceaccount:kube-system:job-controller"

// pod is a managed one with claims: name, template, name, template, ….
func pod(claims ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, GenerateName: "train-", Labels: map[string]string{v1alpha1.ManagedLabel: "true"},
	}}
	p.APIVersion, p.Kind = "v1", "Pod"
	p.Spec.Containers = []corev1.Container{{Name: "c"}}
	for i := 0; i+1 < len(claims); i += 2 {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: claims[i], ResourceClaimTemplateName: ptr.To(claims[i+1])})
	}
	return p
}

func gated(p *corev1.Pod) *corev1.Pod {
	p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: v1alpha1.PlacementGate})
	return p
}

func keeping(annotation string, p *corev1.Pod) *corev1.Pod {
	p.Annotations = map[string]string{v1alpha1.ClaimTemplatesAnnotation: annotation}
	return p
}

func TestManagedPodsAreGatedAndGetTemplatesOfTheirOwn(t *testing.T) {
	byName := pod()
	byName.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To("mine")}}
	otherGate := pod("gpu", "eight")
	otherGate.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/other"}}
	wantOtherGate := gated(keeping(`{"gpu":"eight"}`, pod("gpu", "eight-plimsoll-abcdefghij")))
	wantOtherGate.Spec.SchedulingGates = append([]corev1.PodSchedulingGate{{Name: "example.com/other"}}, wantOtherGate.Spec.SchedulingGates...)
	long := strings.Repeat("a", 232) + ".bcdefghijklmnopqrstu"
	cases := map[string]struct{ pod, want *corev1.Pod }{
		"a pod without claims is gated": {pod: pod(), want: gated(pod())},
		"a pod that is gated already stays so": {
			pod: gated(pod("gpu", "eight")), want: gated(keeping(`{"gpu":"eight"}`, pod("gpu", "eight-plimsoll-abcdefghij"))),
		},
		"another's gate stays":      {pod: otherGate, want: wantOtherGate},
		"a claim gets a fresh name": {pod: pod("gpu", "eight"), want: gated(keeping(`{"gpu":"eight"}`, pod("gpu", "eight-plimsoll-abcdefghij")))},
		"each claim gets its own":   {pod: pod("gpu", "eight", "nic", "eight"), want: gated(keeping(`{"gpu":"eight","nic":"eight"}`, pod("gpu", "eight-plimsoll-abcdefghij", "nic", "eight-plimsoll-klmnopqrst")))},
		"a long name is cut to fit": {pod: pod("gpu", long), want: gated(keeping(`{"gpu":"`+long+`"}`, pod("gpu", strings.Repeat("a", 232)+"-plimsoll-abcdefghij")))},
		"a claim by name stays":     {pod: byName, want: gated(byName.DeepCopy())},
		"an annotation alone is written over": {
			pod: keeping(`{"gpu":"four"}`, pod("gpu", "eight")), want: gated(keeping(`{"gpu":"eight"}`, pod("gpu", "eight-plimsoll-abcdefghij"))),
		},
		"an annotation that cannot be read is written over": {
			pod: keeping(`[`, pod("gpu", "eight")), want: gated(keeping(`{"gpu":"eight"}`, pod("gpu", "eight-plimsoll-abcdefghij"))),
		},
		"an annotation of a pod without claims is taken out": {
			pod: keeping(`{"gpu":"four"}`, pod()), want: gated(pod()),
		},
		"entries of claims that there are not are taken out": {
			pod: keeping(`{"gpu":"eight","nic":"one"}`, pod("gpu", "eight-plimsoll-0000000000")), want: gated(keeping(`{"gpu":"eight"}`, pod("gpu", "eight-plimsoll-0000000000"))),
		},
		"a name of ours without an entry is a user's": {
			pod: pod("gpu", "eight-plimsoll-0000000000"), want: gated(keeping(`{"gpu":"eight-plimsoll-0000000000"}`, pod("gpu", "eight-plimsoll-0000000000-plimsoll-abcdefghij"))),
		},
		"a name of ours with another claim's entry is a user's": {
			pod: keeping(`{"nic":"eight"}`, pod("gpu", "eight-plimsoll-0000000000")), want: gated(keeping(`{"gpu":"eight-plimsoll-0000000000"}`, pod("gpu", "eight-plimsoll-0000000000-plimsoll-abcdefghij"))),
		},
		"a name of ours with the entry of another template is a user's": {
			pod: keeping(`{"gpu":"four"}`, pod("gpu", "eight-plimsoll-0000000000")), want: gated(keeping(`{"gpu":"eight-plimsoll-0000000000"}`, pod("gpu", "eight-plimsoll-0000000000-plimsoll-abcdefghij"))),
		},
		"a claim that another webhook added after us gets its name": {
			pod:  gated(keeping(`{"gpu":"eight"}`, pod("gpu", "eight-plimsoll-0000000000", "nic", "one"))),
			want: gated(keeping(`{"gpu":"eight","nic":"one"}`, pod("gpu", "eight-plimsoll-0000000000", "nic", "one-plimsoll-abcdefghij"))),
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := serve(t, Options{Rand: &cycle{}})
			got, _ := applied[corev1.Pod](t, w.ask(PodPath, admissionv1.Create, jobController, c.pod, nil), c.pod)
			if diff := cmp.Diff(*c.want, got); diff != "" {
				t.Errorf("pod (-want +got):\n%s", diff)
			}
			again, changed := applied[corev1.Pod](t, w.ask(PodPath, admissionv1.Create, jobController, got, nil), got)
			if changed {
				t.Errorf("the second time changed (-once +twice):\n%s", cmp.Diff(got, again))
			}
			if _, err := flavors.UserTemplates(&got); err != nil {
				t.Errorf("what is kept cannot be read back: %v", err)
			}
		})
	}
}

func TestPodsThatAreNotOurs(t *testing.T) {
	unmanaged := pod("gpu", "eight")
	unmanaged.Labels = map[string]string{"app": "train"}
	cases := map[string]struct {
		op  admissionv1.Operation
		pod any
	}{
		"a pod without our label":  {admissionv1.Create, unmanaged},
		"an update":                {admissionv1.Update, pod("gpu", "eight")},
		"a deletion, without body": {admissionv1.Delete, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			response := serve(t, Options{}).ask(PodPath, c.op, "alice", c.pod, nil)
			if !response.Allowed || len(response.Patch) > 0 {
				t.Errorf("allowed is %v, the patch %s: want it let through as it is", response.Allowed, response.Patch)
			}
		})
	}
	t.Run("a subresource", func(t *testing.T) {
		w := serve(t, Options{})
		req := request(t, admissionv1.Create, `{"kind":"Binding"}`, nil)
		req.SubResource = "binding"
		if response := w.handlers[PodPath].Handle(t.Context(), req); !response.Allowed || len(response.Patch) > 0 {
			t.Errorf("allowed is %v, the patch %s: want it let through as it is", response.Allowed, response.Patch)
		}
	})
}

func TestAManagedPodIsRefusedRatherThanLetThroughUngated(t *testing.T) {
	cases := map[string]struct {
		opts Options
		pod  any
		code int32
	}{
		"an object that cannot be read": {pod: `{"metadata":{"labels":3}}`, code: 400},
		"no randomness":                 {opts: Options{Rand: iotest.ErrReader(errors.New("dry"))}, pod: pod("gpu", "eight"), code: 500},
		"too little randomness":         {opts: Options{Rand: strings.NewReader("abc")}, pod: pod("gpu", "eight"), code: 500},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			response := serve(t, c.opts).ask(PodPath, admissionv1.Create, jobController, c.pod, nil)
			if response.Allowed || response.Result.Code != c.code {
				t.Errorf("allowed is %v with code %d, want a refusal with %d", response.Allowed, response.Result.Code, c.code)
			}
		})
	}
}

func TestRandomNamesAreDrawnEvenly(t *testing.T) {
	name, err := randomName(&cycle{}, 252)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[rune]int{}
	for _, letter := range name {
		seen[letter]++
	}
	if len(seen) != 36 {
		t.Errorf("%d letters are used, want 36", len(seen))
	}
	for letter, n := range seen {
		if n != 7 {
			t.Errorf("letter %c comes %d times of 252, want 7", letter, n)
		}
	}
	// The four bytes that would make the first letters likelier are passed over.
	if name, err = randomName(&cycle{next: 250}, 7); err != nil || name != "89abcde" {
		t.Errorf("bytes 250 to 255, 0 to 4 give %q (%v), want 89abcde", name, err)
	}
}

func TestTwoPodsGetTwoNames(t *testing.T) {
	w := serve(t, Options{})
	names := map[string]bool{}
	for i := range 200 {
		p := pod("gpu", fmt.Sprint("t", i%2))
		got, _ := applied[corev1.Pod](t, w.ask(PodPath, admissionv1.Create, jobController, p, nil), p)
		names[*got.Spec.ResourceClaims[0].ResourceClaimTemplateName] = true
	}
	if len(names) != 200 {
		t.Errorf("200 pods got %d names", len(names))
	}
}
