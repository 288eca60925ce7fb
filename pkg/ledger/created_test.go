package ledger

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// list reads pairs of a resource and an amount.
func list(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func seeLimits(name string, version uint64, items ...corev1.LimitRangeItem) Observation {
	for i := range items {
		if items[i].Type == "" {
			items[i].Type = corev1.LimitTypeContainer
		}
	}
	return Observation{Ref: ref(KindLimitRange, name, version), LimitRange: &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name)}, Spec: corev1.LimitRangeSpec{Limits: items},
	}}
}

func seeRuntime(name string, version uint64, overhead ...string) Observation {
	c := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Handler: "sandbox"}
	if len(overhead) > 0 {
		c.Overhead = &nodev1.Overhead{PodFixed: list(overhead...)}
	}
	return Observation{Ref: ref(KindRuntimeClass, name, version), RuntimeClass: c}
}

// template has a Workload's pods made of a spec.
func template(o Observation, spec corev1.PodSpec) Observation {
	w := *o.Workload
	w.Templates = map[string]Template{"main": {Spec: &spec, Overhead: spec.Overhead}}
	w.Requests = map[string]Amounts{"main": RequestsOf(&corev1.Pod{Spec: spec}, false)}
	o.Workload = &w
	return o
}

func containers(asks ...corev1.ResourceList) []corev1.Container {
	var out []corev1.Container
	for _, l := range asks {
		out = append(out, corev1.Container{Resources: corev1.ResourceRequirements{Requests: l}})
	}
	return out
}

// TestAPodIsPromisedWhatItWillAskFor: what admission plugins of the API server add to a pod is held for it from the start.
func TestAPodIsPromisedWhatItWillAskFor(t *testing.T) {
	always := ptr.To(corev1.ContainerRestartPolicyAlways)
	for name, tc := range map[string]struct {
		spec corev1.PodSpec
		seen []Observation
		want Amounts
	}{
		"as the template says, where nothing is added": {
			spec: corev1.PodSpec{Containers: containers(list("cpu", "2"))}, want: Amounts{"cpu": 2000, "pods": 1},
		},
		"a LimitRange's default request, for each container that asks for none": {
			spec: corev1.PodSpec{Containers: containers(list("cpu", "2"), nil, nil)},
			seen: []Observation{seeLimits("l", 1, corev1.LimitRangeItem{DefaultRequest: list("cpu", "3", "memory", "1Gi")})},
			want: Amounts{"cpu": 8000, "memory": 3 << 30, "pods": 1},
		},
		"its default limit, where it has no default request, else its maximum, else its minimum": {
			spec: corev1.PodSpec{Containers: containers(nil)},
			seen: []Observation{seeLimits("l", 1, corev1.LimitRangeItem{Default: list("cpu", "3"), Max: list("cpu", "8", "memory", "2Gi"), Min: list("memory", "1Gi", "ephemeral-storage", "4Gi")})},
			want: Amounts{"cpu": 3000, "memory": 2 << 30, "ephemeral-storage": 4 << 30, "pods": 1},
		},
		"the most of several LimitRanges, as the API server takes them in any order": {
			spec: corev1.PodSpec{Containers: containers(nil)},
			seen: []Observation{seeLimits("a", 1, corev1.LimitRangeItem{DefaultRequest: list("cpu", "1", "memory", "2Gi")}), seeLimits("b", 1, corev1.LimitRangeItem{DefaultRequest: list("cpu", "2", "memory", "1Gi")})},
			want: Amounts{"cpu": 2000, "memory": 2 << 30, "pods": 1},
		},
		"nothing of a LimitRange for pods, or of another namespace": {
			spec: corev1.PodSpec{Containers: containers(nil)},
			seen: []Observation{seeLimits("l", 1, corev1.LimitRangeItem{Type: corev1.LimitTypePod, Max: list("cpu", "8")}), func() Observation {
				o := seeLimits("m", 1, corev1.LimitRangeItem{DefaultRequest: list("cpu", "3")})
				o.LimitRange.Namespace = "other"
				return o
			}()},
			want: Amounts{"pods": 1},
		},
		"what is limited is asked for, and not the default": {
			spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Limits: list("cpu", "1")}}}},
			seen: []Observation{seeLimits("l", 1, corev1.LimitRangeItem{DefaultRequest: list("cpu", "3")})},
			want: Amounts{"cpu": 1000, "pods": 1},
		},
		"the most of init containers and sidecars, with the default for each": {
			spec: corev1.PodSpec{
				InitContainers: []corev1.Container{{RestartPolicy: always}, {Resources: corev1.ResourceRequirements{Requests: list("cpu", "9")}}},
				Containers:     containers(nil),
			},
			seen: []Observation{seeLimits("l", 1, corev1.LimitRangeItem{DefaultRequest: list("cpu", "3")})},
			want: Amounts{"cpu": 12000, "pods": 1},
		},
		"what its RuntimeClass fixes": {
			spec: corev1.PodSpec{RuntimeClassName: ptr.To("kata"), Containers: containers(list("cpu", "2"))},
			seen: []Observation{seeRuntime("kata", 1, "cpu", "250m", "memory", "1Gi"), seeRuntime("other", 1, "cpu", "9")},
			want: Amounts{"cpu": 2250, "memory": 1 << 30, "pods": 1},
		},
		"what its RuntimeClass fixes now, though less stands in the podset": {
			spec: corev1.PodSpec{RuntimeClassName: ptr.To("kata"), Overhead: list("cpu", "250m"), Containers: containers(list("cpu", "2"))},
			seen: []Observation{seeRuntime("kata", 1, "cpu", "250m"), seeRuntime("kata", 2, "cpu", "500m")},
			want: Amounts{"cpu": 2500, "pods": 1},
		},
		"nothing more once the LimitRange and the RuntimeClass are gone": {
			spec: corev1.PodSpec{RuntimeClassName: ptr.To("kata"), Containers: containers(nil)},
			seen: []Observation{
				seeLimits("l", 1, corev1.LimitRangeItem{DefaultRequest: list("cpu", "3")}), gone(seeLimits("l", 1)),
				seeRuntime("kata", 1, "cpu", "250m"), gone(seeRuntime("kata", 1)),
			},
			want: Amounts{"pods": 1},
		},
		"a pod's own limits, as the API server makes requests of them": {
			spec: corev1.PodSpec{Resources: &corev1.ResourceRequirements{Limits: list("cpu", "8", "memory", "4Gi")}, Containers: containers(list("cpu", "2"))},
			want: Amounts{"cpu": 2000, "memory": 4 << 30, "pods": 1},
		},
		"of a pod that asks as a whole the whole, whatever its containers are given": {
			spec: corev1.PodSpec{Resources: &corev1.ResourceRequirements{Requests: list("cpu", "5")}, Containers: containers(nil, nil)},
			seen: []Observation{seeLimits("l", 1, corev1.LimitRangeItem{DefaultRequest: list("cpu", "1", "memory", "1Gi")})},
			want: Amounts{"cpu": 5000, "memory": 2 << 30, "pods": 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			workload := template(seeWorkload("w", 1, 100), tc.spec)
			rest := append([]Observation{seeNode("a", 1, nil), seePlacement("w", 1, 100, "a", 2)}, tc.seen...)
			for when, seen := range map[string][]Observation{"first": append([]Observation{workload}, rest...), "last": append(rest, workload)} {
				b := New()
				for _, o := range seen {
					b.Apply(o)
					b.Snapshot()
				}
				n := b.Snapshot().Node("a")
				got := Amounts{}
				for _, u := range n.Uses {
					got.Add(u.Requests, 1)
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("one slot holds, with the Workload seen %s (-want +got):\n%s", when, diff)
				}
				if want := n.Allocatable["cpu"] - 2*tc.want["cpu"]; n.Free["cpu"] != want {
					t.Errorf("%d thousandths of cpu are free with the Workload seen %s, want %d", n.Free["cpu"], when, want)
				}
			}
		})
	}
}

// TestSteeringATemplateChangesNoAccount: only what a pod asks for is looked at.
func TestSteeringATemplateChangesNoAccount(t *testing.T) {
	spec := corev1.PodSpec{Containers: containers(nil)}
	b := bookOf(seeNode("a", 1, nil), seeLimits("l", 1, corev1.LimitRangeItem{DefaultRequest: list("cpu", "3")}), template(seeWorkload("w", 1, 100), spec), seePlacement("w", 1, 100, "a", 1))
	spec.NodeSelector = map[string]string{"model": "h100"}
	if outcome, changed := b.Apply(template(seeWorkload("w", 2, 100), spec)); outcome != Applied || changed {
		t.Errorf("a node selector in the template: %s, changed %t; want it applied, and nothing changed", outcome, changed)
	}
	spec.Containers = containers(list("cpu", "1"))
	if _, changed := b.Apply(template(seeWorkload("w", 3, 100), spec)); !changed {
		t.Error("a request in the template changed nothing")
	}
}
