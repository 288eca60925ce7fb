package webhook

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
)

// update changes what others than the manager may have done to a Workload.
type update func(*kueue.Workload)

func with(condition string) update {
	return func(wl *kueue.Workload) {
		wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue})
	}
}

// rewritten is what Kueue does after an edit of the Job: the podsets anew, annotations kept.
func rewritten(podSets ...kueue.PodSet) update {
	return func(wl *kueue.Workload) { wl.Spec.PodSets = podSets }
}

// onFlavors is a required node affinity that reads as an allowed set.
func onFlavors(names ...string) func(*corev1.PodSpec) {
	return func(spec *corev1.PodSpec) {
		inZone(names...)(spec)
		terms := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
		for i := range terms {
			terms[i].MatchExpressions[0].Key = "accelerator"
		}
	}
}

func edited(spec *corev1.PodSpec) { spec.Containers[0].Image = "train:2" }

func kata(spec *corev1.PodSpec) { spec.RuntimeClassName = ptr.To("kata") }

func TestUpdatesAreMended(t *testing.T) {
	charge := map[string]int64{"main": 8}
	overhead := map[string]corev1.ResourceList{"main": {corev1.ResourceMemory: resource.MustParse("160Mi")}}
	open := flavors.Plan{Allowed: []string{"a100"}, Charge: charge}
	manyZones := make([]string, 100)
	for i := range manyZones {
		manyZones[i] = fmt.Sprint(i)
	}
	selfOpened := func(wl *kueue.Workload) {
		steered(t, policy(t), flavors.Plan{Allowed: []string{"h100", "a100"}, Charge: map[string]int64{"main": 1}}, wl)
	}
	cases := map[string]struct {
		objects []client.Object
		born    kueue.PodSet
		plan    flavors.Plan // what the manager wrote last
		before  update       // what old and new have in common besides
		change  update
		want    kueue.PodSet // the podset that the user has now, …
		steered flavors.Plan // … and what is written into it
	}{
		"a container edit restores the empty set and the charge": {
			born: podSet("main"), plan: flavors.Plan{Charge: charge}, change: rewritten(podSet("main", edited)),
			want: podSet("main", edited), steered: flavors.Plan{Charge: charge},
		},
		"a container edit restores the open set and the charge": {
			born: podSet("main"), plan: open, change: rewritten(podSet("main", edited)), want: podSet("main", edited), steered: open,
		},
		"a container edit restores the RuntimeClass's overhead": {
			born: podSet("main", kata), plan: flavors.Plan{Allowed: []string{"h100"}, Charge: charge, Overhead: overhead}, change: rewritten(podSet("main", kata, edited)),
			want: podSet("main", kata, edited), steered: flavors.Plan{Allowed: []string{"h100"}, Charge: charge, Overhead: overhead},
		},
		"an affinity that was edited with the Job is the user's": {
			born: podSet("main", inZone("a")), plan: open, change: rewritten(podSet("main", inZone("b"))), want: podSet("main", inZone("b")), steered: open,
		},
		"an affinity that was edited away is the user's": {
			born: podSet("main", inZone("a")), plan: open, change: rewritten(podSet("main")), want: podSet("main"), steered: open,
		},
		"nobody opens a Workload for himself: what he writes is his own affinity": {
			born: podSet("main"), plan: flavors.Plan{Charge: charge}, change: selfOpened, want: podSet("main", onFlavors("h100", "a100")), steered: flavors.Plan{Charge: charge},
		},
		"nobody lowers his charge": {
			born: podSet("main"), plan: open, want: podSet("main"), steered: open,
			change: func(wl *kueue.Workload) { wl.Spec.PodSets[0].Template.Spec.Overhead["gpus"] = resource.MustParse("1") },
		},
		"nobody takes our annotations out": {
			born: podSet("main"), plan: open, want: podSet("main"), steered: open, change: func(wl *kueue.Workload) { wl.Annotations = map[string]string{"example.com/own": "kept"} },
		},
		"nobody writes a nonce": {
			born: podSet("main"), plan: open, want: podSet("main"), steered: open, change: func(wl *kueue.Workload) { wl.Annotations[v1alpha1.SteeringAnnotation] = "nonce" },
		},
		"a Workload that came while the webhook was away is closed": {
			born: podSet("main", inZone("a")), change: func(*kueue.Workload) {}, want: podSet("main", inZone("a")), steered: flavors.Plan{Charge: charge},
			before: func(wl *kueue.Workload) { flavorsLeave(wl) },
		},
		"more terms than can be opened are closed": {
			born: podSet("main"), plan: flavors.Plan{Allowed: []string{"h100", "a100"}, Charge: charge}, change: rewritten(podSet("main", inZone(manyZones...))),
			want: podSet("main", inZone(manyZones...)), steered: flavors.Plan{Charge: charge},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := serve(t, Options{}, cluster(c.objects...)...)
			old := steered(t, policy(t), c.plan, workload(*c.born.DeepCopy()))
			if c.before != nil {
				c.before(old)
			}
			now := old.DeepCopy()
			c.change(now)
			got, _ := applied[kueue.Workload](t, w.ask(WorkloadPath, admissionv1.Update, kueueUser, now, old), now)
			want := steered(t, policy(t), c.steered, workload(c.want))
			if diff := cmp.Diff(*want, got); diff != "" {
				t.Errorf("Workload (-want +got):\n%s", diff)
			}
			if again, changed := applied[kueue.Workload](t, w.ask(WorkloadPath, admissionv1.Update, kueueUser, got, got), got); changed {
				t.Errorf("the next update changed (-was +is):\n%s", cmp.Diff(got, again))
			}
		})
	}
}

// flavorsLeave makes a Workload one that was never steered.
func flavorsLeave(wl *kueue.Workload) { (*flavors.Policy)(nil).Leave(wl) }

func TestUpdatesThatAreLeftAlone(t *testing.T) {
	selfOpened := func(wl *kueue.Workload) { wl.Spec.PodSets[0].Template.Spec.Affinity = nil }
	cases := map[string]struct {
		before, change update
		user           string
	}{
		"one that changes nothing of ours": {change: func(wl *kueue.Workload) { wl.Spec.Active = ptr.To(false) }},
		"the manager's own": {change: func(wl *kueue.Workload) {
			steered(t, policy(t), flavors.Plan{Allowed: []string{"h100"}, Charge: map[string]int64{"main": 8}}, wl)
		}, user: ManagerUsername},
		"one of a Workload that is finished":        {before: with(kueue.WorkloadFinished), change: selfOpened},
		"one of a Workload that is being deleted":   {before: func(wl *kueue.Workload) { wl.DeletionTimestamp = ptr.To(metav1.Unix(1, 0)) }, change: selfOpened},
		"one of a Workload that MultiKueue made":    {before: func(wl *kueue.Workload) { wl.Labels = map[string]string{kueue.MultiKueueOriginLabel: "here"} }, change: selfOpened},
		"the podsets of one that holds quota":       {before: with(kueue.WorkloadQuotaReserved), change: selfOpened},
		"one that goes to a queue that is not ours": {change: func(wl *kueue.Workload) { wl.Spec.QueueName = "cpu" }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			old := steered(t, policy(t), flavors.Plan{Charge: map[string]int64{"main": 8}}, workload(podSet("main")))
			if c.before != nil {
				c.before(old)
			}
			now := old.DeepCopy()
			c.change(now)
			if c.user == "" {
				c.user = "alice"
			}
			response := serve(t, Options{}, cluster()...).ask(WorkloadPath, admissionv1.Update, c.user, now, old)
			if got, changed := applied[kueue.Workload](t, response, now); changed {
				t.Errorf("it was changed (-asked +got):\n%s", cmp.Diff(*now, got))
			}
		})
	}
}

func TestALabelOfMultiKueueThatComesLaterChangesNothing(t *testing.T) {
	plan := flavors.Plan{Charge: map[string]int64{"main": 8}}
	old := steered(t, policy(t), plan, workload(podSet("main")))
	now := old.DeepCopy()
	now.Labels = map[string]string{kueue.MultiKueueOriginLabel: "here"}
	now.Spec.PodSets[0] = podSet("main")
	got, _ := applied[kueue.Workload](t, serve(t, Options{}, cluster()...).ask(WorkloadPath, admissionv1.Update, "alice", now, old), now)
	if diff := cmp.Diff(old.Spec, got.Spec); diff != "" {
		t.Errorf("spec (-before +after):\n%s", diff)
	}
}

func TestAnnotationsOfAWorkloadThatHoldsQuotaAreTheManagers(t *testing.T) {
	old := steered(t, policy(t), flavors.Plan{Allowed: []string{"a100"}, Charge: map[string]int64{"main": 8}}, workload(podSet("main")))
	with(kueue.WorkloadQuotaReserved)(old)
	old.Annotations[v1alpha1.SteeringAnnotation] = "nonce"
	now := old.DeepCopy()
	now.Annotations[v1alpha1.ChargeAnnotation] = `{"main":"1"}`
	now.Annotations[v1alpha1.AllowedFlavorsAnnotation] = "h100"
	now.Annotations["example.com/other"] = "new"
	delete(now.Annotations, v1alpha1.UserAffinityAnnotation)
	delete(now.Annotations, v1alpha1.SteeringAnnotation)
	got, _ := applied[kueue.Workload](t, serve(t, Options{}, cluster()...).ask(WorkloadPath, admissionv1.Update, "alice", now, old), now)
	want := old.DeepCopy()
	want.Annotations["example.com/other"] = "new"
	if diff := cmp.Diff(*want, got); diff != "" {
		t.Errorf("Workload (-want +got):\n%s", diff)
	}
}

func TestAWorkloadThatChangesItsQueueIsClosedByTheNewPolicy(t *testing.T) {
	other := devicePolicy(func(dp *v1alpha1.DevicePolicy) {
		dp.Name = "other"
		dp.Spec.QuotaResource = "memory-gib"
		dp.Spec.Flavors[0].ChargePerDevice, dp.Spec.Flavors[1].ChargePerDevice = 80, 80
	})
	queue := clusterQueue("second", "plimsoll-other", "h100", "a100")
	queue.Spec.ResourceGroups[0].CoveredResources = []corev1.ResourceName{"cpu", "memory-gib"}
	objects := []client.Object{other, queue, check("plimsoll-other", v1alpha1.ControllerName, "other"), localQueue("gpu-too", "second")}
	old := steered(t, policy(t), flavors.Plan{Allowed: []string{"a100"}, Charge: map[string]int64{"main": 8}}, workload(podSet("main", inZone("a"))))
	now := old.DeepCopy()
	now.Spec.QueueName = "gpu-too"
	got, _ := applied[kueue.Workload](t, serve(t, Options{}, cluster(objects...)...).ask(WorkloadPath, admissionv1.Update, "alice", now, old), now)
	newPolicy := policy(t, append(objects, localQueue("gpu", "second"))...)
	want := steered(t, newPolicy, flavors.Plan{Charge: map[string]int64{"main": 640}}, workload(podSet("main", inZone("a"))))
	want.Spec.QueueName = "gpu-too"
	if diff := cmp.Diff(*want, got); diff != "" {
		t.Errorf("Workload (-want +got):\n%s", diff)
	}
}

func TestAWorkloadIsClosedWhileItsRuntimeClassCannotBeRead(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(cluster()...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, ok := obj.(*nodev1.RuntimeClass); ok {
				return errors.New("no answer")
			}
			return c.Get(ctx, key, obj, opts...)
		},
	}).Build()
	w := serve(t, Options{Client: c})
	created := workload(podSet("main", kata))
	got, _ := applied[kueue.Workload](t, w.ask(WorkloadPath, admissionv1.Create, kueueUser, created, nil), created)
	if diff := cmp.Diff(*steered(t, policy(t), flavors.Plan{}, workload(podSet("main", kata))), got); diff != "" {
		t.Errorf("created (-closed without a charge +got):\n%s", diff)
	}
	charge := map[string]int64{"main": 8}
	old := steered(t, policy(t), flavors.Plan{Allowed: []string{"a100"}, Charge: charge}, workload(podSet("main", kata)))
	now := old.DeepCopy()
	rewritten(podSet("main", kata))(now)
	got, _ = applied[kueue.Workload](t, w.ask(WorkloadPath, admissionv1.Update, kueueUser, now, old), now)
	if diff := cmp.Diff(*steered(t, policy(t), flavors.Plan{Charge: charge}, workload(podSet("main", kata))), got); diff != "" {
		t.Errorf("updated (-closed +got):\n%s", diff)
	}
}

func TestStatusOfAWorkloadIsNotLookedAt(t *testing.T) {
	w := serve(t, Options{}, cluster()...)
	wl := workload(podSet("main"))
	req := request(t, admissionv1.Update, wl, wl)
	req.SubResource = "status"
	if response := w.handlers[WorkloadPath].Handle(context.Background(), req); !response.Allowed || len(response.Patch) > 0 {
		t.Errorf("allowed is %v, the patch %s: want it let through as it is", response.Allowed, response.Patch)
	}
}
