package policy

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/policies"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
)

func cel(expression string) []resourcev1.DeviceSelector {
	return []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: expression}}}
}

// world is a policy of one flavor, used by one queue that covers the resources named, and a slice with one GPU and one NIC.
func world(covered ...corev1.ResourceName) []client.Object {
	dp := &v1alpha1.DevicePolicy{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: v1alpha1.DevicePolicySpec{
		QuotaResource: "gpus", Flavors: []v1alpha1.PolicyFlavor{{Name: "h100", ChargePerDevice: 1, Selectors: cel(`device.driver == "gpu.example.com"`)}},
		Retry: v1alpha1.PolicyRetry{Limit: ptr.To(int32(3))}}}
	check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "plimsoll"}, Spec: kueue.AdmissionCheckSpec{
		ControllerName: v1alpha1.ControllerName, Parameters: &kueue.AdmissionCheckParametersReference{APIGroup: v1alpha1.GroupVersion.Group, Kind: "DevicePolicy", Name: "gpu"}}}
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "shared"}, Spec: kueue.ClusterQueueSpec{
		AdmissionChecksStrategy: &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: "plimsoll"}}},
		ResourceGroups:          []kueue.ResourceGroup{{CoveredResources: covered, Flavors: []kueue.FlavorQuotas{{Name: "h100"}}}}}}
	out := []client.Object{dp, check, cq,
		&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "h100"}, Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"accelerator": "h100"}}},
		&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "gpus"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "shared"}}}
	for _, kind := range []string{"gpu", "nic"} {
		driver := kind + ".example.com"
		out = append(out,
			&resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: kind}, Spec: resourcev1.DeviceClassSpec{
				ExtendedResourceName: ptr.To("example.com/" + kind), Selectors: cel(fmt.Sprintf("device.driver == %q", driver))}},
			&resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: kind}, Spec: resourcev1.ResourceSliceSpec{Driver: driver, Devices: []resourcev1.Device{{Name: "0"}}}})
	}
	return out
}

// evicted is a Workload of the queue that was evicted so often, last for a reason.
func evicted(name string, times int32, reason v1alpha1.Reason) []client.Object {
	at := metav1.ObjectMeta{Namespace: "team", Name: name}
	return []client.Object{
		&kueue.Workload{ObjectMeta: at, Spec: kueue.WorkloadSpec{QueueName: "gpus"}},
		&v1alpha1.Placement{ObjectMeta: at, Status: v1alpha1.PlacementStatus{Retry: &v1alpha1.PlacementRetry{Count: times, Reason: reason}}}}
}

func TestQuotaResourceConsistent(t *testing.T) {
	cases := map[string]struct {
		covered []corev1.ResourceName
		more    []client.Object
		reason  string
		message string
	}{
		"quota for the policy's resource alone":         {covered: []corev1.ResourceName{"gpus", "cpu"}, reason: "Consistent"},
		"quota for what other devices are served under": {covered: []corev1.ResourceName{"gpus", "example.com/nic"}, reason: "Consistent"},
		"quota for what the same devices are served under": {covered: []corev1.ResourceName{"gpus", "example.com/gpu"}, reason: "CountedTwice",
			message: "ClusterQueue shared: gives quota for example.com/gpu too, under which DeviceClass gpu serves devices of the policy: set quotaResource to that name, or give quota for one of them"},
		"quota for a class by its own name": {covered: []corev1.ResourceName{"gpus", "deviceclass.resource.kubernetes.io/gpu"}, reason: "CountedTwice",
			message: "ClusterQueue shared: gives quota for deviceclass.resource.kubernetes.io/gpu too, under which DeviceClass gpu serves devices of the policy: set quotaResource to that name, or give quota for one of them"},
		"no quota": {covered: []corev1.ResourceName{"cpu"}, reason: "NoQuota",
			message: `ClusterQueue shared: gives no quota for "gpus": add it to the resource group of the policy's flavors`},
		"a charge that was overtaken now and then":    {covered: []corev1.ResourceName{"gpus"}, more: evicted("w", 2, v1alpha1.ReasonQuotaMismatch), reason: "Consistent"},
		"many evictions, the last for another reason": {covered: []corev1.ResourceName{"gpus"}, more: evicted("w", 9, v1alpha1.ReasonDevicesInUse), reason: "Consistent"},
		"a charge that is another as often as retry.limit": {covered: []corev1.ResourceName{"gpus"},
			more: append(evicted("w", 3, v1alpha1.ReasonQuotaMismatch), evicted("x", 4, v1alpha1.ReasonQuotaMismatch)...), reason: "ChargeMismatch",
			message: "ClusterQueue shared: Kueue keeps charging gpus otherwise than was written for it (2 waiting): see that no webhook changes the overhead of Workloads, " +
				"and that resources.transformations and excludeResourcePrefixes of Kueue's configuration leave gpus as it is"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			for _, add := range []func(*runtime.Scheme) error{kueue.AddToScheme, v1alpha1.AddToScheme, resourcev1.AddToScheme} {
				utilruntime.Must(add(scheme))
			}
			cl := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.DevicePolicy{}, &kueue.AdmissionCheck{}).
				WithObjects(append(world(c.covered...), c.more...)...).Build()
			controller := &Controller{Client: cl, Policies: &policies.Resolver{Client: cl}, Matcher: flavors.NewMatcher()}
			if _, err := controller.Reconcile(t.Context(), reconcile.Request{}); err != nil {
				t.Fatal(err)
			}
			dp := &v1alpha1.DevicePolicy{}
			if err := cl.Get(t.Context(), client.ObjectKey{Name: "gpu"}, dp); err != nil {
				t.Fatal(err)
			}
			got := meta.FindStatusCondition(dp.Status.Conditions, v1alpha1.PolicyQuotaResourceConsistent)
			if got == nil || got.Reason != c.reason || got.Message != c.message || (got.Status == metav1.ConditionTrue) != (c.reason == "Consistent") {
				t.Errorf("got  %+v\nwant %s %s", got, c.reason, c.message)
			}
			if !meta.IsStatusConditionTrue(dp.Status.Conditions, v1alpha1.PolicyReady) {
				t.Error("the policy is not Ready for what is wrong with one queue")
			}
		})
	}
}
