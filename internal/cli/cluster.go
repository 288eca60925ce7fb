package cli

import (
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/plimsoll-dev/plimsoll/internal/explain"
)

// cluster says which cluster to ask, by kubectl's rules: flags, then KUBECONFIG, then the file in the home folder, then
// the service account of the pod that this runs in.
type cluster struct {
	kubeconfig, context, namespace string
}

func (c *cluster) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&c.kubeconfig, "kubeconfig", "", "path of the kubeconfig file")
	flags.StringVar(&c.context, "context", "", "name of the kubeconfig's context")
	flags.StringVarP(&c.namespace, "namespace", "n", "", "namespace of what is asked about")
}

// open returns a reader with the caller's rights, and the namespace that is meant.
func (c *cluster) open() (client.Reader, string, error) {
	loader := c.loader()
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, "", fmt.Errorf("read kubeconfig: %w", err)
	}
	config, err := c.config()
	if err != nil {
		return nil, "", err
	}
	reader, err := explain.NewReader(config)
	return reader, namespace, err
}

// config returns who the caller is to the cluster.
func (c *cluster) config() (*rest.Config, error) {
	config, err := c.loader().ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	return config, nil
}

func (c *cluster) loader() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: c.context}
	overrides.Context.Namespace = c.namespace
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
}
