package manager

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/plimsoll-dev/plimsoll/internal/observe"
	"github.com/plimsoll-dev/plimsoll/internal/parts"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

const (
	nodes  = "/api/v1/nodes"
	pods   = "/api/v1/pods"
	sliced = "/apis/resource.k8s.io/v1/resourceslices"
	claims = "/apis/resource.k8s.io/v1/resourceclaims"
)

// The fixtures: a node, a GPU that takes 8 cpus and 10Gi of it, and a pod that has the GPU.
const (
	aNode = `{"metadata": {"name": "n", "labels": {"kubernetes.io/hostname": "n"}}, "status": {
		"allocatable": {"cpu": "64", "memory": "100Gi", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}]}}`
	aClaim = `{"metadata": {"name": "p-gpu", "namespace": "ns"}, "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}},
		"status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "p"}],
		"allocation": {"devices": {"results": [{"request": "gpu", "driver": "gpu.example.com", "pool": "n", "device": "gpu-0"}]}}}}`
)

func aSlice(fields string) string {
	return `{"metadata": {"name": "n-gpu", "generation": 1, "annotations": {"` + observe.DevicesNodeAllocatable + `": "{\"gpu-0\": {}}"}},
		"spec": {"driver": "gpu.example.com", "nodeName": "n", "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}, "devices": [
		{"name": "gpu-0", "attributes": {"model": {"string": "x"}}` + fields + `}]}}`
}

func aPod(name, statuses string) string {
	return `{"metadata": {"name": "` + name + `", "namespace": "ns"}, "spec": {"nodeName": "n", "resourceClaims": [{"name": "gpu", "resourceClaimName": "p-gpu"}],
		"containers": [{"name": "a", "resources": {"requests": {"cpu": "2"}, "claims": [{"name": "gpu"}]}}, {"name": "b", "resources": {"claims": [{"name": "gpu"}]}}]},
		"status": {"phase": "Running"` + statuses + `}}`
}

// A release is what a server of it serves.
var releases = map[string]struct{ device, status string }{
	"1.36": {
		`, "nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "8"}, "memory": {"allocationMultiplier": "10Gi"}}`,
		`, "nodeAllocatableResourceClaimStatuses": [{"resourceClaimName": "p-gpu", "containers": ["a", "b"], "resources": {"cpu": "8", "memory": "10Gi"}}]`,
	},
	"1.37": {
		`, "nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": "8"}}, "memory": {"mapping": {"deviceMultiplier": "7Gi"}, "overhead": {"perPod": "1Gi", "perContainer": "1Gi"}}}`,
		`, "nodeAllocatableResourceClaimStatuses": [{"resourceClaimName": "p-gpu", "containers": ["a", "b"],
		"mapping": [{"name": "cpu", "quantity": "8"}, {"name": "memory", "quantity": "7Gi"}], "overhead": [{"name": "memory", "perPod": "1Gi", "perContainer": "1Gi"}]}]`,
	},
}

// reading is a book that is fed by the informers that the manager has.
type reading struct {
	*observe.Observer
	cache cache.Cache
}

// read starts the manager's informers on a server.
func read(t *testing.T, s *server) *reading {
	t.Helper()
	caching, err := cacheOptions(s.config(), observe.NewHeard(clock.RealClock{}))
	if err != nil {
		t.Fatal(err)
	}
	caching.Scheme = parts.Scheme()
	c, err := cache.New(s.config(), caching)
	if err != nil {
		t.Fatal(err)
	}
	p, err := parts.New(parts.Environment{Metrics: prometheus.NewRegistry(), Clock: clock.RealClock{}, Changed: func() {}})
	if err != nil {
		t.Fatal(err)
	}
	o := p.Observer
	ctx, cancel := context.WithCancel(t.Context())
	if err := o.Register(ctx, c); err != nil {
		t.Fatal(err)
	}
	served, err := discovery.NewDiscoveryClientForConfig(s.config())
	if err != nil {
		t.Fatal(err)
	}
	rules := o.TaintRules(c, served, 20*time.Millisecond)
	done := make(chan error, 2)
	go func() { done <- c.Start(ctx) }()
	go func() { done <- rules.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		s.CloseClientConnections()
	})
	eventually(t, "everything is seen", o.Synced)
	return &reading{o, c}
}

func (r *reading) node() *ledger.Node { return r.Book.Snapshot().Node("n") }

// device returns the fixtures' GPU; nil while the book has none.
func (r *reading) device() *ledger.Device {
	if n := r.node(); n != nil {
		return n.Device(ledger.DeviceID{Driver: "gpu.example.com", Pool: "n", Device: "gpu-0"})
	}
	return nil
}

func (r *reading) taints() (keys []string) {
	if d := r.device(); d != nil {
		for _, t := range d.Taints {
			keys = append(keys, t.Key)
		}
	}
	return keys
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) { return is(), nil })
	if err != nil {
		t.Fatalf("never: %s", what)
	}
}

func TestServersOfBothReleasesEndInTheSameAccounts(t *testing.T) {
	for name, release := range releases {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.put(nodes, aNode)
			s.put(sliced, aSlice(release.device))
			s.put(claims, aClaim)
			s.put(pods, aPod("p", release.status))
			r := read(t, s)
			n := r.node()
			if diff := cmp.Diff(ledger.Amounts{"cpu": 54000, "memory": 90 << 30, "pods": 109}, n.Free); diff != "" {
				t.Errorf("free with the pod (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(ledger.Amounts{"cpu": 8000, "memory": 10 << 30}, n.Mapped); diff != "" {
				t.Errorf("mapped (-want +got)\n%s", diff)
			}
			d := r.device()
			if d == nil || d.Mappings == nil || string(d.Mappings.Rules) != name || d.Mappings.Problem != "" {
				t.Fatalf("the device maps %+v", d)
			}
			got, err := ledger.MappedBy([]ledger.Taken{{Device: d.ID, Mappings: d.Mappings}}, 2)
			if diff := cmp.Diff(ledger.Amounts{"cpu": 8000, "memory": 10 << 30}, got); diff != "" || err != nil {
				t.Errorf("a pod with two containers would be given (-want +got)\n%s%v", diff, err)
			}
			s.put(pods, aPod("p", ""))
			eventually(t, "what the status no longer says is free again", func() bool { return r.node().Free["memory"] == 100<<30 })
			s.remove(pods, "p")
			eventually(t, "the pod is gone", func() bool { return r.node().Free["cpu"] == 64000 })
		})
	}
}

// TestAServerIsUpgradedWhileTheManagerRuns: what is watched as the types of 1.36 comes to say what they cannot hold.
func TestAServerIsUpgradedWhileTheManagerRuns(t *testing.T) {
	s := newServer(t)
	s.put(nodes, aNode)
	s.put(sliced, aSlice(releases["1.36"].device))
	s.put(pods, aPod("p", releases["1.36"].status))
	s.put(pods, aPod("plain", ""))
	r := read(t, s)
	inFull := func(accept string) bool { return !strings.Contains(accept, "protobuf") }
	if slices.ContainsFunc(s.accepts(pods), inFull) {
		t.Fatalf("pods were read as %q, want protobuf while that loses nothing", s.accepts(pods))
	}
	if free := r.node().Free; free["cpu"] != 52000 || free["pods"] != 108 {
		t.Fatalf("free %v", free)
	}
	s.put(sliced, aSlice(releases["1.37"].device))
	s.put(pods, aPod("q", releases["1.37"].status))
	eventually(t, "the later pod counts in full", func() bool { return r.node().Free["cpu"] == 42000 && r.node().Free["memory"] == 80<<30 })
	eventually(t, "the later device maps by the later rules", func() bool { return r.device().Mappings.Rules == ledger.Rules137 })
	if !slices.ContainsFunc(s.accepts(pods), inFull) {
		t.Errorf("pods were read as %q, want JSON in the end", s.accepts(pods))
	}
	s.remove(pods, "q")
	s.put(pods, aPod("later", releases["1.37"].status))
	s.put(pods, aPod("p", ""))
	eventually(t, "the watch goes on", func() bool { return r.node().Free["memory"] == 90<<30 && r.node().Free["pods"] == 107 })
}

func TestASliceOfEitherReleaseIsOneToWhoeverReadsSlices(t *testing.T) {
	for name, release := range releases {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.put(nodes, aNode)
			s.put(sliced, aSlice(release.device))
			r := read(t, s)
			list := &resourcev1.ResourceSliceList{}
			if err := r.cache.List(t.Context(), list); err != nil || len(list.Items) != 1 {
				t.Fatalf("listed %d, %v", len(list.Items), err)
			}
			d := list.Items[0].Spec.Devices
			if len(d) != 1 || d[0].Name != "gpu-0" || *d[0].Attributes["model"].StringValue != "x" {
				t.Errorf("listed %+v", d)
			}
			if text, kept := list.Items[0].Annotations[observe.DevicesNodeAllocatable]; kept != (name == "1.37") || text == `{"gpu-0": {}}` {
				t.Errorf("what the server has in the annotation came through: %q", text)
			}
		})
	}
}

func TestADeviceThatMapsWhatCannotBeReadIsToldApart(t *testing.T) {
	cases := map[string]struct{ fields, problem string }{
		"a field of a release to come": {`{"cpu": {"mapping": {"deviceMultiplier": "1"}, "burst": "2"}}`, "cannot be read"},
		"a quantity that is none":      {`{"cpu": {"mapping": {"deviceMultiplier": "many"}}}`, "cannot be read"},
		"another shape":                {`[1]`, "cannot be read"},
		"neither mapping nor overhead": {`{"cpu": {}}`, "has neither a mapping nor an overhead"},
		"an extended resource":         {`{"example.com/x": {"mapping": {"deviceMultiplier": "1"}}}`, "is neither cpu, memory nor hugepages"},
	}
	s := newServer(t)
	s.put(nodes, aNode)
	s.put(sliced, aSlice(""))
	r := read(t, s)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s.put(sliced, aSlice(`, "nodeAllocatableResources": `+c.fields))
			eventually(t, c.problem, func() bool {
				d := r.device()
				return d != nil && d.Mappings != nil && strings.Contains(d.Mappings.Problem, c.problem)
			})
			s.put(sliced, aSlice(""))
			eventually(t, "it maps nothing", func() bool { d := r.device(); return d != nil && d.Mappings == nil })
		})
	}
}
