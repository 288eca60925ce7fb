package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/policies"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
)

const kueueUser = "system:serviceaccount:kueue-system:kueue-controller-manager"

// policy is the one of cluster(), resolved.
func policy(t testing.TB, objects ...client.Object) *flavors.Policy {
	t.Helper()
	r := &policies.Resolver{Client: fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(cluster(objects...)...).Build()}
	m, err := r.ForQueue(context.Background(), namespace, "gpu")
	if err != nil || m == nil || m.Policy == nil {
		t.Fatalf("the fixture does not resolve: %v %v", m, err)
	}
	return m.Policy
}

// steered returns a Workload with a plan written into it.
func steered(t testing.TB, p *flavors.Policy, plan flavors.Plan, wl *kueue.Workload) *kueue.Workload {
	t.Helper()
	if err := p.Steer(wl, plan); err != nil {
		t.Fatal(err)
	}
	return wl
}

func TestWorkloadsAreBornClosedAndCharged(t *testing.T) {
	kata := func(spec *corev1.PodSpec) { spec.RuntimeClassName = ptr.To("kata") }
	unclaimed := func(spec *corev1.PodSpec) { spec.ResourceClaims = nil }
	forged := func(wl *kueue.Workload) *kueue.Workload {
		wl = steered(t, policy(t), flavors.Plan{Allowed: []string{"h100"}, Charge: map[string]int64{"main": 1}}, wl)
		wl.Annotations[v1alpha1.SteeringAnnotation] = "nonce"
		wl.Annotations[v1alpha1.RejectedAnnotation] = "NotEnoughDevices"
		return wl
	}
	garbage := workload(podSet("main"))
	garbage.Annotations[v1alpha1.UserAffinityAnnotation] = "{"
	garbage.Annotations[v1alpha1.ChargeAnnotation] = "1"
	overcharged := workload(podSet("main", unclaimed))
	overcharged.Spec.PodSets[0].Template.Spec.Overhead = corev1.ResourceList{"gpus": resource.MustParse("100")}
	forgedWithoutClaims := workload(podSet("main", unclaimed))
	forgedWithoutClaims.Annotations[v1alpha1.SteeringAnnotation] = "nonce"
	frozen := devicePolicy(func(dp *v1alpha1.DevicePolicy) { dp.Spec.Mode = v1alpha1.ModeFrozen })
	dearer := devicePolicy(func(dp *v1alpha1.DevicePolicy) { dp.Spec.Flavors[0].ChargePerDevice = 7 })

	cases := map[string]struct {
		objects []client.Object
		wl      *kueue.Workload
		plan    *flavors.Plan // nil: only annotations and charge that are not the manager's are taken out
		want    *kueue.Workload
	}{
		"a charge that follows from the claim": {
			wl: workload(podSet("main")), plan: &flavors.Plan{Charge: map[string]int64{"main": 8}}, want: workload(podSet("main")),
		},
		"the user's affinity is kept": {
			wl: workload(podSet("main", inZone("a", "b"))), plan: &flavors.Plan{Charge: map[string]int64{"main": 8}}, want: workload(podSet("main", inZone("a", "b"))),
		},
		"a podset without claims is left": {
			wl: workload(podSet("launcher", unclaimed), podSet("main")), plan: &flavors.Plan{Charge: map[string]int64{"main": 8}},
			want: workload(podSet("launcher", unclaimed), podSet("main")),
		},
		"the RuntimeClass's overhead comes with the charge": {
			wl: workload(podSet("main", kata)), want: workload(podSet("main", kata)), plan: &flavors.Plan{
				Charge: map[string]int64{"main": 8}, Overhead: map[string]corev1.ResourceList{"main": {corev1.ResourceMemory: resource.MustParse("160Mi")}},
			},
		},
		"a template that is not there yet leaves the charge open": {
			wl:   workload(podSet("main", func(spec *corev1.PodSpec) { spec.ResourceClaims[0].ResourceClaimTemplateName = ptr.To("nine") })),
			want: workload(podSet("main", func(spec *corev1.PodSpec) { spec.ResourceClaims[0].ResourceClaimTemplateName = ptr.To("nine") })), plan: &flavors.Plan{},
		},
		"flavors of different charges leave the charge open": {
			objects: []client.Object{dearer}, wl: workload(podSet("main")), want: workload(podSet("main")), plan: &flavors.Plan{},
		},
		"what is forged counts for nothing": {
			wl: forged(workload(podSet("main", inZone("a")))), want: workload(podSet("main", inZone("a"))), plan: &flavors.Plan{Charge: map[string]int64{"main": 8}},
		},
		"a forged charge goes, even where the true one is not known yet": {
			objects: []client.Object{dearer}, wl: forged(workload(podSet("main"))), want: workload(podSet("main")), plan: &flavors.Plan{},
		},
		"annotations that cannot be read count for nothing": {
			wl: garbage, want: workload(podSet("main")), plan: &flavors.Plan{Charge: map[string]int64{"main": 8}},
		},
		"a Workload without claims is charged nothing": {wl: overcharged, want: workload(podSet("main", func(spec *corev1.PodSpec) {
			unclaimed(spec)
			spec.Overhead = nil
		}))},
		"a Workload without claims has no annotations of ours": {wl: forgedWithoutClaims, want: workload(podSet("main", unclaimed))},
		"a frozen policy closes": {
			objects: []client.Object{frozen}, wl: workload(podSet("main")), want: workload(podSet("main")), plan: &flavors.Plan{Charge: map[string]int64{"main": 8}},
		},
		"a queue with another order of flavors is closed": {
			objects: []client.Object{clusterQueue("shared", "plimsoll", "a100", "h100")},
			wl:      workload(podSet("main")), want: workload(podSet("main")), plan: &flavors.Plan{Charge: map[string]int64{"main": 8}},
		},
		"a policy that asks for what is not supported yet closes": {
			objects: []client.Object{devicePolicy(func(dp *v1alpha1.DevicePolicy) { dp.Spec.Canary = &v1alpha1.PolicyCanary{PolicyName: "next"} })},
			wl:      workload(podSet("main")), want: workload(podSet("main")), plan: &flavors.Plan{Charge: map[string]int64{"main": 8}},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := serve(t, Options{}, cluster(c.objects...)...)
			want := c.want
			if c.plan != nil {
				want = steered(t, policy(t, c.objects...), *c.plan, want)
			}
			got, _ := applied[kueue.Workload](t, w.ask(WorkloadPath, admissionv1.Create, kueueUser, c.wl, nil), c.wl)
			if diff := cmp.Diff(*want, got); diff != "" {
				t.Errorf("Workload (-want +got):\n%s", diff)
			}
			again, changed := applied[kueue.Workload](t, w.ask(WorkloadPath, admissionv1.Create, kueueUser, got, nil), got)
			if changed {
				t.Errorf("the second time changed (-once +twice):\n%s", cmp.Diff(got, again))
			}
		})
	}
}

func TestWorkloadsThatAreLeftAlone(t *testing.T) {
	copied := workload(podSet("main"))
	copied.Labels = map[string]string{kueue.MultiKueueOriginLabel: "here"}
	elsewhere := workload(podSet("main"))
	elsewhere.Spec.QueueName = "cpu"
	queueless := workload(podSet("main"))
	queueless.Spec.QueueName = ""
	limited := clusterQueue("shared", "plimsoll", "h100", "a100")
	limited.Spec.AdmissionChecksStrategy.AdmissionChecks[1].OnFlavors = []kueue.ResourceFlavorReference{"h100"}
	lookAlike := resourceFlavor("spot")
	lookAlike.Spec.NodeLabels = map[string]string{"accelerator": "h100", "spot": "true"}
	failing := fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(cluster()...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("no answer")
		},
	}).Build()
	cases := map[string]struct {
		opts    Options
		objects []client.Object
		wl      *kueue.Workload
		user    string
	}{
		"one of a queue that does not exist":                {wl: elsewhere},
		"one of no queue":                                   {wl: queueless},
		"one that MultiKueue made":                          {wl: copied},
		"one that the manager writes":                       {wl: workload(podSet("main")), user: ManagerUsername},
		"one that the manager writes by its other name":     {wl: workload(podSet("main")), user: "plimsoll", opts: Options{ManagerUsername: "plimsoll"}},
		"one of a queue whose cluster queue does not exist": {wl: workload(podSet("main")), objects: []client.Object{localQueue("gpu", "gone")}},
		"one of a queue without our check": {
			wl: workload(podSet("main")), objects: []client.Object{clusterQueue("shared", "provision", "h100")},
		},
		"one of a policy that only records": {
			wl: workload(podSet("main")), objects: []client.Object{devicePolicy(func(dp *v1alpha1.DevicePolicy) { dp.Spec.Mode = v1alpha1.ModeShadow })},
		},
		"one of a policy that does not exist":          {wl: workload(podSet("main")), objects: []client.Object{check("plimsoll", v1alpha1.ControllerName, "gone")}},
		"one of a policy that cannot be resolved":      {wl: workload(podSet("main")), objects: []client.Object{devicePolicy(func(dp *v1alpha1.DevicePolicy) { dp.Spec.Flavors[0].Name = "b200" })}},
		"one of a queue whose check is limited":        {wl: workload(podSet("main")), objects: []client.Object{limited}},
		"one of a queue without quota for the devices": {wl: workload(podSet("main")), objects: []client.Object{devicePolicy(func(dp *v1alpha1.DevicePolicy) { dp.Spec.QuotaResource = "tpus" })}},
		"one of a queue with a look-alike of a flavor": {
			wl: workload(podSet("main")), objects: []client.Object{lookAlike, clusterQueue("shared", "plimsoll", "h100", "spot", "a100")},
		},
		"one while nothing can be read": {wl: workload(podSet("main")), opts: Options{Client: failing}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if c.user == "" {
				c.user = kueueUser
			}
			response := serve(t, c.opts, cluster(c.objects...)...).ask(WorkloadPath, admissionv1.Create, c.user, c.wl, nil)
			if got, changed := applied[kueue.Workload](t, response, c.wl); changed {
				t.Errorf("it was changed (-was +is):\n%s", cmp.Diff(*c.wl, got))
			}
		})
	}
}

func TestAWorkloadIsNeverRefused(t *testing.T) {
	w := serve(t, Options{}, cluster()...)
	valid := workload(podSet("main"))
	cases := map[string]struct {
		op       admissionv1.Operation
		obj, old any
	}{
		"an object that cannot be read":     {op: admissionv1.Create, obj: `{"spec":{"podSets":3}}`},
		"an old object that cannot be read": {op: admissionv1.Update, obj: valid, old: `[]`},
		"no object":                         {op: admissionv1.Create},
		"no old object":                     {op: admissionv1.Update, obj: valid},
		"a deletion":                        {op: admissionv1.Delete, old: valid},
		"a connection":                      {op: admissionv1.Connect},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if response := w.ask(WorkloadPath, c.op, kueueUser, c.obj, c.old); !response.Allowed || len(response.Patch) > 0 {
				t.Errorf("allowed is %v, the patch %s: want it let through as it is", response.Allowed, response.Patch)
			}
		})
	}
}

func TestFieldsThatOurTypesDoNotKnowStay(t *testing.T) {
	var object map[string]any
	if err := json.Unmarshal(raw(t, workload(podSet("main"))), &object); err != nil {
		t.Fatal(err)
	}
	delete(object, "status")
	spec := object["spec"].(map[string]any)
	spec["future"] = map[string]any{"a": 1.0}
	template := spec["podSets"].([]any)[0].(map[string]any)["template"].(map[string]any)
	template["spec"].(map[string]any)["future"] = []any{"b"}
	delete(template, "metadata")
	got, changed := applied[map[string]any](t, serve(t, Options{}, cluster()...).ask(WorkloadPath, admissionv1.Create, kueueUser, object, nil), object)
	if !changed {
		t.Fatal("nothing was changed")
	}
	spec = got["spec"].(map[string]any)
	template = spec["podSets"].([]any)[0].(map[string]any)["template"].(map[string]any)
	kept := []any{spec["future"], template["spec"].(map[string]any)["future"], got["status"], template["metadata"]}
	if diff := cmp.Diff([]any{map[string]any{"a": 1.0}, []any{"b"}, nil, nil}, kept); diff != "" {
		t.Errorf("fields that we do not know, or that were not there (-before +after):\n%s", diff)
	}
}
