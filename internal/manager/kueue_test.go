package manager

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/utils/clock"
	config "sigs.k8s.io/kueue/apis/config/v1beta2"
	"sigs.k8s.io/kueue/pkg/features"

	"github.com/plimsoll-dev/plimsoll/internal/parts"
)

const configurationHead = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"

func writeConfiguration(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kueue.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestKueueConfigurationIsRefused(t *testing.T) {
	cases := map[string]struct{ text, want string }{
		"a field that Kueue does not know": {configurationHead + "fairShare: {}\n", `unknown field "fairShare"`},
		"another kind":                     {"apiVersion: v1\nkind: ConfigMap\n", "is not a Configuration of Kueue 0.17"},
		"something else":                   {"hello", "is not a Configuration of Kueue 0.17"},
		"a gate that Kueue does not know":  {configurationHead + "featureGates: {Fast: true}\n", "featureGates: Kueue 0.17 has no gate Fast; take it out"},
		"Kueue's own counting of claims":   {configurationHead + "featureGates: {DynamicResourceAllocation: true}\n", "turn DynamicResourceAllocation off in Kueue"},
		"a strategy that does not exist": {
			configurationHead + "fairSharing: {preemptionStrategies: [Random]}\n", `fairSharing.preemptionStrategies: "Random" is not one of`,
		},
	}
	environment := parts.Environment{Metrics: prometheus.NewRegistry(), Clock: clock.RealClock{}}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := configured(writeConfiguration(t, c.text), environment)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "--kueue-configuration: ") {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	if _, err := configured(filepath.Join(t.TempDir(), "none.yaml"), environment); err == nil {
		t.Error("a file that is not there is taken")
	}
}

func TestKueueConfigurationIsFollowed(t *testing.T) {
	before := map[string]bool{}
	for _, gate := range []string{string(features.PartialAdmission), string(features.VisibilityOnDemand)} {
		for f := range utilfeature.DefaultMutableFeatureGate.GetAll() {
			if string(f) == gate {
				before[gate] = utilfeature.DefaultMutableFeatureGate.Enabled(f)
			}
		}
	}
	t.Cleanup(func() {
		if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(before); err != nil {
			t.Error(err)
		}
	})
	file := writeConfiguration(t, configurationHead+`
fairSharing: {preemptionStrategies: [LessThanInitialShare]}
resources: {excludeResourcePrefixes: [example.com/]}
featureGates: {PartialAdmission: false, VisibilityOnDemand: false}
`)
	c, err := kueueConfiguration(file)
	if err != nil {
		t.Fatal(err)
	}
	if c.FairSharing == nil || len(c.FairSharing.PreemptionStrategies) != 1 || c.FairSharing.PreemptionStrategies[0] != config.LessThanInitialShare ||
		c.Resources == nil || len(c.Resources.ExcludeResourcePrefixes) != 1 {
		t.Errorf("read %+v", c)
	}
	if features.Enabled(features.PartialAdmission) {
		t.Error("a gate that answers depend on was not set")
	}
	if features.Enabled(features.VisibilityOnDemand) != before[string(features.VisibilityOnDemand)] {
		t.Error("a gate that no answer depends on was set")
	}
	if c, err := kueueConfiguration(""); c != nil || err != nil {
		t.Errorf("no file: %v, %v", c, err)
	}
	old := "apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\nfairSharing: {enable: true}\n"
	if c, err := kueueConfiguration(writeConfiguration(t, old)); err != nil || c.FairSharing == nil {
		t.Errorf("the version before: %v", err)
	}
}
