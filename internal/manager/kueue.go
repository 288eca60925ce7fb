package manager

import (
	"fmt"
	"maps"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	configv1beta1 "sigs.k8s.io/kueue/apis/config/v1beta1"
	config "sigs.k8s.io/kueue/apis/config/v1beta2"
	"sigs.k8s.io/kueue/pkg/features"

	"github.com/plimsoll-dev/plimsoll/internal/parts"
	"github.com/plimsoll-dev/plimsoll/pkg/quota"
)

// configured makes the parts, for a Kueue with the configuration in a file.
func configured(file string, e parts.Environment) (p *parts.Parts, err error) {
	if e.Kueue, err = kueueConfiguration(file); err == nil {
		p, err = parts.New(e)
	}
	if err != nil {
		return nil, fmt.Errorf("--kueue-configuration: %w", err)
	}
	return p, nil
}

// kueueConfiguration reads a file as Kueue does: strictly, with its defaults. It sets those of the file's feature gates
// that an answer of the quota book depends on. For no file it returns nil.
func kueueConfiguration(file string) (*config.Configuration, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read Kueue's Configuration: %w", err)
	}
	c, err := decodeKueueConfiguration(text)
	if err != nil {
		return nil, fmt.Errorf("%s is not a Configuration of Kueue 0.17: %w", file, err)
	}
	gates, err := quotaGates(c.FeatureGates)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(gates); err != nil {
		return nil, fmt.Errorf("%s: featureGates: %w", file, err)
	}
	return c, nil
}

func decodeKueueConfiguration(text []byte) (*config.Configuration, error) {
	s := runtime.NewScheme()
	utilruntime.Must(config.AddToScheme(s))
	utilruntime.Must(configv1beta1.AddToScheme(s))
	c := &config.Configuration{}
	err := runtime.DecodeInto(serializer.NewCodecFactory(s, serializer.EnableStrict).UniversalDecoder(), text, c)
	return c, err
}

// quotaGates picks the gates that the quota book depends on, and refuses what it cannot follow.
func quotaGates(all map[string]bool) (map[string]bool, error) {
	known := map[string]bool{}
	for gate := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		known[string(gate)] = true
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !known[name] {
			return nil, fmt.Errorf("featureGates: Kueue 0.17 has no gate %s; take it out", name)
		}
	}
	if all[string(features.DynamicResourceAllocation)] {
		return nil, fmt.Errorf("featureGates: turn %s off in Kueue: Plimsoll writes the charge for claims, and with the gate on "+
			"Kueue counts them a second time or refuses them", features.DynamicResourceAllocation)
	}
	picked := map[string]bool{}
	for _, name := range quota.Gates() {
		if on, ok := all[name]; ok {
			picked[name] = on
		}
	}
	return picked, nil
}
