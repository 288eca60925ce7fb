package inspect

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

var update = flag.Bool("update", false, "write what is printed now to testdata")

// golden holds a text against a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got):\n%s", name, diff)
	}
}

func counts(t *testing.T, w *world, policies ...*flavors.Policy) *Status {
	t.Helper()
	s, err := Of(w.export(t, ledger.SourceManager), policies)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func tainted(s *resourcev1.ResourceSlice) {
	s.Spec.Devices[0].Taints = []resourcev1.DeviceTaint{{Key: "broken", Effect: resourcev1.DeviceTaintEffectNoSchedule}}
}

func cordoned(n *corev1.Node) { n.Spec.Unschedulable = true }

func notReady(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }

func TestEachDeviceIsInOneColumn(t *testing.T) {
	const plugin = "nvidia.com/gpu"
	one := ledger.Amounts{"cpu": 1000, "pods": 1}
	gpus := func(n int64) ledger.Amounts { return ledger.Amounts{"pods": 1, plugin: n} }
	lists := map[corev1.ResourceName]string{plugin: "8"}
	overdue := ledger.Pod{Node: "a", Requests: one, Terminating: true, EndsUnix: start.Add(-2 * time.Minute).Unix()}
	ending := overdue
	ending.EndsUnix = start.Add(-time.Second).Unix()
	parts := func(s *resourcev1.ResourceSlice) {
		s.Name, s.UID = "counters", "counters"
		s.Spec.SharedCounters = []resourcev1.CounterSet{{Name: "card", Counters: map[string]resourcev1.Counter{"memory": {Value: resource.MustParse("80Gi")}}}}
	}
	draws := func(amounts ...string) func(*resourcev1.ResourceSlice) {
		return func(s *resourcev1.ResourceSlice) {
			for i, a := range amounts {
				s.Spec.Devices[i].ConsumesCounters = []resourcev1.DeviceCounterConsumption{{CounterSet: "card", Counters: map[string]resourcev1.Counter{"memory": {Value: resource.MustParse(a)}}}}
			}
		}
	}
	cases := map[string]struct {
		world *world
		quota string
		want  Counts
	}{
		"what nobody has is free":                     {newWorld().node("a", "h100", nil).slice("a", "h100", 1, 1, 8), "", Counts{Total: 8, Free: 8}},
		"a claim holds":                               {newWorld().node("a", "h100", nil).slice("a", "h100", 1, 1, 8).claim("c", "", id("a", 0), id("a", 1)), "", Counts{Total: 8, Free: 6, Held: 2}},
		"a promise reserves":                          {newWorld().node("a", "h100", nil).slice("a", "h100", 1, 1, 8).promise("w", "a", 1, one, id("a", 0)), "", Counts{Total: 8, Free: 7, Reserved: 1}},
		"a claim wins over the promise that it is of": {newWorld().node("a", "h100", nil).slice("a", "h100", 1, 1, 8).promise("w", "a", 1, one, id("a", 0)).claim("c", "", id("a", 0)), "", Counts{Total: 8, Free: 7, Held: 1}},
		"what is ending is held":                      {newWorld().node("a", "h100", nil).slice("a", "h100", 1, 1, 8).pod("p", ending).claim("c", "p", id("a", 0)), "", Counts{Total: 8, Free: 7, Held: 1}},
		"what should have ended is unhealthy":         {newWorld().node("a", "h100", nil).slice("a", "h100", 1, 1, 8).pod("p", overdue).claim("c", "p", id("a", 0)), "", Counts{Total: 8, Free: 7, Unhealthy: 1}},
		"a taint is unhealthy":                        {newWorld().node("a", "h100", nil).slice("a", "h100", 1, 1, 8, tainted), "", Counts{Total: 8, Free: 7, Unhealthy: 1}},
		"a tainted device that a claim has is held":   {newWorld().node("a", "h100", nil).slice("a", "h100", 1, 1, 8, tainted).claim("c", "", id("a", 0)), "", Counts{Total: 8, Free: 7, Held: 1}},
		"a cordon is unhealthy":                       {newWorld().node("a", "h100", nil, cordoned).slice("a", "h100", 1, 1, 8).claim("c", "", id("a", 0)), "", Counts{Total: 8, Held: 1, Unhealthy: 7}},
		"a node that is not Ready is stale":           {newWorld().node("a", "h100", nil, notReady).slice("a", "h100", 1, 1, 8).claim("c", "", id("a", 0)), "", Counts{Total: 8, Held: 1, Stale: 7}},
		"a node that is cordoned and not Ready too":   {newWorld().node("a", "h100", nil, notReady, cordoned).slice("a", "h100", 1, 1, 8), "", Counts{Total: 8, Stale: 8}},
		"what an incomplete pool shows is stale":      {newWorld().node("a", "h100", nil).slice("a", "h100", 1, 2, 3), "", Counts{Total: 3, Stale: 3}},
		"what was lost is stale, and there once":      {newWorld().node("a", "h100", nil).slice("a", "h100", 1, 1, 8).slice("a", "h100", 2, 2, 4), "", Counts{Total: 8, Stale: 8}},
		"what was lost and is held is held":           {newWorld().node("a", "h100", nil).slice("a", "h100", 1, 1, 8).claim("c", "", id("a", 7)).slice("a", "h100", 2, 2, 4), "", Counts{Total: 8, Held: 1, Stale: 7}},
		"a part of a card that is in use":             {newWorld().node("a", "h100", nil).slice("a", "h100", 1, 2, 3, draws("80Gi", "40Gi", "40Gi")).slice("a", "h100", 1, 2, 0, parts).claim("c", "", id("a", 1)), "", Counts{Total: 3, Free: 1, Held: 1, Unhealthy: 1}},
		"a device plugin's are counted by its pods": {newWorld().node("a", "h100", lists).pod("p", ledger.Pod{Node: "a", Requests: gpus(3)}).promise("w", "a", 2, gpus(1)),
			plugin, Counts{Total: 8, Free: 3, Held: 3, Reserved: 2}},
		"a device plugin's on a node that is cordoned": {newWorld().node("a", "h100", lists, cordoned).pod("p", ledger.Pod{Node: "a", Requests: gpus(3)}), plugin, Counts{Total: 8, Held: 3, Unhealthy: 5}},
		"a device plugin's that are asked for too often": {newWorld().node("a", "h100", lists).pod("p", ledger.Pod{Node: "a", Requests: gpus(7)}).promise("w", "a", 4, gpus(1)),
			plugin, Counts{Total: 8, Held: 7, Reserved: 1}},
		"eight by plugin that are eight by DRA are eight": {newWorld().node("a", "h100", lists).slice("a", "h100", 1, 1, 8).
			see(ledger.Observation{Ref: ledger.Ref{Kind: ledger.KindDeviceClass, UID: "class"}, Class: class(plugin)}).pod("p", ledger.Pod{Node: "a", Requests: gpus(3)}),
			"gpus", Counts{Total: 8, Free: 5, Held: 3}},
		"and so they are without a class that says so": {newWorld().node("a", "h100", lists).slice("a", "h100", 1, 1, 8).pod("p", ledger.Pod{Node: "a", Requests: gpus(3)}), plugin, Counts{Total: 8, Free: 5, Held: 3}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if c.quota == "" {
				c.quota = "gpus"
			}
			s := counts(t, c.world, policy(t, "gpu", c.quota, "h100"))
			if len(s.Flavors) != 1 {
				t.Fatalf("%d rows, want 1: %+v", len(s.Flavors), s.Flavors)
			}
			if diff := cmp.Diff(c.want, s.Flavors[0].Counts); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			of := s.Flavors[0].Counts
			if of.Free+of.Held+of.Reserved+of.Unhealthy+of.Stale+of.NotServing != of.Total {
				t.Errorf("the columns of %+v do not sum to the total", of)
			}
		})
	}
}

// TestWhatADriverDoesNotServeIsInAColumnOfItsOwn: what would be free, by the policy that says how the driver is found.
func TestWhatADriverDoesNotServeIsInAColumnOfItsOwn(t *testing.T) {
	one := ledger.Amounts{"cpu": 1000, "pods": 1}
	driver := func(node string, ready bool) ledger.Pod {
		return ledger.Pod{Node: node, Requests: ledger.Amounts{"pods": 1}, Labels: map[string]string{"app": "dra"}, Serving: ready}
	}
	full := func(edits ...func(*corev1.Node)) *world {
		return newWorld().node("a", "h100", nil, edits...).slice("a", "h100", 1, 1, 8, tainted).claim("c", "", id("a", 1), id("a", 2)).promise("w", "a", 1, one, id("a", 3))
	}
	p := policy(t, "gpu", "gpus", "h100")
	p.Drivers = []flavors.Driver{{Name: "gpu.example.com", Namespace: "team-a", Pods: labels.SelectorFromSet(labels.Set{"app": "dra"})}}
	for name, c := range map[string]struct {
		world *world
		want  Counts
	}{
		"its pod is Ready":                {full().pod("d", driver("a", true)), Counts{Total: 8, Free: 4, Held: 2, Reserved: 1, Unhealthy: 1}},
		"its pod is not Ready":            {full().pod("d", driver("a", false)), Counts{Total: 8, Held: 2, Reserved: 1, Unhealthy: 1, NotServing: 4}},
		"it has no pod":                   {full(), Counts{Total: 8, Held: 2, Reserved: 1, Unhealthy: 1, NotServing: 4}},
		"its pod is on another node":      {full().pod("d", driver("b", true)), Counts{Total: 8, Held: 2, Reserved: 1, Unhealthy: 1, NotServing: 4}},
		"nor is its node Ready":           {full(notReady), Counts{Total: 8, Held: 2, Reserved: 1, Stale: 5}},
		"nor does its node take any pods": {full(cordoned), Counts{Total: 8, Held: 2, Reserved: 1, Unhealthy: 5}},
		"nor is its pool complete":        {full().slice("a", "h100", 2, 2, 4), Counts{Total: 8, Held: 2, Reserved: 1, Stale: 5}},
	} {
		t.Run(name, func(t *testing.T) {
			s := counts(t, c.world, p)
			of := s.Flavors[0].Counts
			if diff := cmp.Diff(c.want, of); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if of.Free+of.Held+of.Reserved+of.Unhealthy+of.Stale+of.NotServing != of.Total {
				t.Errorf("the columns of %+v do not sum to the total", of)
			}
			if len(s.Nodes) != 1 || s.Nodes[0].Counts != of {
				t.Errorf("by node it is %+v, want the same", s.Nodes)
			}
			words := s.Words(start)
			if says := strings.Contains(words, "a: 4 devices not served: no pod of driver gpu.example.com is Ready on the node"); says != (of.NotServing > 0) {
				t.Errorf("says so is %t:\n%s", says, words)
			}
		})
	}
}

// TestADeviceOfSeveralNodesIsThereOnce: each of its nodes counts it, the flavor does once.
func TestADeviceOfSeveralNodesIsThereOnce(t *testing.T) {
	wide := func(s *resourcev1.ResourceSlice) { s.Spec.NodeName, s.Spec.AllNodes = nil, new(true) }
	s := counts(t, newWorld().node("a", "h100", nil).node("b", "h100", nil).slice("fabric", "h100", 1, 1, 4, wide), policy(t, "gpu", "gpus", "h100"))
	if got := s.Flavors[0]; got.Total != 4 || got.Free != 4 || got.Nodes != 2 {
		t.Errorf("%+v, want four free devices on two nodes", got)
	}
	if len(s.Nodes) != 2 || s.Nodes[0].Total != 4 || s.Nodes[1].Total != 4 {
		t.Errorf("%+v, want four on each node", s.Nodes)
	}
}

func mixed() *world {
	one := ledger.Amounts{"cpu": 1000, "pods": 1}
	return newWorld().
		node("h100-0", "h100", nil).slice("h100-0", "h100", 1, 1, 8, tainted).claim("train", "", id("h100-0", 1)).promise("next", "h100-0", 1, one, id("h100-0", 2), id("h100-0", 3)).
		node("h100-1", "h100", nil, notReady).slice("h100-1", "h100", 1, 1, 8).
		node("a100-0", "a100", nil).slice("a100-0", "a100", 1, 1, 8).claim("first", "", id("a100-0", 0)).claim("second", "", id("a100-0", 0)).
		node("odd", "l4", nil).slice("odd", "l4", 1, 1, 2)
}

func TestStatusInWords(t *testing.T) {
	e := mixed().export(t, ledger.SourceManager)
	policies := []*flavors.Policy{policy(t, "gpu", "gpus", "h100", "a100")}
	s, err := Of(e, policies)
	if err != nil {
		t.Fatal(err)
	}
	s.Digest = "sha256:0123" // has its own tests
	s.Notes = []string{"DevicePolicy \x1b[2Jx: is odd"}
	golden(t, "nodes.txt", s.Words(start.Add(3*time.Second)))
	if err := s.Only("", false); err != nil {
		t.Fatal(err)
	}
	s.Source, s.Notes = ledger.SourceAPI, nil
	golden(t, "flavors.txt", s.Words(start))
	empty, err := Of(newWorld().export(t, ledger.SourceAPI), nil)
	if err != nil {
		t.Fatal(err)
	}
	if words := empty.Words(start); !strings.Contains(words, "no device") {
		t.Errorf("of nothing: %s", words)
	}
}

func TestOnlyOneNode(t *testing.T) {
	s := counts(t, mixed(), policy(t, "gpu", "gpus", "h100", "a100"))
	if err := s.Only("h100-1", false); err != nil || len(s.Nodes) != 1 || s.Nodes[0].Node != "h100-1" {
		t.Errorf("%v, %+v", err, s.Nodes)
	}
	if err := s.Only("nowhere", true); err == nil || !strings.Contains(err.Error(), "nowhere has no device") {
		t.Errorf("error %v", err)
	}
}
