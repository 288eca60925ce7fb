package ledger

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestAccounts(t *testing.T) {
	node, slice := seeNode("a", 1, nil), seeSlice("a", 1, 1, 1, 0, 4)
	reserved := seeWorkload("w", 1, 100)
	promise := seePlacement("w", 1, 100, "a", 2, device("a", 0, 0), device("a", 0, 1))
	bound := Pod{Node: "a", Owner: "job-w", PodSet: "main", CreatedUnix: 101}
	for name, tc := range map[string]struct {
		seen    []Observation
		devices int
		cpu     int64
	}{
		"an empty node lends all that it lists":                           {[]Observation{node, slice}, 4, 64000},
		"a pool whose newest generation is incomplete lends nothing":      {[]Observation{node, seeSlice("a", 1, 2, 2, 0, 4)}, 0, 64000},
		"not even what an older complete generation lists":                {[]Observation{node, slice, seeSlice("a", 1, 2, 2, 0, 4)}, 0, 64000},
		"what is left of an older generation is not counted beside newer": {[]Observation{node, slice, seeSlice("a", 1, 2, 1, 0, 4)}, 4, 64000},
		"an allocated claim holds its devices":                            {[]Observation{node, slice, seeClaim("c", 1, Claim{Allocated: []DeviceID{device("a", 0, 0)}})}, 3, 64000},
		"a claim that is cut to devices holds nothing while its pod is gated": {[]Observation{node, slice,
			seePod("p", 1, Pod{}), seeClaim("c", 1, Claim{Pod: "p", Promised: []DeviceID{device("a", 0, 0)}})}, 4, 64000},
		"and holds them once its pod is released": {[]Observation{node, slice,
			seePod("p", 1, Pod{Pin: "a"}), seeClaim("c", 1, Claim{Pod: "p", Promised: []DeviceID{device("a", 0, 0)}})}, 3, 63000},
		"a live placement holds devices and requests":                  {[]Observation{node, slice, reserved, promise}, 2, 62000},
		"a placement without its workload holds nothing":               {[]Observation{node, slice, promise}, 4, 64000},
		"a placement of an earlier reservation holds nothing":          {[]Observation{node, slice, seeWorkload("w", 2, 200), promise}, 4, 64000},
		"a slot whose pod is bound is counted by the pod alone":        {[]Observation{node, slice, reserved, promise, seePod("p", 1, bound)}, 2, 62000},
		"a slot whose pod is released is counted by the pod alone":     {[]Observation{node, slice, reserved, promise, seePod("p", 1, Pod{Pin: "a", Owner: "job-w", PodSet: "main", CreatedUnix: 101})}, 2, 62000},
		"a pod from before the reservation takes none of its slots":    {[]Observation{node, slice, reserved, promise, seePod("p", 1, Pod{Node: "a", Owner: "job-w", PodSet: "main", CreatedUnix: 99})}, 2, 61000},
		"a pod of another owner takes none of its slots":               {[]Observation{node, slice, reserved, promise, seePod("p", 1, Pod{Node: "a", Owner: "other", PodSet: "main", CreatedUnix: 101})}, 2, 61000},
		"nor does one of another namespace that names the same owner":  {[]Observation{node, slice, reserved, promise, seePod("p", 1, Pod{Namespace: "foreign", Node: "a", Owner: "job-w", PodSet: "main", CreatedUnix: 101})}, 2, 61000},
		"a device that a placement and its pod's claim hold is one":    {[]Observation{node, slice, reserved, promise, seeClaim("c", 1, Claim{Allocated: []DeviceID{device("a", 0, 0)}})}, 2, 62000},
		"a deleted claim holds nothing, however late an older sight":   {[]Observation{node, slice, gone(seeClaim("c", 3, Claim{})), seeClaim("c", 2, Claim{Allocated: []DeviceID{device("a", 0, 0)}})}, 4, 64000},
		"a deletion counts even where it was seen with an older sight": {[]Observation{node, slice, seeClaim("c", 9, Claim{Allocated: []DeviceID{device("a", 0, 0)}}), gone(seeClaim("c", 3, Claim{}))}, 4, 64000},
	} {
		t.Run(name, func(t *testing.T) {
			devices, cpu := free(bookOf(tc.seen...).Snapshot(), "a")
			if devices != tc.devices || cpu != tc.cpu {
				t.Errorf("got %d devices and %d thousandths of cpu free, want %d and %d", devices, cpu, tc.devices, tc.cpu)
			}
		})
	}
}

func TestApplyOnce(t *testing.T) {
	b := bookOf(seeNode("a", 5, nil))
	version := b.Version()
	for _, tc := range []struct {
		name    string
		seen    Observation
		outcome Outcome
	}{ // in this order
		{"the same version again", seeNode("a", 5, nil), Duplicate},
		{"an older version", seeNode("a", 4, func(n *corev1.Node) { n.Spec.Unschedulable = true }), Stale},
		{"a newer one that changes no account", seeNode("a", 6, func(n *corev1.Node) {
			n.Annotations = map[string]string{"heartbeat": "2"}
		}), Applied},
	} {
		outcome, changed := b.Apply(tc.seen)
		if outcome != tc.outcome || changed || b.Version() != version {
			t.Errorf("%s: got %s, changed %t, version %d; want %s, unchanged, %d", tc.name, outcome, changed, b.Version(), tc.outcome, version)
		}
	}
	if outcome, changed := b.Apply(seeNode("a", 7, func(n *corev1.Node) {
		n.Status.Allocatable["cpu"] = resource.MustParse("32")
	})); outcome != Applied || !changed || b.Version() != version+1 {
		t.Errorf("a newer version with less cpu: got %s, changed %t, version %d", outcome, changed, b.Version())
	}
}

func TestSnapshotsDoNotChange(t *testing.T) {
	b := bookOf(seeNode("a", 1, nil), seeSlice("a", 1, 1, 1, 0, 2))
	before := b.Snapshot()
	digest := before.Digest()
	b.Apply(seeClaim("c", 1, Claim{Allocated: []DeviceID{device("a", 0, 0)}}))
	working := before.With(Holder{Kind: HolderPlacement}, []PodSetClaim{{Node: "a", Slots: 1, Requests: Amounts{"cpu": 1000}, Devices: []DeviceID{device("a", 0, 1)}}})
	if got := before.Digest(); got != digest {
		t.Error("a snapshot changed with the book, or with its working copy")
	}
	if devices, cpu := free(working, "a"); devices != 1 || cpu != 63000 {
		t.Errorf("the working copy has %d devices and %d of cpu free, want 1 and 63000", devices, cpu)
	}
	if devices, _ := free(b.Snapshot(), "a"); devices != 1 {
		t.Errorf("the book has %d devices free, want 1", devices)
	}
}

func TestPinnedPodsCountOnlyWhereTheHostnameIsUnique(t *testing.T) {
	b := bookOf(seeNode("a", 1, nil), seePod("p", 1, Pod{Pin: "a"}))
	if _, cpu := free(b.Snapshot(), "a"); cpu != 63000 {
		t.Fatalf("a released pod is not counted: %d of cpu free", cpu)
	}
	b.Apply(seeNode("b", 1, func(n *corev1.Node) { n.Labels[corev1.LabelHostname] = "a" }))
	s := b.Snapshot()
	if s.Node("a").Hostname != "" || s.Node("b").Hostname != "" {
		t.Error("two nodes of one hostname: neither may be used for pins")
	}
	b.Apply(gone(seeNode("b", 1, nil)))
	if got := b.Snapshot().Node("a").Hostname; got != "a" {
		t.Errorf("the other node is gone: hostname %q, want a", got)
	}
}

func TestParseDeviceID(t *testing.T) {
	for _, want := range []DeviceID{{"d", "p", "x"}, {"gpu.example.com", "pool/with/slashes", "gpu-0"}} {
		got, err := ParseDeviceID(want.String())
		if err != nil || got != want {
			t.Errorf("ParseDeviceID(%q) = %v, %v", want.String(), got, err)
		}
	}
	for _, bad := range []string{"", "/", "a", "a/b", "/b/c", "a/b/", "a//b"[:3]} {
		if got, err := ParseDeviceID(bad); err == nil {
			t.Errorf("ParseDeviceID(%q) = %v, want an error", bad, got)
		}
	}
}

func TestAClaimElsewhereThanItsPodIsItsWorkloads(t *testing.T) {
	pod := seePod("p", 3, Pod{Owner: "job-w"}) // not released: it is on no node
	claim := seeClaim("c", 4, Claim{Pod: "p", Allocated: []DeviceID{device("a", 0, 0)}})
	b := bookOf(seeNode("a", 1, nil), seeSlice("a", 2, 1, 1, 0, 1), pod, claim)
	b.Snapshot() // works the node out before the Workload comes
	b.Apply(seeWorkload("w", 5, 100))
	if h := b.Snapshot().Node("a").Devices[0].Holders; len(h) != 1 || !h[0].Managed || h[0].Workload != "w" {
		t.Errorf("holders are %+v, want one of Workload w", h)
	}
}
