package observe

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

func podOf(t *testing.T, p *corev1.Pod) *ledger.Pod {
	t.Helper()
	p.Name, p.UID, p.ResourceVersion = "p", "p", "1"
	o, ok := Of(p, false)
	if !ok || o.Pod == nil {
		t.Fatal("the pod was not taken")
	}
	return o.Pod
}

func container(name string, claims ...corev1.ResourceClaim) corev1.Container {
	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Claims: claims}}
}

func TestClaimsOfAPod(t *testing.T) {
	template := ptr.To("t")
	direct := corev1.PodResourceClaim{Name: "own", ResourceClaimName: ptr.To("shared")}
	ref := func(name string) corev1.ResourceClaim { return corev1.ResourceClaim{Name: name} }
	type want struct {
		Claims    []string
		Referring []int
	}
	cases := map[string]struct {
		spec   corev1.PodSpec
		status corev1.PodStatus
		want   want
	}{
		"a pod without claims has none": {spec: corev1.PodSpec{Containers: []corev1.Container{container("main")}}},
		"init containers refer too, and a container that takes two requests of a claim is two, as for kube-scheduler": {
			spec: corev1.PodSpec{
				ResourceClaims: []corev1.PodResourceClaim{direct},
				InitContainers: []corev1.Container{container("init", ref("own"))},
				Containers: []corev1.Container{
					container("main", corev1.ResourceClaim{Name: "own", Request: "a"}, corev1.ResourceClaim{Name: "own", Request: "b"}), container("aside"),
				},
			},
			want: want{[]string{"shared"}, []int{3}},
		},
		"a template's claim has the name that the status says, and none before": {
			spec: corev1.PodSpec{
				ResourceClaims: []corev1.PodResourceClaim{
					{Name: "made", ResourceClaimTemplateName: template}, {Name: "later", ResourceClaimTemplateName: template}, {Name: "never", ResourceClaimTemplateName: template},
				},
				Containers: []corev1.Container{container("main", ref("made"), ref("later"))},
			},
			status: corev1.PodStatus{ResourceClaimStatuses: []corev1.PodResourceClaimStatus{{Name: "never"}, {Name: "made", ResourceClaimName: ptr.To("p-made-x")}}},
			want:   want{[]string{"p-made-x"}, []int{1}},
		},
		"two entries for one claim are one": {
			spec: corev1.PodSpec{
				ResourceClaims: []corev1.PodResourceClaim{direct, {Name: "again", ResourceClaimName: ptr.To("shared")}},
				Containers:     []corev1.Container{container("main", ref("own")), container("aside", ref("again"))},
			},
			want: want{[]string{"shared"}, []int{2}},
		},
		"the claim for extended resources is one of the pod's": {
			spec: corev1.PodSpec{Containers: []corev1.Container{container("main"), container("aside")}},
			status: corev1.PodStatus{ExtendedResourceClaimStatus: &corev1.PodExtendedResourceClaimStatus{
				ResourceClaimName: "p-extended", RequestMappings: []corev1.ContainerExtendedResourceRequest{
					{ContainerName: "main", ResourceName: "example.com/a"}, {ContainerName: "main", ResourceName: "example.com/b"},
				},
			}},
			want: want{[]string{"p-extended"}, []int{1}},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := podOf(t, &corev1.Pod{Spec: c.spec, Status: c.status})
			if diff := cmp.Diff(c.want, want{p.Claims, p.Referring}); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestWhatAPodsStatusSaysOfItsClaims(t *testing.T) {
	statuses := []corev1.NodeAllocatableResourceClaimStatus{
		{ResourceClaimName: "a", Containers: []string{"main"}, Resources: corev1.ResourceList{"cpu": resource.MustParse("1500m"), "memory": resource.MustParse("1Gi")}},
		{ResourceClaimName: "later", Containers: []string{"main"}}, // what these types keep of what Kubernetes 1.37 says
	}
	p := &corev1.Pod{
		Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("1")},
		}}}},
		Status: corev1.PodStatus{NodeAllocatableResourceClaimStatuses: statuses},
	}
	got := podOf(t, p)
	if diff := cmp.Diff([]ledger.ClaimStatus{{Claim: "a", Amounts: ledger.Amounts{"cpu": 1500, "memory": 1 << 30}}}, got.Mapped); diff != "" {
		t.Errorf("mapped (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(ledger.Amounts{"cpu": 2500, "memory": 1 << 30, "pods": 1}, got.Requests); diff != "" {
		t.Errorf("requests (-want +got)\n%s", diff)
	}
	p.Status.NodeAllocatableResourceClaimStatuses = statuses[1:]
	if got := podOf(t, p).Mapped; got != nil {
		t.Errorf("a status without amounts gives %v", got)
	}
}

func TestOnlyPodsThatNoWorkloadMadeShowTheirLabels(t *testing.T) {
	owner := func(kind string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{Kind: kind, Name: "o", UID: "o", Controller: ptr.To(true)}}
	}
	serving := func(s corev1.ConditionStatus) []corev1.PodCondition {
		return []corev1.PodCondition{{Type: corev1.PodScheduled, Status: "True"}, {Type: corev1.PodReady, Status: s}}
	}
	cases := map[string]struct {
		owners       []metav1.OwnerReference
		conditions   []corev1.PodCondition
		labels, want bool
	}{
		"a DaemonSet's, ready":      {owner("DaemonSet"), serving("True"), true, true},
		"a DaemonSet's, not ready":  {owner("DaemonSet"), serving("False"), true, false},
		"a DaemonSet's, unknown":    {owner("DaemonSet"), serving("Unknown"), true, false},
		"a DaemonSet's, just made":  {owner("DaemonSet"), nil, true, false},
		"a node's own":              {owner("Node"), serving("True"), true, true},
		"nobody's":                  {nil, serving("True"), true, true},
		"a Job's, ready as it is":   {owner("Job"), serving("True"), false, false},
		"owned but not controlled":  {[]metav1.OwnerReference{{Kind: "Job", Name: "o", UID: "o"}}, serving("True"), true, true},
		"a ReplicaSet's, and ready": {owner("ReplicaSet"), serving("True"), false, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := podOf(t, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "driver"}, OwnerReferences: c.owners}, Status: corev1.PodStatus{Conditions: c.conditions},
			})
			if (p.Labels["app"] == "driver") != c.labels || p.Serving != c.want {
				t.Errorf("labels %v, serving %v", p.Labels, p.Serving)
			}
		})
	}
}

func TestDevicesOfAClaim(t *testing.T) {
	result := func(device string) resourcev1.DeviceRequestAllocationResult {
		return resourcev1.DeviceRequestAllocationResult{Request: "r", Driver: "d", Pool: "p", Device: device}
	}
	admin, share, plain := result("watched"), result("part"), result("whole")
	admin.AdminAccess, plain.AdminAccess = ptr.To(true), ptr.To(false)
	share.ShareID, share.ConsumedCapacity = ptr.To(types.UID("s")), map[resourcev1.QualifiedName]resource.Quantity{"memory": resource.MustParse("10Gi")}
	c := &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "c", ResourceVersion: "1"},
		Spec:       resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "r"}}}},
	}
	own := cmpopts.IgnoreUnexported(ledger.Claim{}) // the book's
	of := func() *ledger.Claim {
		o, ok := Of(c, false)
		if !ok || o.Claim == nil {
			t.Fatal("the claim was not taken")
		}
		return o.Claim
	}
	if diff := cmp.Diff(&ledger.Claim{Namespace: "ns", Name: "c", Spec: &c.Spec}, of(), own); diff != "" {
		t.Errorf("without an allocation (-want +got)\n%s", diff)
	}
	c.Status = resourcev1.ResourceClaimStatus{
		Allocation: &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{admin, share, plain}}},
		ReservedFor: []resourcev1.ResourceClaimConsumerReference{
			{Resource: "pods", Name: "p", UID: "p"}, {APIGroup: "example.com", Resource: "pods", Name: "x", UID: "x"}, {Resource: "pods", Name: "q", UID: "q"},
		},
	}
	want := &ledger.Claim{
		Namespace: "ns", Name: "c", Spec: &c.Spec, Pods: []types.UID{"p", "q"},
		Allocated: []ledger.DeviceID{{Driver: "d", Pool: "p", Device: "whole"}},
		Admin:     []ledger.DeviceID{{Driver: "d", Pool: "p", Device: "watched"}},
		Shares: []ledger.Share{{
			Device: ledger.DeviceID{Driver: "d", Pool: "p", Device: "part"}, ID: "s", Consumed: ledger.Consumption{"memory": resource.MustParse("10Gi")},
		}},
	}
	if diff := cmp.Diff(want, of(), own); diff != "" {
		t.Errorf("allocated (-want +got)\n%s", diff)
	}
	c.Status.Allocation.Devices.Results = []resourcev1.DeviceRequestAllocationResult{admin}
	if got := of(); got.Allocated == nil || len(got.Allocated) != 0 {
		t.Errorf("an allocation without devices of its own is %v, want empty and not nil", got.Allocated)
	}
}
