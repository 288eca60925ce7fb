package lab

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/plimsoll-dev/plimsoll/test/lab/internal/manifest"
	"github.com/plimsoll-dev/plimsoll/test/lab/internal/pki"
)

const (
	kueueModule         = "sigs.k8s.io/kueue"
	kueueManifests      = "kueue.json" // in bin/: Kueue's installation, rendered when it was built
	kueueNamespace      = "kueue-system"
	kueueServiceAccount = "kueue-controller-manager"
	kueueWebhookService = "kueue-webhook-service"
	kueueWebhookSecret  = "kueue-webhook-server-cert"
	// kueueAuthority is the name under which Kueue's certificate rotator accepts an authority as its own.
	kueueAuthority = "kueue-ca"
)

// renderKueue writes the installation that Kueue's module carries to a file, as a list.
func renderKueue(ctx context.Context, module, file string) error {
	out, err := goOutput(ctx, module, "mod", "download", "-json", kueueModule)
	if err != nil {
		return err
	}
	var downloaded struct{ Dir string }
	if err := json.Unmarshal([]byte(out), &downloaded); err != nil {
		return fmt.Errorf("find module %s: %w", kueueModule, err)
	}
	objects, err := kustomize(filepath.Join(downloaded.Dir, "config", "default"))
	if err != nil {
		return err
	}
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "List"}}
	for _, object := range objects {
		list.Items = append(list.Items, *object)
	}
	data, err := list.MarshalJSON()
	if err != nil {
		return fmt.Errorf("encode Kueue's installation: %w", err)
	}
	return os.WriteFile(file, data, 0o644)
}

// kueueObjects returns what to apply for Kueue to run on this machine, with the certificates of its webhooks.
//
// Kueue manages its certificates itself here. With external ones it insists on a path below /etc; and one that it finds in
// the secret, still valid, it leaves alone.
func (l *Lab) kueueObjects() ([]*unstructured.Unstructured, error) {
	authority, err := pki.NewRSAAuthority(kueueAuthority)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(l.binary(kueueManifests))
	if err != nil {
		return nil, fmt.Errorf("read Kueue's installation: %w", err)
	}
	objects, err := manifest.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("read Kueue's installation: %w", err)
	}
	manifest.StripDescriptions(objects)
	endpoint := manifest.Endpoint{Port: l.endpoints.kueueWebhook, CA: authority.Cert}
	objects, err = manifest.Localize(objects, endpoint)
	if err != nil {
		return nil, fmt.Errorf("localize Kueue's installation: %w", err)
	}
	serving, err := authority.Server(kueueWebhookService+"."+kueueNamespace+".svc", "localhost", "127.0.0.1")
	if err != nil {
		return nil, err
	}
	for name, content := range map[string][]byte{"tls.crt": serving.Cert, "tls.key": serving.Key} {
		if err := l.state.write(l.state.pki(filepath.Join("kueue", name)), content); err != nil {
			return nil, err
		}
	}
	for _, object := range objects {
		if object.GetKind() == "Secret" && object.GetName() == kueueWebhookSecret {
			object.Object["data"] = map[string]any{
				"ca.crt":  encode(authority.Cert),
				"ca.key":  encode(authority.Key),
				"tls.crt": encode(serving.Cert),
				"tls.key": encode(serving.Key),
			}
			return objects, l.configureKueue()
		}
	}
	return nil, fmt.Errorf("no secret %s in Kueue's installation", kueueWebhookSecret)
}

func encode(data []byte) string { return base64.StdEncoding.EncodeToString(data) }

// configureKueue writes the manager's configuration. It is a plain map: the typed one would pull half of Kueue in.
func (l *Lab) configureKueue() error {
	gates := map[string]bool{"VisibilityOnDemand": false} // its API server needs a service network
	maps.Copy(gates, l.options.KueueFeatureGates)
	data, err := yaml.Marshal(map[string]any{
		"apiVersion": "config.kueue.x-k8s.io/v1beta2",
		"kind":       "Configuration",
		"namespace":  kueueNamespace,
		"health":     map[string]any{"healthProbeBindAddress": loopback(l.endpoints.kueueHealth)},
		"metrics": map[string]any{
			"bindAddress":                 loopback(l.endpoints.kueueMetrics),
			"enableClusterQueueResources": true,
		},
		"webhook": map[string]any{
			"host":    "127.0.0.1",
			"port":    l.endpoints.kueueWebhook,
			"certDir": l.state.pki("kueue"),
		},
		"leaderElection":   map[string]any{"leaderElect": false},
		"clientConnection": map[string]any{"qps": 200, "burst": 400},
		"internalCertManagement": map[string]any{
			"enable":             true,
			"webhookServiceName": kueueWebhookService,
			"webhookSecretName":  kueueWebhookSecret,
		},
		"integrations": map[string]any{"frameworks": []string{"batch/job"}},
		// Its presence turns fair sharing on.
		"fairSharing": map[string]any{
			"preemptionStrategies": []string{"LessThanOrEqualToFinalShare", "LessThanInitialShare"},
		},
		"featureGates": gates,
	})
	if err != nil {
		return fmt.Errorf("encode Kueue's configuration: %w", err)
	}
	return l.state.write(l.state.conf("kueue.yaml"), data)
}

func (l *Lab) kueueProcess() process {
	e := l.endpoints
	return process{
		args:  []string{"--config=" + l.state.conf("kueue.yaml"), "--zap-log-level=2"},
		env:   []string{"KUBECONFIG=" + l.state.conf(Kueue)},
		ports: []int{e.kueueHealth, e.kueueMetrics, e.kueueWebhook},
		ready: httpURL(e.kueueHealth, "/readyz"),
		tier:  tierClient,
	}
}
