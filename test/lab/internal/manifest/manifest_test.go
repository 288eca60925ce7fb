package manifest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func object(apiVersion, kind, name string, fields ...any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name},
	}}
	for i := 0; i < len(fields); i += 2 {
		o.Object[fields[i].(string)] = fields[i+1]
	}
	return o
}

func names(objects []*unstructured.Unstructured) []string {
	var list []string
	for _, o := range objects {
		list = append(list, o.GetKind()+"/"+o.GetName())
	}
	return list
}

func TestGroup(t *testing.T) {
	cases := map[string]struct {
		in   []*unstructured.Unstructured
		want [][]string
	}{
		"what is referred to goes first, Jobs go last": {
			in: []*unstructured.Unstructured{
				object("batch/v1", "Job", "train"),
				object("kueue.x-k8s.io/v1beta2", "LocalQueue", "lq"),
				object("kueue.x-k8s.io/v1beta2", "ClusterQueue", "cq"),
				object("v1", "Namespace", "team-a"),
				object("plimsoll.dev/v1alpha1", "DevicePolicy", "gpu"),
				object("kueue.x-k8s.io/v1beta2", "AdmissionCheck", "devices"),
				object("kueue.x-k8s.io/v1beta2", "ResourceFlavor", "h100"),
			},
			want: [][]string{
				{"Namespace/team-a"}, {"ResourceFlavor/h100"}, {"DevicePolicy/gpu"}, {"AdmissionCheck/devices"},
				{"ClusterQueue/cq"}, {"LocalQueue/lq"}, {"Job/train"},
			},
		},
		"objects of one kind keep their order and form one group": {
			in: []*unstructured.Unstructured{
				object("v1", "Node", "b"), object("v1", "Namespace", "x"), object("v1", "Node", "a"),
			},
			want: [][]string{{"Namespace/x"}, {"Node/b", "Node/a"}},
		},
		"an unknown kind stands after queues and before webhooks": {
			in: []*unstructured.Unstructured{
				object("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "w"),
				object("example.com/v1", "Gadget", "g"),
				object("kueue.x-k8s.io/v1beta2", "LocalQueue", "lq"),
			},
			want: [][]string{{"LocalQueue/lq"}, {"Gadget/g"}, {"MutatingWebhookConfiguration/w"}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got [][]string
			for _, group := range Group(tc.in) {
				got = append(got, names(group))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("groups (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLocalize(t *testing.T) {
	endpoint := Endpoint{Port: 4711, CA: []byte("ca")}
	service := map[string]any{"service": map[string]any{
		"name": "webhook-service", "namespace": "kueue-system", "path": "/mutate-pod",
	}}
	local := map[string]any{"url": "https://127.0.0.1:4711/mutate-pod", "caBundle": "Y2E="}
	elsewhere := map[string]any{"url": "https://example.com/hook"}
	admission := "admissionregistration.k8s.io/v1"
	webhooks := func(config map[string]any) []any {
		return []any{map[string]any{"name": "a.example.com", "clientConfig": config, "failurePolicy": "Fail"}}
	}
	conversion := func(config map[string]any) map[string]any {
		return map[string]any{"group": "kueue.x-k8s.io", "conversion": map[string]any{
			"strategy": "Webhook", "webhook": map[string]any{"clientConfig": config},
		}}
	}
	crd := "apiextensions.k8s.io/v1"

	cases := map[string]struct {
		in   *unstructured.Unstructured
		want *unstructured.Unstructured // nil: dropped
	}{
		"a webhook's service becomes a local URL": {
			in:   object(admission, "MutatingWebhookConfiguration", "w", "webhooks", webhooks(service)),
			want: object(admission, "MutatingWebhookConfiguration", "w", "webhooks", webhooks(local)),
		},
		"a webhook with a URL keeps it": {
			in:   object(admission, "ValidatingWebhookConfiguration", "w", "webhooks", webhooks(elsewhere)),
			want: object(admission, "ValidatingWebhookConfiguration", "w", "webhooks", webhooks(elsewhere)),
		},
		"a conversion webhook's service becomes a local URL": {
			in:   object(crd, "CustomResourceDefinition", "c", "spec", conversion(service)),
			want: object(crd, "CustomResourceDefinition", "c", "spec", conversion(local)),
		},
		"a CRD without conversion stays as it is": {
			in:   object(crd, "CustomResourceDefinition", "c", "spec", map[string]any{"group": "plimsoll.dev"}),
			want: object(crd, "CustomResourceDefinition", "c", "spec", map[string]any{"group": "plimsoll.dev"}),
		},
		"a Deployment is dropped":  {in: object("apps/v1", "Deployment", "manager")},
		"a Service is dropped":     {in: object("v1", "Service", "webhook-service")},
		"a Certificate is dropped": {in: object("cert-manager.io/v1", "Certificate", "serving-cert")},
		"a ServiceAccount is kept": {
			in:   object("v1", "ServiceAccount", "manager"),
			want: object("v1", "ServiceAccount", "manager"),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Localize([]*unstructured.Unstructured{tc.in.DeepCopy()}, endpoint)
			if err != nil {
				t.Fatal(err)
			}
			var want []*unstructured.Unstructured
			if tc.want != nil {
				want = append(want, tc.want)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecode(t *testing.T) {
	stream := `
---
# only a comment
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: a}}
- {apiVersion: v1, kind: Node, metadata: {name: b}}
---
apiVersion: v1
kind: Namespace
metadata: {name: c}
`
	objects, err := Decode(strings.NewReader(stream))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"Node/a", "Node/b", "Namespace/c"}, names(objects)); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	if _, err := Decode(strings.NewReader("metadata: {name: x}")); err == nil {
		t.Error("a document without kind was accepted")
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"b.yaml":             "{apiVersion: v1, kind: Node, metadata: {name: b}}",
		"a.yml":              "{apiVersion: v1, kind: Node, metadata: {name: a}}",
		"sub/c.json":         `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "c"}}`,
		"kustomization.yaml": "resources: [b.yaml]",
		"expected.yaml":      "jobs: []",
		"README.md":          "# not a manifest",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	objects, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"Node/a", "Node/b", "Node/c"}, names(objects)); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}
