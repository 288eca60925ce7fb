package simulate

import (
	"bytes"
	"context"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/parts"
	"github.com/plimsoll-dev/plimsoll/internal/simulate/input"
	"github.com/plimsoll-dev/plimsoll/pkg/simulate"
)

// scenario reads a folder of test/scenarios.
func scenario(t *testing.T, name string) *input.Input {
	t.Helper()
	file := filepath.Join("../../test/scenarios", name, "input.yaml")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	in, err := input.Read([]input.File{{Name: file, Data: data}}, input.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// lists are the kinds of a dump.
func lists() []client.ObjectList {
	return []client.ObjectList{
		&corev1.NamespaceList{}, &corev1.NodeList{}, &corev1.LimitRangeList{}, &nodev1.RuntimeClassList{}, &schedulingv1.PriorityClassList{},
		&resourcev1.DeviceClassList{}, &resourcev1.ResourceSliceList{}, &resourcev1.ResourceClaimTemplateList{}, &resourcev1.ResourceClaimList{},
		&kueue.ResourceFlavorList{}, &kueue.WorkloadPriorityClassList{}, &kueue.AdmissionCheckList{}, &kueue.CohortList{}, &kueue.ClusterQueueList{}, &kueue.LocalQueueList{},
		&v1alpha1.DevicePolicyList{}, &v1alpha1.PlacementList{}, &batchv1.JobList{}, &kueue.WorkloadList{}, &corev1.PodList{},
	}
}

// dumped is a dump of a run, as kubectl prints it, and what of the run's input was still to come.
type dumped struct {
	objects []client.Object
}

// stopAt runs an input up to a time and takes a dump. What was still to come is in it, from the new start on.
func stopAt(t *testing.T, in *input.Input, at time.Duration) *dumped {
	t.Helper()
	r, cleanup, err := prepare(t.Context(), in, Options{Until: &at})
	if err != nil {
		t.Fatal(err)
	}
	defer cleanup()
	if _, err := r.play(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	d := &dumped{}
	for _, list := range lists() {
		if err := r.client.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		items, err := meta.ExtractList(list)
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range items {
			d.objects = append(d.objects, item.(client.Object))
		}
	}
	// time 0 of the dump is its latest time, so that what is to come is later by the rest
	for _, o := range d.objects {
		annotations := o.GetAnnotations()
		delete(annotations, "simulate.plimsoll.dev/at")
		delete(annotations, "simulate.plimsoll.dev/delete-at")
		o.SetAnnotations(annotations)
	}
	later := in.Start.Add(at).Sub(d.read(t).Start)
	for i := range in.Objects {
		o := &in.Objects[i]
		if o.DeleteAt != nil && *o.DeleteAt > at && o.At <= at {
			for _, have := range d.objects {
				if fmt.Sprintf("%T", have) == fmt.Sprintf("%T", o.Object) && client.ObjectKeyFromObject(have) == client.ObjectKeyFromObject(o.Object) {
					annotate(have, "delete-at", *o.DeleteAt-at+later)
				}
			}
		}
		if o.At > at {
			next := o.Object.DeepCopyObject().(client.Object)
			annotate(next, "at", o.At-at+later)
			if o.DeleteAt != nil {
				annotate(next, "delete-at", *o.DeleteAt-at+later)
			}
			d.objects = append(d.objects, next)
		}
	}
	return d
}

func annotate(o client.Object, name string, value time.Duration) {
	annotations := map[string]string{}
	for k, v := range o.GetAnnotations() {
		annotations[k] = v
	}
	annotations["simulate.plimsoll.dev/"+name] = value.String()
	o.SetAnnotations(annotations)
}

// read reads a dump from its YAML.
func (d *dumped) read(t *testing.T) *input.Input {
	t.Helper()
	var text strings.Builder
	for _, o := range d.objects {
		gvk, err := apiutil.GVKForObject(o, parts.Scheme())
		if err != nil {
			t.Fatal(err)
		}
		o.GetObjectKind().SetGroupVersionKind(gvk)
		data, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&text, "---\n%s", data)
	}
	in, err := input.Read([]input.File{{Name: "dump.yaml", Data: []byte(text.String())}}, input.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func (d *dumped) shuffled(seed int64) *dumped {
	out := &dumped{objects: slices.Clone(d.objects)}
	rand.New(rand.NewSource(seed)).Shuffle(len(out.objects), func(i, j int) { out.objects[i], out.objects[j] = out.objects[j], out.objects[i] })
	return out
}

func (d *dumped) without(drop func(client.Object) bool) *dumped {
	return &dumped{objects: slices.DeleteFunc(slices.Clone(d.objects), drop)}
}

func runOf(t *testing.T, in *input.Input) *simulate.Result {
	t.Helper()
	r, err := Run(context.Background(), in, Options{Warn: func(s string) { t.Log("warning: " + s) }})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// story is what became of the workloads, in times of the clock on the wall. Of one that was evicted before the dump nobody
// knows any more that it ran: only what came after counts.
func story(in *input.Input, r *simulate.Result, from time.Time) map[string]string {
	out := map[string]string{}
	for i := range r.Workloads {
		w := &r.Workloads[i]
		var s strings.Builder
		fmt.Fprint(&s, w.Outcome)
		for _, a := range w.Admissions {
			at := in.Start.Add(time.Duration(a.At) * time.Second)
			if a.EndedAt != nil && in.Start.Add(time.Duration(*a.EndedAt)*time.Second).Compare(from) <= 0 && *a.End != "Finished" {
				continue
			}
			fmt.Fprintf(&s, "; %s %v", at.Format(time.TimeOnly), a.Flavors)
			if a.EndedAt != nil {
				fmt.Fprintf(&s, " to %s %s", in.Start.Add(time.Duration(*a.EndedAt)*time.Second).Format(time.TimeOnly), *a.End)
			}
		}
		if len(w.Admissions) > 0 {
			for _, p := range w.Pods {
				fmt.Fprintf(&s, "; %s %v", p.Node, p.Devices)
			}
		}
		out[w.Namespace+"/"+w.Name] = s.String()
	}
	return out
}

// dumps are moments of scenarios. Of each the rest is the same from a dump as without one.
var dumps = map[string]struct {
	scenario string
	at       time.Duration
	// has says what of the dump the case is about.
	has func(client.Object) bool
}{
	"what runs on a promise goes on":               {"busy-then-next", 2 * time.Second, promised},
	"who waits for a flavor has waited already":    {"busy-then-next", 8 * time.Second, waits},
	"who has waited long enough goes on waiting":   {"waited-out", 12 * time.Second, waits},
	"an adopted Job stays as it is":                {"check-joins", 8 * time.Second, adoptedReady},
	"a Job is adopted when the check joins later":  {"check-joins", 2 * time.Second, checked},
	"pods that end, of a Job that was evicted":     {"preempt-grace", 20 * time.Second, ending},
	"a Job is in the second of its waves":          {"completions", 16 * time.Second, ofPhase(corev1.PodSucceeded)},
	"a part of the pods has given its places back": {"reclaimable-pods", 14 * time.Second, ofPhase(corev1.PodSucceeded)},
	"a gang":                          {"gang-fourth-node", 8 * time.Second, promised},
	"two podsets":                     {"two-podsets", 4 * time.Second, promised},
	"devices of an extended resource": {"extended-by-class", 2 * time.Second, promised},
	"devices of a plugin":             {"plugin-node", 2 * time.Second, promised},
	"who was evicted and waits, has its place": {"reclaim", 14 * time.Second, waitsEvicted},
}

func promised(o client.Object) bool {
	p, ok := o.(*v1alpha1.Placement)
	return ok && p.Spec.Key != nil
}

func waits(o client.Object) bool {
	p, ok := o.(*v1alpha1.Placement)
	return ok && len(p.Status.Waits) > 0
}

func checked(o client.Object) bool {
	wl, ok := o.(*kueue.Workload)
	return ok && meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadAdmitted) && len(wl.Status.AdmissionChecks) == 0
}

func adoptedReady(o client.Object) bool {
	wl, ok := o.(*kueue.Workload)
	return ok && len(wl.Status.AdmissionChecks) == 1 && wl.Status.AdmissionChecks[0].State == kueue.CheckStateReady && len(wl.Status.AdmissionChecks[0].PodSetUpdates) == 0
}

func ending(o client.Object) bool {
	_, ok := o.(*corev1.Pod)
	return ok && o.GetDeletionTimestamp() != nil
}

func waitsEvicted(o client.Object) bool {
	wl, ok := o.(*kueue.Workload)
	return ok && meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadEvicted)
}

func ofPhase(phase corev1.PodPhase) func(client.Object) bool {
	return func(o client.Object) bool {
		p, ok := o.(*corev1.Pod)
		return ok && p.Status.Phase == phase
	}
}

func TestDumpGoesOnAsWithoutOne(t *testing.T) {
	for name, c := range dumps {
		t.Run(name, func(t *testing.T) {
			in := scenario(t, c.scenario)
			d := stopAt(t, in, c.at)
			if !slices.ContainsFunc(d.objects, c.has) {
				t.Fatal("the dump is not what the case is about")
			}
			again := d.read(t)
			got, want := runOf(t, again), story(in, runOf(t, in), again.Start)
			if c.scenario == "reclaimable-pods" { // whose place a slot was that was given back before no object says any more
				want["team-a/odd"] = strings.Replace(want["team-a/odd"], "; h100-0 "+fmt.Sprint(gpus(4, 8)), "", 1)
			}
			if diff := cmp.Diff(want, story(again, got, again.Start)); diff != "" {
				t.Errorf("-whole +from the dump:\n%s", diff)
			}
			if !bytes.Equal(got.JSON(), runOf(t, d.shuffled(1).read(t)).JSON()) {
				t.Error("the dump's objects in another order come to something else")
			}
		})
	}
}

// gpus are the devices of h100-0 from one number up to another.
func gpus(from, to int) (out []string) {
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprintf("gpu.nvidia.com/h100-0/gpu-%d", i))
	}
	return out
}

func TestDumpWithoutPlacements(t *testing.T) {
	for name, c := range dumps {
		t.Run(name, func(t *testing.T) {
			d := stopAt(t, scenario(t, c.scenario), c.at).without(func(o client.Object) bool { _, is := o.(*v1alpha1.Placement); return is })
			in := d.read(t)
			r := runOf(t, in)
			for _, o := range d.objects {
				wl, ok := o.(*kueue.Workload)
				if !ok || !admitted(wl) {
					continue
				}
				for i := range r.Workloads {
					if w := &r.Workloads[i]; w.Key() == keyOf(wl) && (len(w.Admissions) != 1 || w.Admissions[0].At > 0) {
						t.Errorf("%s was admitted before, and then: %+v", wl.Name, w.Admissions)
					}
				}
			}
		})
	}
}

// An eviction of the manager's is two patches. A dump from between them has the nonce, and the second is still to come.
func TestDumpOfAnEvictionUnderWay(t *testing.T) {
	d := stopAt(t, scenario(t, "busy-then-next"), 2*time.Second)
	found := false
	for _, o := range d.objects {
		if wl, ok := o.(*kueue.Workload); ok {
			found = true
			wl.Spec.Active = ptr.To(false)
			wl.Annotations[v1alpha1.SteeringAnnotation] = "nonce"
		}
	}
	if !found {
		t.Fatal("no Workload in the dump")
	}
	in := d.read(t)
	got := story(in, runOf(t, in), in.Start.Add(-time.Second))
	want := "Finished; 00:00:00 map[main:h100] to 00:00:00 Deactivated; 00:00:00 map[main:h100] to 00:00:40 Finished"
	if !strings.HasPrefix(got["team-a/busy"], want) {
		t.Errorf("got %s, want %s", got["team-a/busy"], want)
	}
}
