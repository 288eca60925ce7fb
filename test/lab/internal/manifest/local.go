package manifest

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Endpoint is where a manager's webhooks listen on this machine.
type Endpoint struct {
	Port int
	CA   []byte // PEM, the authority that signed the serving certificate
}

// url returns the endpoint's address for a path of the service it stands for.
func (e Endpoint) url(path string) string {
	return fmt.Sprintf("https://127.0.0.1:%d/%s", e.Port, strings.TrimPrefix(path, "/"))
}

// inClusterKinds run or expose containers, of which the lab has none.
var inClusterKinds = []string{"Deployment", "DaemonSet", "StatefulSet", "Service", "APIService"}

// inClusterGroups belong to add-ons that the lab does not install.
var inClusterGroups = []string{"cert-manager.io", "monitoring.coreos.com"}

// Localize returns the objects of an installation without what only works with containers, add-ons or a service
// network, and with every webhook and CRD conversion that names a service pointed at the endpoint instead. The objects
// are changed in place.
func Localize(objects []*unstructured.Unstructured, endpoint Endpoint) ([]*unstructured.Unstructured, error) {
	var local []*unstructured.Unstructured
	for _, object := range objects {
		group := object.GroupVersionKind().Group
		if slices.Contains(inClusterKinds, object.GetKind()) || slices.Contains(inClusterGroups, group) {
			continue
		}
		if err := pointWebhooks(object, endpoint); err != nil {
			return nil, fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
		}
		local = append(local, object)
	}
	return local, nil
}

func pointWebhooks(object *unstructured.Unstructured, endpoint Endpoint) error {
	switch object.GetKind() {
	case "CustomResourceDefinition":
		path := []string{"spec", "conversion", "webhook", "clientConfig"}
		config, found, err := unstructured.NestedMap(object.Object, path...)
		if err != nil || !found {
			return err
		}
		return unstructured.SetNestedMap(object.Object, pointed(config, endpoint), path...)
	case "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration":
		webhooks, found, err := unstructured.NestedSlice(object.Object, "webhooks")
		if err != nil || !found {
			return err
		}
		for i := range webhooks {
			webhook, ok := webhooks[i].(map[string]any)
			if !ok {
				return fmt.Errorf("webhook %d is no object", i)
			}
			if config, ok := webhook["clientConfig"].(map[string]any); ok {
				webhook["clientConfig"] = pointed(config, endpoint)
			}
		}
		return unstructured.SetNestedSlice(object.Object, webhooks, "webhooks")
	}
	return nil
}

// pointed returns a client configuration that reaches the endpoint. One that already has a URL stays as it is.
func pointed(config map[string]any, endpoint Endpoint) map[string]any {
	service, ok := config["service"].(map[string]any)
	if !ok {
		return config
	}
	path, _ := service["path"].(string)
	return map[string]any{
		"url":      endpoint.url(path),
		"caBundle": base64.StdEncoding.EncodeToString(endpoint.CA),
	}
}
