// Package kueueconfig reads the Configuration that a Kueue manager is started with, as Kueue reads it. It applies
// nothing: which feature gates are set is the caller's part.
package kueueconfig

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	configv1beta1 "sigs.k8s.io/kueue/apis/config/v1beta1"
	config "sigs.k8s.io/kueue/apis/config/v1beta2"
	"sigs.k8s.io/kueue/pkg/features"
)

// Decode reads a Configuration, YAML or JSON, strictly and with Kueue's defaults.
func Decode(text []byte) (*config.Configuration, error) {
	s := runtime.NewScheme()
	utilruntime.Must(config.AddToScheme(s))
	utilruntime.Must(configv1beta1.AddToScheme(s))
	c := &config.Configuration{}
	err := runtime.DecodeInto(serializer.NewCodecFactory(s, serializer.EnableStrict).UniversalDecoder(), text, c)
	return c, err
}

// CheckGates refuses feature gates that Kueue does not have, and those that Plimsoll cannot live with.
func CheckGates(gates map[string]bool) error {
	known := map[string]bool{}
	for gate := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		known[string(gate)] = true
	}
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		if !known[name] {
			return fmt.Errorf("featureGates: Kueue 0.17 has no gate %s; take it out", name)
		}
	}
	if gates[string(features.DynamicResourceAllocation)] {
		return fmt.Errorf("featureGates: turn %s off in Kueue: Plimsoll writes the charge for claims, and with the gate on "+
			"Kueue counts them a second time or refuses them", features.DynamicResourceAllocation)
	}
	return nil
}
