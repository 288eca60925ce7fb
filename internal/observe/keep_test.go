package observe

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// later137 returns what the types of Kubernetes 1.37 wrote.
func later137(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "v1.37.2", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func decoded[T runtime.Object](t *testing.T, text []byte) T {
	t.Helper()
	s := keepingSerializer()
	o, _, err := s.DecoderToVersion(s.SupportedMediaTypes()[0].Serializer, nil).Decode(text, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, ok := o.(T)
	if !ok {
		t.Fatalf("decoded a %T", o)
	}
	return got
}

func TestAPodOfTheNextReleaseIsKeptInFull(t *testing.T) {
	want := []ledger.ClaimStatus{{Claim: "c", Amounts: ledger.Amounts{"cpu": 8000, "memory": 2 << 30}}}
	p := decoded[*corev1.Pod](t, later137(t, "pod.json"))
	if diff := cmp.Diff(want, mapped(p)); diff != "" || unread(p) {
		t.Errorf("from JSON, unread %v (-want +got)\n%s", unread(p), diff)
	}
	list := decoded[*corev1.PodList](t, []byte(`{"kind": "PodList", "apiVersion": "v1", "items": [{"metadata": {"name": "first"}}, `+string(later137(t, "pod.json"))+`]}`))
	if diff := cmp.Diff(want, mapped(&list.Items[1])); diff != "" || mapped(&list.Items[0]) != nil {
		t.Errorf("in a list, with %v of another (-want +got)\n%s", mapped(&list.Items[0]), diff)
	}
	plain := &corev1.Pod{}
	if err := plain.Unmarshal(later137(t, "pod.pb")); err != nil {
		t.Fatal(err)
	}
	if got := mapped(plain); got != nil || !unread(plain) {
		t.Errorf("protobuf gives %v, unread %v: want nothing, and to be told so", got, unread(plain))
	}
	if unread(&corev1.Pod{}) || unread(decoded[*corev1.Pod](t, []byte(`{"kind": "Pod", "apiVersion": "v1", "status": {"nodeAllocatableResourceClaimStatuses": [
		{"resourceClaimName": "c", "containers": ["a"], "resources": {"cpu": "0"}}]}}`))) {
		t.Error("what 1.36 says is taken for unread")
	}
}

func TestASliceOfTheNextReleaseIsKeptInFull(t *testing.T) {
	want := map[string]ledger.Mappings{"a": {Rules: ledger.Rules137, List: []ledger.Mapping{
		{Resource: "memory", Capacity: "mem", Multiplier: resource.MustParse("2"), PerContainer: resource.MustParse("1Gi")},
	}}}
	s := decoded[*resourcev1.ResourceSlice](t, later137(t, "slice.json"))
	got := mappings(s)
	m := got["a"]
	if !strings.Contains(m.Problem, "by capacity mem") { // the fixture's device lists none
		t.Errorf("problem %q", m.Problem)
	}
	m.Problem = ""
	if diff := cmp.Diff(want, map[string]ledger.Mappings{"a": m}); diff != "" || len(got) != 1 {
		t.Errorf("%d mapped (-want +got)\n%s", len(got), diff)
	}
	list := decoded[*resourcev1.ResourceSliceList](t, []byte(`{"kind": "ResourceSliceList", "apiVersion": "resource.k8s.io/v1", "items": [
		{"metadata": {"name": "first", "annotations": {"`+DevicesNodeAllocatable+`": "{}"}}}, `+string(later137(t, "slice.json"))+`]}`))
	if _, kept := list.Items[0].Annotations[DevicesNodeAllocatable]; kept || list.Items[1].Annotations[DevicesNodeAllocatable] != s.Annotations[DevicesNodeAllocatable] {
		t.Errorf("in a list: %v and %v", list.Items[0].Annotations, list.Items[1].Annotations)
	}
}

func TestATaintRuleOfTheNextReleaseIsRead(t *testing.T) {
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(later137(t, "rule.json")); err != nil {
		t.Fatal(err)
	}
	o, ok := Of(u, false)
	if !ok {
		t.Fatal("not taken")
	}
	if want := (ledger.Ref{Kind: ledger.KindTaintRule, UID: "v1/r", ResourceVersion: 5}); o.Ref != want {
		t.Errorf("an observation of %+v, want %+v", o.Ref, want)
	}
	want := &ledger.TaintRule{Name: "r", Version: "v1", Driver: "d", Taint: resourcev1.DeviceTaint{Key: "k", Effect: resourcev1.DeviceTaintEffectNoSchedule}}
	if diff := cmp.Diff(want, o.TaintRule); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	u.SetKind("ResourceSlice")
	if _, ok := Of(u, false); ok {
		t.Error("another kind is taken")
	}
}

func TestWhatAnAnnotationHoldsThatIsNoneOfOursIsAProblem(t *testing.T) {
	s := &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{DevicesNodeAllocatable: "{"}},
		Spec:       resourcev1.ResourceSliceSpec{Devices: []resourcev1.Device{{Name: "a"}, {Name: "b"}}},
	}
	got := mappings(s)
	if got["a"].Problem == "" || got["b"].Problem == "" {
		t.Errorf("got %v, want a problem of every device", got)
	}
}
