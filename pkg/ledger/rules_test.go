package ledger

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	resourcev1 "k8s.io/api/resource/v1"
)

func TestRulesAreExported(t *testing.T) {
	rule := func(uid, name string, change func(*TaintRule)) Observation {
		r := TaintRule{Name: name, Version: "v1beta2", Taint: resourcev1.DeviceTaint{Key: "drain", Value: "now", Effect: resourcev1.DeviceTaintEffectNoExecute}}
		change(&r)
		return Observation{Ref: ref(KindTaintRule, uid, 1), TaintRule: &r}
	}
	taint := DeviceTaint{Key: "drain", Value: "now", Effect: resourcev1.DeviceTaintEffectNoExecute}
	plain := bookOf(seeNode("a", 1, nil), seeSlice("a", 1, 1, 1, 0, 1)).Snapshot()
	for name, tc := range map[string]struct {
		rule Observation
		want *RuleLine
		// touches says that it taints what is listed.
		touches bool
	}{
		"one device": {
			rule("1", "one", func(r *TaintRule) { r.Driver, r.Pool, r.Device = "gpu.example.com", "a", "gpu-0-0" }),
			&RuleLine{past: past{lineRule}, Name: "one", UID: "1", Version: "v1beta2", Driver: "gpu.example.com", Pool: "a", Device: "gpu-0-0", Taint: taint}, true,
		},
		"a pool that is not there": {
			rule("1", "elsewhere", func(r *TaintRule) { r.Pool = "b" }),
			&RuleLine{past: past{lineRule}, Name: "elsewhere", UID: "1", Version: "v1beta2", Pool: "b", Taint: taint}, false,
		},
		"every device": {
			rule("1", "all", func(r *TaintRule) { r.All = true }),
			&RuleLine{past: past{lineRule}, Name: "all", UID: "1", Version: "v1beta2", Devices: "all", Taint: taint}, true,
		},
		"none": {
			rule("1", "none", func(r *TaintRule) { r.None, r.Version = true, "v1" }),
			&RuleLine{past: past{lineRule}, Name: "none", UID: "1", Version: "v1", Devices: "none", Taint: taint}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := bookOf(seeNode("a", 1, nil), seeSlice("a", 1, 1, 1, 0, 1), tc.rule)
			e := read(t, exported(t, b.Snapshot()))
			back, err := e.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			for what, of := range map[string]*Export{"exported": e, "read and exported again": read(t, exported(t, back))} {
				var got []Line
				for _, x := range of.Entries {
					if l, ok := x.Line.(*RuleLine); ok {
						got = append(got, l)
					}
				}
				if diff := cmp.Diff([]Line{tc.want}, got, cmp.AllowUnexported(RuleLine{}, past{})); diff != "" {
					t.Errorf("%s (-want +got):\n%s", what, diff)
				}
			}
			if same := e.Header.Digest == plain.Digest(); same == tc.touches {
				t.Errorf("the digest is that without it: %t, and it taints a device: %t", same, tc.touches)
			}
			if differs := len(e.Compare(read(t, exported(t, plain)))) > 0; differs != tc.touches {
				t.Errorf("the accounts differ from those without it: %t, and it taints a device: %t", differs, tc.touches)
			}
			b.Apply(gone(tc.rule))
			if left := read(t, exported(t, b.Snapshot())).Header.Counts[lineRule]; left != 0 {
				t.Errorf("%d rules are left once it is gone", left)
			}
		})
	}
}
