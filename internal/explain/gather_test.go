package explain

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

func owned(kind, apiVersion, name string, uid types.UID) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: uid, Controller: ptr.To(true)}}
}

func ofJob(name string, uid types.UID) []metav1.OwnerReference {
	return owned("Job", "batch/v1", name, uid)
}

func podOf(name string, owners []metav1.OwnerReference) *corev1.Pod {
	p := pod(name)
	p.UID, p.OwnerReferences = types.UID("pod-"+name), owners
	p.Labels = map[string]string{batchv1.ControllerUidLabel: string(owners[0].UID), "kueue.x-k8s.io/podset": "main"}
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpus", ResourceClaimTemplateName: ptr.To("t-" + name)}}
	return &p
}

// world is a queue with our check, a Job with its Workload, Placement and pods, and what must not be mixed up with them.
func world() []client.Object {
	wl := subject(reserved).Workload
	wl.Labels = map[string]string{jobUIDLabel: "job-1"}
	placement := subject(waiting).Placement
	placement.ObjectMeta = metav1.ObjectMeta{Namespace: "team-a", Name: wl.Name, OwnerReferences: owned("Workload", "kueue.x-k8s.io/v1beta2", wl.Name, wl.UID)}
	old := wl.DeepCopy()
	old.Name, old.UID, old.CreationTimestamp = "job-train-older", "wl-0", at(50)
	old.Status.Conditions = append(old.Status.Conditions, condition(kueue.WorkloadFinished, "True", "OutOfSync", "", 60))
	forged := wl.DeepCopy()
	forged.Name, forged.UID, forged.CreationTimestamp, forged.OwnerReferences = "forged", "wl-9", at(99), ofJob("other", "job-9")
	job := func(name string, uid types.UID, labels map[string]string) *batchv1.Job {
		return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, UID: uid, Labels: labels}}
	}
	inSet := job("set-0", "job-2", nil)
	inSet.OwnerReferences = ofJob("set", "set-1") // the kind of what a Job belongs to does not matter
	ofSet := wl.DeepCopy()
	ofSet.Name, ofSet.UID, ofSet.Labels, ofSet.OwnerReferences = "of-set", "wl-2", nil, ofJob("set", "set-1")
	return []client.Object{
		wl, old, forged, ofSet, placement, inSet,
		job("train", "job-1", nil), job("set", "set-1", nil), job("plain", "job-3", nil),
		job("new", "job-4", map[string]string{"kueue.x-k8s.io/queue-name": "gpus"}),
		podOf("train-1", ofJob("train", "job-1")), podOf("train-0", ofJob("train", "job-1")),
		podOf("set-0-0", ofJob("set-0", "job-2")), podOf("before", ofJob("train", "job-0")),
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "alone"}},
		&resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "t-train-0", Labels: map[string]string{v1alpha1.OwnedLabel: "true"}}},
		&resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "users"}},
		&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "gpus"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "team-a"}},
		&kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}, Spec: kueue.ClusterQueueSpec{AdmissionChecksStrategy: &kueue.AdmissionChecksStrategy{
			AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: "budget"}, {Name: "plimsoll"}, {Name: "gone"}},
		}}},
		&kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "plimsoll"}, Spec: kueue.AdmissionCheckSpec{ControllerName: v1alpha1.ControllerName}},
		&kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "budget"}, Spec: kueue.AdmissionCheckSpec{ControllerName: "example.com/budget"}},
	}
}

// reader serves the world, but answers what names something in errs (a kind, lower case and plural) with that error.
func reader(t *testing.T, errs map[string]error) client.Reader {
	t.Helper()
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	refuse := func(o any) error {
		for kind, err := range errs {
			if strings.HasPrefix(kind, kindOf(o)) {
				return err
			}
		}
		return nil
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(world()...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err := refuse(o); err != nil {
				return err
			}
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := refuse(list); err != nil {
				return err
			}
			return c.List(ctx, list, opts...)
		},
	}).Build()
}

func kindOf(o any) string {
	switch o := o.(type) {
	case *metav1.PartialObjectMetadata:
		return strings.ToLower(o.Kind)
	case *kueue.Workload, *kueue.WorkloadList:
		return "workload"
	case *v1alpha1.Placement:
		return "placement"
	case *kueue.LocalQueue:
		return "localqueue"
	case *kueue.ClusterQueue:
		return "clusterqueue"
	case *kueue.AdmissionCheck:
		return "admissioncheck"
	case *corev1.PodList:
		return "pod"
	case *resourcev1.ResourceClaimTemplateList:
		return "resourceclaimtemplate"
	}
	return "nothing of that kind is read"
}

func forbidden(resource string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "x", errors.New("no rule lets you"))
}

func TestGatherFinds(t *testing.T) {
	type want struct {
		workload  string
		placement bool
		pods      []string
	}
	train := want{"job-train-1f2e3", true, []string{"train-0", "train-1"}}
	cases := map[string]struct {
		target Target
		want   want
	}{
		"a workload by name": {Target{Kind: KindWorkload, Name: "job-train-1f2e3"}, train},
		"a job's workload by owner, the one that has not finished, not one that only has its label": {Target{Kind: KindJob, Name: "train"}, train},
		"a pod's workload over its job":                              {Target{Kind: KindPod, Name: "train-1"}, train},
		"a pod's workload over its job and what the job belongs to":  {Target{Kind: KindPod, Name: "set-0-0"}, want{"of-set", false, []string{}}},
		"a workload without Kueue's label on it, by owner alone too": {Target{Kind: KindJob, Name: "set"}, want{"of-set", false, []string{}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			c.target.Namespace = "team-a"
			s, err := Gather(t.Context(), reader(t, nil), c.target, at(90).Time)
			if err != nil {
				t.Fatal(err)
			}
			got := want{workload: s.Workload.Name, placement: s.Placement != nil, pods: []string{}}
			for _, p := range s.Pods {
				got.pods = append(got.pods, p.Name)
			}
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(want{})); diff != "" {
				t.Errorf("found (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"plimsoll"}, s.Checks); diff != "" {
				t.Errorf("checks (-want +got):\n%s", diff)
			}
			if len(s.Notes) > 0 || s.LocalQueue == nil || s.QueueMissing {
				t.Errorf("notes %q, LocalQueue %v, missing %t", s.Notes, s.LocalQueue, s.QueueMissing)
			}
			if c.want.placement && len(s.Templates) != 1 {
				t.Errorf("got %d templates, want the one that is ours", len(s.Templates))
			}
		})
	}
}

func TestGatherRefuses(t *testing.T) {
	unreachable := &url.Error{Op: "Get", URL: "https://127.0.0.1:1/api", Err: errors.New("connection refused")}
	noKind := &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "plimsoll.dev", Kind: "Placement"}}
	cases := map[string]struct {
		target Target
		errs   map[string]error
		want   string
	}{
		"what does not exist":       {Target{Kind: KindJob, Name: "none"}, nil, "job/none does not exist in namespace team-a"},
		"a job without a queue":     {Target{Kind: KindJob, Name: "plain"}, nil, "job/plain has no Workload: it lacks the label kueue.x-k8s.io/queue-name, so Kueue does not manage it"},
		"a job that is new":         {Target{Kind: KindJob, Name: "new"}, nil, "job/new has no Workload yet: Kueue makes it within a second or so; if it stays, see kubectl describe job new"},
		"a pod that nobody made":    {Target{Kind: KindPod, Name: "alone"}, nil, "pod/alone does not belong to a Workload of Kueue: nothing keeps it waiting but kube-scheduler (kubectl describe pod alone says what)"},
		"a pod whose job was newer": {Target{Kind: KindPod, Name: "before"}, nil, "pod/before belonged to a Job that is gone"},
		"a workload that may not be read": {
			Target{Kind: KindWorkload, Name: "job-train-1f2e3"}, map[string]error{"workload": forbidden("workloads")},
			`you may not read workload/job-train-1f2e3: workloads "x" is forbidden: no rule lets you`,
		},
		"a placement that may not be read": {
			Target{Kind: KindJob, Name: "train"}, map[string]error{"placement": forbidden("placements")},
			`you may not read the Placement of workload/job-train-1f2e3: placements "x" is forbidden: no rule lets you`,
		},
		"a cluster without Plimsoll": {
			Target{Kind: KindJob, Name: "train"}, map[string]error{"placement": noKind},
			"cannot read the Placement of workload/job-train-1f2e3: the cluster has no kind Placement.plimsoll.dev; is Plimsoll installed?",
		},
		"a cluster that is away": {
			Target{Kind: KindJob, Name: "train"}, map[string]error{"job": unreachable},
			"cannot reach the cluster at https://127.0.0.1:1/api: connection refused",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			c.target.Namespace = "team-a"
			_, err := Gather(t.Context(), reader(t, c.errs), c.target, at(90).Time)
			if err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestGatherDoesWithoutWhatIsOnlyContext(t *testing.T) {
	errs := map[string]error{}
	for _, kind := range []string{"job", "localqueue", "clusterqueue", "pod", "resourceclaimtemplate"} {
		errs[kind] = forbidden(kind + "s")
	}
	s, err := Gather(t.Context(), reader(t, errs), Target{KindWorkload, "team-a", "job-train-1f2e3"}, at(90).Time)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`you may not read Job train: jobs "x" is forbidden: no rule lets you`,
		`you may not read LocalQueue gpus: localqueues "x" is forbidden: no rule lets you`,
		`you may not read the pods: pods "x" is forbidden: no rule lets you`,
	}
	if diff := cmp.Diff(want, s.Notes); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
	if s.Checks != nil {
		t.Errorf("checks are %v, want not known", s.Checks)
	}
	if s.Placement == nil {
		t.Error("the Placement is missing")
	}
}

func TestGatherTakesNoPlacementOfAnEarlierWorkload(t *testing.T) {
	c := reader(t, nil).(client.Client)
	wl := &kueue.Workload{}
	key := client.ObjectKey{Namespace: "team-a", Name: "job-train-1f2e3"}
	if err := c.Get(t.Context(), key, wl); err != nil {
		t.Fatal(err)
	}
	wl.UID = "wl-new"
	if err := c.Update(t.Context(), wl); err != nil {
		t.Fatal(err)
	}
	s, err := Gather(t.Context(), c, Target{KindWorkload, key.Namespace, key.Name}, at(90).Time)
	if err != nil {
		t.Fatal(err)
	}
	if s.Placement != nil {
		t.Error("got the Placement of a Workload with another uid")
	}
}

func TestParseTarget(t *testing.T) {
	cases := map[string]struct {
		args []string
		want Target
		err  string
	}{
		"kind/name":             {args: []string{"job/train"}, want: Target{Kind: KindJob, Name: "train"}},
		"kind and name":         {args: []string{"Pod", "train-0"}, want: Target{Kind: KindPod, Name: "train-0"}},
		"kind with its group":   {args: []string{"jobs.batch/train"}, want: Target{Kind: KindJob, Name: "train"}},
		"short":                 {args: []string{"wl/train"}, want: Target{Kind: KindWorkload, Name: "train"}},
		"a name alone":          {args: []string{"train"}, err: `"train" has no kind: ` + forms},
		"no name":               {args: []string{"job/"}, err: `"" is no name: ` + forms},
		"more than a name":      {args: []string{"job/train/0"}, err: `"train/0" is no name: ` + forms},
		"a kind that is not it": {args: []string{"node/a"}, err: `"node" cannot be explained: ` + forms},
		"nothing":               {err: forms},
		"several":               {args: []string{"job", "a", "b"}, err: "that is more than one: " + forms},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := ParseTarget(c.args...)
			if got != c.want || (err == nil) != (c.err == "") || err != nil && err.Error() != c.err {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}
