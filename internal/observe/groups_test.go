package observe

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	resourcev1 "k8s.io/api/resource/v1"
)

// grouped is a slice whose device b is of groups, as JSON.
const grouped = `{"kind": "ResourceSlice", "apiVersion": "resource.k8s.io/v1", "metadata": {"name": "s", "uid": "s", "resourceVersion": "1"}, "spec": {"driver": "d", "nodeName": "n",
	"pool": {"name": "n", "generation": 1, "resourceSliceCount": 2}, "devices": [
	{"name": "a", "consumesCounters": [{"counterSet": "card", "counters": {"memory": {"value": "1"}}}]},
	{"name": "b", "consumesCounters": [{"counterSet": "other", "counters": {"memory": {"value": "1"}}}, {"counterSet": "card", "counters": {"memory": {"value": "1"}}, "compatibilityGroups": ["mig"]}]}]}}`

func TestGroupsThatDevicesMustShareAreNotCountedWith(t *testing.T) {
	const says = "device b has compatibilityGroups in counter set card: kube-scheduler looks at no such slice unless its feature gate DRADeviceCompatibilityGroups is on, and which devices may go together is not counted here"
	s := decoded[*resourcev1.ResourceSlice](t, []byte(grouped))
	if o, ok := Of(s, false); !ok || o.Unread != says {
		t.Errorf("observed with %q, want %q", o.Unread, says)
	}
	list := decoded[*resourcev1.ResourceSliceList](t, []byte(`{"kind": "ResourceSliceList", "apiVersion": "resource.k8s.io/v1", "items": [
		{"metadata": {"name": "first", "annotations": {"`+SliceCompatibilityGroups+`": "made up"}}}, `+grouped+`]}`))
	var got []string
	for i := range list.Items {
		got = append(got, unreadOf(&list.Items[i]))
	}
	if diff := cmp.Diff([]string{"", says}, got); diff != "" {
		t.Errorf("in a list (-want +got)\n%s", diff)
	}
}

func TestOnlyADeviceThatIsOfAGroupIsGrouped(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, "null": false, "[]": false, `["mig"]`: true, `["mig", "vgpu"]`: true, `"mig"`: true, `{}`: true,
	} {
		if got := (&LaterDraw{CompatibilityGroups: []byte(text)}).Grouped(); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}
