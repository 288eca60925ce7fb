package manager

import (
	"fmt"
	"os"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	config "sigs.k8s.io/kueue/apis/config/v1beta2"

	"github.com/plimsoll-dev/plimsoll/internal/kueueconfig"
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
	c, err := kueueconfig.Decode(text)
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

// quotaGates picks the gates that the quota book depends on, and refuses what it cannot follow.
func quotaGates(all map[string]bool) (map[string]bool, error) {
	if err := kueueconfig.CheckGates(all); err != nil {
		return nil, err
	}
	picked := map[string]bool{}
	for _, name := range quota.Gates() {
		if on, ok := all[name]; ok {
			picked[name] = on
		}
	}
	return picked, nil
}
