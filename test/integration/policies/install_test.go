package policies

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

var moduleLine = regexp.MustCompile(`(?m)^module github\.com/plimsoll-dev/plimsoll$`)

// findRoot returns the closest folder, from the working folder upwards, whose go.mod is Plimsoll's.
func findRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && moduleLine.Match(data) {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("not inside a checkout of github.com/plimsoll-dev/plimsoll")
		}
		dir = parent
	}
}

// kueueFolder is where Kueue's module lies.
func kueueFolder(ctx context.Context, root string) (string, error) {
	command := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kueue")
	command.Dir = root
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("find Kueue's module: %w", err)
	}
	folder := strings.TrimSpace(string(out))
	if folder == "" {
		return "", errors.New("find Kueue's module: not downloaded")
	}
	return folder, nil
}

func render(folder string) ([]*unstructured.Unstructured, error) {
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		return nil, fmt.Errorf("render %s: %w", folder, err)
	}
	var objects []*unstructured.Unstructured
	for _, resource := range resources.Resources() {
		data, err := resource.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("render %s: %w", folder, err)
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(data); err != nil {
			return nil, fmt.Errorf("render %s: %w", folder, err)
		}
		objects = append(objects, object)
	}
	return objects, nil
}

// install puts Kueue's CRDs and the roles it has for people into the API server, then config/default with the webhooks
// pointed at the recorder and without what add-ons would have to serve.
func (c *controlPlane) install(ctx context.Context) error {
	kueue, err := kueueFolder(ctx, c.root)
	if err != nil {
		return err
	}
	if _, err := envtest.InstallCRDs(c.config, envtest.CRDInstallOptions{
		Paths:              []string{filepath.Join(kueue, "config", "components", "crd", "bases")},
		ErrorIfPathMissing: true,
	}); err != nil {
		return fmt.Errorf("install Kueue's CRDs: %w", err)
	}
	roles, err := render(filepath.Join(kueue, "config", "components", "rbac"))
	if err != nil {
		return err
	}
	roles = slices.DeleteFunc(roles, func(o *unstructured.Unstructured) bool { return o.GetKind() != "ClusterRole" })
	if err := c.create(ctx, roles); err != nil {
		return err
	}

	if _, err := envtest.InstallCRDs(c.config, envtest.CRDInstallOptions{
		Paths:              []string{filepath.Join(c.root, "config", "crd", "bases")},
		ErrorIfPathMissing: true,
	}); err != nil {
		return fmt.Errorf("install Plimsoll's CRDs: %w", err)
	}
	objects, err := render(filepath.Join(c.root, "config", "default"))
	if err != nil {
		return err
	}
	var own []*unstructured.Unstructured
	for _, object := range objects {
		switch {
		case object.GetKind() == "CustomResourceDefinition", object.GroupVersionKind().Group == "cert-manager.io":
			continue
		case strings.HasSuffix(object.GetKind(), "WebhookConfiguration"):
			if err := c.webhooks.point(object); err != nil {
				return err
			}
		}
		own = append(own, object)
	}
	if err := c.create(ctx, own); err != nil {
		return err
	}
	return c.waitForPolicies(ctx)
}

func (c *controlPlane) create(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		if err := c.admin.Create(ctx, object); err != nil {
			return fmt.Errorf("create %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// waitForPolicies waits until the API server enforces what was installed. It takes policies up in whole lists, so a policy
// that was created after all others tells for them.
func (c *controlPlane) waitForPolicies(ctx context.Context) error {
	const name = "plimsoll-test-probe"
	object := func(apiVersion, kind string, spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec,
		}}
	}
	const admission = "admissionregistration.k8s.io/v1"
	probe := []*unstructured.Unstructured{
		object(admission, "ValidatingAdmissionPolicy", map[string]any{
			"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{
				"apiGroups": []any{"rbac.authorization.k8s.io"}, "apiVersions": []any{"v1"},
				"operations": []any{"CREATE"}, "resources": []any{"clusterroles"}, "resourceNames": []any{name},
			}}},
			"validations": []any{map[string]any{"expression": "false", "message": name}},
		}),
		object(admission, "ValidatingAdmissionPolicyBinding", map[string]any{
			"policyName": name, "validationActions": []any{"Deny"},
		}),
	}
	if err := c.create(ctx, probe); err != nil {
		return err
	}
	role := &rbacv1.ClusterRole{}
	role.Name = name
	err := poll(ctx, patience, func(ctx context.Context) (bool, error) {
		err := c.admin.Create(ctx, role.DeepCopy(), client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+name+"'"), nil
	})
	if err != nil {
		return fmt.Errorf("wait for the API server to take up admission policies: %w", err)
	}
	return nil
}

// waitForRoles makes an administrator, and waits until the controller manager has put our viewer role into Kubernetes' own, and Kueue's into theirs.
func (c *controlPlane) waitForRoles(ctx context.Context) error {
	if err := c.admin.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "plimsoll-test-administrator"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: administrator.name}},
	}); err != nil {
		return err
	}
	for role, resource := range map[string]string{"edit": "placements", "batch-user-role": "workloads"} {
		err := poll(ctx, patience, func(ctx context.Context) (bool, error) {
			var found rbacv1.ClusterRole
			if err := c.admin.Get(ctx, client.ObjectKey{Name: role}, &found); err != nil {
				return false, err
			}
			return slices.ContainsFunc(found.Rules, func(rule rbacv1.PolicyRule) bool {
				return slices.Contains(rule.Resources, resource)
			}), nil
		})
		if err != nil {
			return fmt.Errorf("wait for %s in ClusterRole %s: %w", resource, role, err)
		}
	}
	return nil
}

var checksPolicyHolds bool

// waitForChecksPolicy waits until the API server knows AdmissionChecks as parameters of a policy. It looks for kinds that it
// does not know once in 30 seconds, so this takes up to that from the time at which Kueue's CRDs were installed.
func waitForChecksPolicy(t *testing.T) {
	t.Helper()
	if checksPolicyHolds {
		return
	}
	s := newScene(t, manager)
	workload := s.checkedWorkload()
	s.eventually("the manager is kept from the checks of others", func(context.Context) (bool, error) {
		patch := s.jsonPatch([]operation{replace("/status/admissionChecks/1/message", "ours")})
		err := s.as.Status().Patch(s.ctx(), workload.DeepCopy(), patch, client.DryRunAll)
		return apierrors.IsForbidden(err), ignoreForbidden(err)
	})
	checksPolicyHolds = true
}

func ignoreForbidden(err error) error {
	if apierrors.IsForbidden(err) {
		return nil
	}
	return err
}
