package ledger

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

func exported(t interface{ Fatal(...any) }, s *Snapshot) []byte {
	var out bytes.Buffer
	if err := s.Export(&out, Header{Time: time.Unix(1800000000, 0).UTC(), Source: SourceManager, Leader: true}); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func read(t interface{ Fatal(...any) }, data []byte) *Export {
	e, err := ReadExport(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// accountLines returns the lines of an export that its digest covers.
func accountLines(data []byte) []string {
	var out []string
	for _, line := range slices.Collect(strings.Lines(string(data)))[1:] {
		if !slices.ContainsFunc([]string{lineRule, lineRegressed, lineNotReady, lineLost, lineGone, lineDeparted}, func(kind string) bool {
			return strings.HasPrefix(line, `{"kind":"`+kind+`"`)
		}) {
			out = append(out, line)
		}
	}
	return out
}

func TestAnExportIsReadAsItWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all, _ := history(t)
		s := bookOf(all...).Snapshot()
		data := exported(t, s)
		e := read(t, data)
		if e.Header.Digest != s.Digest() || e.Header.Version != s.Version || !e.Header.Leader || e.Header.Source != SourceManager {
			t.Fatalf("header %+v, want digest %s and version %d", e.Header, s.Digest(), s.Version)
		}
		var again bytes.Buffer
		if err := e.Write(&again); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again.Bytes(), data) {
			t.Fatalf("written again:\n%s\nwant\n%s", again.Bytes(), data)
		}
		back, err := e.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		made := read(t, exported(t, back))
		for _, d := range e.Compare(made) {
			t.Fatalf("%s: rebuilt\n%s, was\n%s", d.Key, d.B, d.A)
		}
		if made.Header.Digest != e.Header.Digest {
			t.Fatal("rebuilt, it has another digest, though all lines are the same")
		}
		for _, n := range s.Nodes() {
			if m := back.Node(n.Name); len(m.Devices) != len(n.Devices) || len(m.Withheld) != len(n.Withheld) || len(m.Lost) != len(n.lost()) {
				t.Fatalf("node %s: %d devices, %d withheld and %d lost, were %d, %d and %d", n.Name, len(m.Devices), len(m.Withheld), len(m.Lost), len(n.Devices), len(n.Withheld), len(n.lost()))
			}
		}
	})
}

func TestEqualAccountsAreEqualLines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all, last := history(t)
		live, cold := exported(t, bookOf(all...).Snapshot()), exported(t, bookOf(last...).Snapshot())
		for _, d := range read(t, live).Compare(read(t, cold)) {
			t.Fatalf("%s:\nlive %s\ncold %s", d.Key, d.A, d.B)
		}
		if diff := cmp.Diff(accountLines(cold), accountLines(live)); diff != "" {
			t.Fatalf("live differs from cold in the order of the lines:\n%s", diff)
		}
	})
}

// TestWhatMeansTheSameIsWrittenTheSame: a book may hold the older of two forms of one amount.
func TestWhatMeansTheSameIsWrittenTheSame(t *testing.T) {
	of := func(memory string, taints ...string) string {
		o := seeSlice("a", 1, 1, 1, 0, 1)
		d := &o.Slice.Spec.Devices[0]
		d.Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse(memory)}}
		for _, key := range taints {
			d.Taints = append(d.Taints, resourcev1.DeviceTaint{Key: key, Effect: resourcev1.DeviceTaintEffectNoSchedule})
		}
		return bookOf(seeNode("a", 1, nil), o).Snapshot().Digest()
	}
	for _, other := range []string{"1024Mi", "1073741824", "1073741824000m"} {
		if of("1Gi") != of(other) {
			t.Errorf("1Gi and %s have different digests", other)
		}
	}
	if of("1Gi", "x", "y") != of("1Gi", "y", "x") {
		t.Error("the order of taints changes the digest")
	}
	if of("1Gi") == of("2Gi") || of("1Gi") == of("1Gi", "x") {
		t.Error("what is different has one digest")
	}
}

// TestTheDigestCovers: every account has a part in it.
func TestTheDigestCovers(t *testing.T) {
	d := device("a", 0, 0)
	world := func(change func(map[string]*Observation)) string {
		list := map[string]*Observation{
			"node": ptr.To(seeNode("a", 1, nil)), "slice": ptr.To(seeSlice("a", 2, 1, 1, 0, 2)), "workload": ptr.To(seeWorkload("w", 3, 100)),
			"placement": ptr.To(seePlacement("w", 4, 100, "a", 2, d)), "claim": ptr.To(seeClaim("c", 5, Claim{Allocated: []DeviceID{device("a", 0, 1)}})),
			"agent": ptr.To(seePod("driver", 6, Pod{Node: "a", Labels: map[string]string{"app": "dra"}, Serving: true})),
			"class": {Ref: ref(KindDeviceClass, "class", 7), Class: &resourcev1.DeviceClass{}},
		}
		list["class"].Class.Name = "gpu"
		change(list)
		b := New()
		for _, name := range slices.Sorted(maps.Keys(list)) {
			b.Apply(*list[name])
		}
		return b.Snapshot().Digest()
	}
	want := world(func(map[string]*Observation) {})
	for name, change := range map[string]func(map[string]*Observation){
		"a node's label":    func(o map[string]*Observation) { o["node"].Node.Labels["x"] = "y" },
		"a node's taint":    func(o map[string]*Observation) { o["node"].Node.Spec.Taints = []corev1.Taint{{Key: "x"}} },
		"a cordon":          func(o map[string]*Observation) { o["node"].Node.Spec.Unschedulable = true },
		"readiness":         func(o map[string]*Observation) { o["node"].Node.Status.Conditions = nil },
		"what a node lists": func(o map[string]*Observation) { o["node"].Node.Status.Allocatable["cpu"] = resource.MustParse("63") },
		"a device's attribute": func(o map[string]*Observation) {
			o["slice"].Slice.Spec.Devices[0].Attributes = map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"x": {IntValue: ptr.To[int64](1)}}
		},
		"a pool's generation":    func(o map[string]*Observation) { o["slice"].Slice.Spec.Pool.Generation = 2 },
		"a missing slice":        func(o map[string]*Observation) { o["slice"].Slice.Spec.Pool.ResourceSliceCount = 2 },
		"a promise":              func(o map[string]*Observation) { delete(o, "placement") },
		"how many slots":         func(o map[string]*Observation) { o["placement"].Placement.Spec.PodSets[0].Nodes[0].Slots = 1 },
		"a claim's devices":      func(o map[string]*Observation) { o["claim"].Claim.Allocated = []DeviceID{d} },
		"a lost quota":           func(o map[string]*Observation) { o["workload"].Workload.Key = nil },
		"whether a driver is up": func(o map[string]*Observation) { o["agent"].Pod.Serving = false },
		"a class":                func(o map[string]*Observation) { o["class"].Class.Spec.ExtendedResourceName = ptr.To("nvidia.com/gpu") },
	} {
		if world(change) == want {
			t.Errorf("%s changes nothing", name)
		}
	}
}

func TestWhatIsNoExportIsRefused(t *testing.T) {
	d := device("a", 0, 0)
	s := bookOf(seeNode("a", 1, nil), seeSlice("a", 2, 1, 1, 0, 2), seeWorkload("w", 3, 100), seePlacement("w", 4, 100, "a", 2, d)).Snapshot()
	good := string(exported(t, s))
	lines := slices.Collect(strings.Lines(good))
	deviceAt := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, `{"kind":"device"`) })
	// signed gives an edited export the digest that it would have.
	signed := func(text string) string {
		all := slices.Collect(strings.Lines(text))
		h := sha256.New()
		for _, l := range all[1:] {
			h.Write([]byte(l))
		}
		return strings.Replace(text, s.Digest(), "sha256:"+hex.EncodeToString(h.Sum(nil)), 1)
	}
	edited := func(old, by string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("the export has no %s:\n%s", old, good)
		}
		return strings.Replace(good, old, by, 1)
	}
	cases := map[string]struct{ text, want string }{
		"nothing":                    {"", "it is empty"},
		"something else":             {"<html>\n", "its first line is not a header"},
		"an object of something":     {"{\"apiVersion\":\"v1\"}\n", "its first line is not a header"},
		"a later format":             {edited(ExportFormat, "plimsoll.dev/ledger/v9"), `"plimsoll.dev/ledger/v9"`},
		"one that was cut off":       {strings.Join(lines[:len(lines)-1], ""), "not whole"},
		"half a line":                {good[:len(good)-20], "line " + fmt.Sprint(len(lines))},
		"a line that is there twice": {good + lines[deviceAt], "is there twice"},
		"a line of a later kind":     {good + "{\"kind\":\"moon\"}\n", `kind "moon" is not known`},
		"an unknown field":           {edited(`"generation":1`, `"generation":1,"x":2`), "unknown field"},
		"a number that is none":      {edited(`"generation":1`, `"generation":"x"`), "line"},
		"an edited line":             {edited(`"free":`, `"free":1`), "was changed"},
		"two objects on a line":      {edited(`{"kind":"pool"`, `{} {"kind":"pool"`), "line"},
		"a very long line":           {lines[0] + `{"kind":"` + strings.Repeat("x", maxLineBytes) + "\"}\n", "longer than 4 MiB"},
		"a quantity without end":     {edited(`"spec":{"name":"gpu-0-0"`, `"spec":{"name":"gpu-0-0","capacity":{"m":{"value":"1e-99999999"}}`), "is no quantity of a device"},
		"a bare one":                 {edited(`"spec":{"name":"gpu-0-0"`, `"spec":{"name":"gpu-0-0","capacity":{"m":{"value": 1E999999999999}}`), "is no quantity of a device"},
		"what a terminal acts on":    {edited(ExportFormat, "\x1b[2J"), "not a header"},
		"a kind a terminal acts on":  {good + "{\"kind\":\"\\u001b[2J\"}\n", `"\x1b[2J"`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := ReadExport(strings.NewReader(c.text))
			if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 400 {
				t.Errorf("error %v, want one that says %q", err, c.want)
			}
		})
	}
	rebuilt := map[string]struct{ text, want string }{
		"a device of no node":      {signed(edited(`"kind":"device","node":"a"`, `"kind":"device","node":"b"`)), `no node "b"`},
		"a device of another name": {signed(edited(`"spec":{"name":"gpu-0-0"`, `"spec":{"name":"x"`)), "another name"},
		"a device without a spec":  {signed(edited(`"spec":{"name":"gpu-0-0"}`, `"spec":null`)), "another name"},
	}
	for name, c := range rebuilt {
		t.Run(name, func(t *testing.T) {
			if _, err := read(t, []byte(c.text)).Snapshot(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one that says %q", err, c.want)
			}
		})
	}
}

func TestCompareNamesWhatDiffers(t *testing.T) {
	d := device("a", 0, 0)
	base := []Observation{seeNode("a", 1, nil), seeSlice("a", 2, 1, 1, 0, 2)}
	free, held := bookOf(base...).Snapshot(), bookOf(append(base, seeClaim("c", 3, Claim{Allocated: []DeviceID{d}}))...).Snapshot()
	var keys []string
	for _, x := range read(t, exported(t, held)).Compare(read(t, exported(t, free))) {
		keys = append(keys, x.Key)
		if x.A == nil || x.B == nil {
			t.Errorf("%s: %s and %s, want both", x.Key, x.A, x.B)
		}
	}
	want := []string{"device a gpu.example.com/a/gpu-0-0 of a-1-0", "zone a -1"}
	if diff := cmp.Diff(want, keys); diff != "" {
		t.Error(diff)
	}
	empty := read(t, exported(t, New().Snapshot()))
	for _, x := range empty.Compare(read(t, exported(t, free))) {
		if x.A != nil || x.B == nil {
			t.Errorf("%s: %s and %s, want the second alone", x.Key, x.A, x.B)
		}
	}
}

func FuzzReadExport(f *testing.F) {
	d := device("a", 0, 0)
	s := bookOf(seeNode("a", 1, nil), seeSlice("a", 2, 1, 1, 0, 2), seeSlice("a", 3, 1, 1, 1, 1), seeWorkload("w", 3, 100), seePlacement("w", 4, 100, "a", 2, d)).Snapshot()
	f.Add(exported(f, s))
	f.Add([]byte(`{"format":"plimsoll.dev/ledger/v1","counts":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := ReadExport(bytes.NewReader(data))
		if err != nil {
			return
		}
		if back, err := e.Snapshot(); err == nil {
			back.Digest()
		}
		var again bytes.Buffer
		if err := e.Write(&again); err != nil {
			t.Fatal(err)
		}
		if d := e.Compare(read(t, again.Bytes())); len(d) > 0 {
			t.Errorf("written again, it differs in %s", d[0].Key)
		}
	})
}
