package policies

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	plimsoll "github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

const read = "get list watch"

// The manager's rights in the whole cluster, as the API server answers for each resource that it serves and each verb.
// A right that is not in this list makes the test fail, and so does one that is missing.
func TestManagerHasTheseRightsAndNoOthers(t *testing.T) {
	want := map[string]string{
		// What the ledger observes, Kueue's objects and owners.
		"nodes":                            read,
		"namespaces":                       read,
		"limitranges":                      read,
		"persistentvolumes":                read,
		"persistentvolumeclaims":           read,
		"runtimeclasses.node.k8s.io":       read,
		"storageclasses.storage.k8s.io":    read,
		"resourceslices.resource.k8s.io":   read,
		"resourceclaims.resource.k8s.io":   read,
		"deviceclasses.resource.k8s.io":    read,
		"devicetaintrules.resource.k8s.io": read,
		"clusterqueues.kueue.x-k8s.io":     read,
		"localqueues.kueue.x-k8s.io":       read,
		"cohorts.kueue.x-k8s.io":           read,
		"resourceflavors.kueue.x-k8s.io":   read,
		"topologies.kueue.x-k8s.io":        read,
		"admissionchecks.kueue.x-k8s.io":   read,
		"jobs.batch":                       read,
		// Its own kinds; DevicePolicies may be read by everybody.
		"devicepolicies/status.plimsoll.dev": "patch update",
		"placements.plimsoll.dev":            "create delete get list patch update watch",
		"placements/status.plimsoll.dev":     "patch update",
		// The two locks, in which the policies leave it a few fields.
		"workloads.kueue.x-k8s.io":               "get list patch watch",
		"workloads/status.kueue.x-k8s.io":        "patch",
		"admissionchecks/status.kueue.x-k8s.io":  "patch update",
		"pods":                                   "get list patch watch",
		"resourceclaimtemplates.resource.k8s.io": "create delete get list watch",
		// What people read, and who may.
		"events.events.k8s.io":                      "create patch",
		"tokenreviews.authentication.k8s.io":        "create",
		"subjectaccessreviews.authorization.k8s.io": "create",
	}
	got := map[string]string{}
	for resource, verbs := range rightsOf(t, manager, "") {
		verbs = slices.DeleteFunc(verbs, func(verb string) bool { return may(t, nobody, question(resource, "", verb)) })
		if len(verbs) > 0 {
			got[resource.String()] = strings.Join(verbs, " ")
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rights in the cluster (-want +got):\n%s", diff)
	}
}

// In its own namespace it has leader election besides: its own Lease, and no other once that exists.
func TestManagerHasTheseRightsMoreInItsOwnNamespace(t *testing.T) {
	want := map[string]string{"leases.coordination.k8s.io": "create", "events": "create patch"}
	got := map[string]string{}
	for resource, verbs := range rightsOf(t, manager, plimsoll.SystemNamespace) {
		verbs = slices.DeleteFunc(verbs, func(verb string) bool { return may(t, manager, question(resource, "", verb)) })
		if len(verbs) > 0 {
			got[resource.String()] = strings.Join(verbs, " ")
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rights in %s beyond those in the cluster (-want +got):\n%s", plimsoll.SystemNamespace, diff)
	}
	lease := authorizationv1.ResourceAttributes{
		Group: "coordination.k8s.io", Resource: "leases", Namespace: plimsoll.SystemNamespace, Name: plimsoll.LeaseName,
	}
	for verb, want := range map[string]bool{"get": true, "update": true, "patch": true, "delete": false} {
		lease.Verb = verb
		if got := may(t, manager, lease); got != want {
			t.Errorf("%s its own Lease: %v, want %v", verb, got, want)
		}
	}
}

// The API server takes these pairs for the rights to allocate claims and to report on devices; they are served nowhere.
func TestManagerHasNoRightToAllocate(t *testing.T) {
	for _, resource := range []string{"resourceclaims/status", "resourceclaims/binding", "resourceclaims/driver"} {
		subresource := strings.TrimPrefix(resource, "resourceclaims/")
		for _, prefix := range []string{"", "associated-node:", "arbitrary-node:"} {
			for _, verb := range []string{"update", "patch"} {
				attributes := authorizationv1.ResourceAttributes{
					Group: "resource.k8s.io", Resource: "resourceclaims", Subresource: subresource,
					Name: "gpu.example.com", Namespace: "default", Verb: prefix + verb,
				}
				if may(t, manager, attributes) {
					t.Errorf("the manager may %s %s", attributes.Verb, resource)
				}
				if !may(t, administrator, attributes) {
					t.Errorf("an administrator may not %s %s: the question is wrong", attributes.Verb, resource)
				}
			}
		}
	}
}

// Each is tried, not only asked about: writes that DESIGN keeps from the manager, with its reason in the error.
func TestManagerHasNoRightTo(t *testing.T) {
	attempts := map[string]attempt{}
	for _, refused := range []struct {
		verb, resource string
		kind           schema.GroupVersionKind
	}{
		{"create", "resourceclaims", resourceKind("ResourceClaim")},
		{"update", "resourceclaims", resourceKind("ResourceClaim")},
		{"patch", "resourceclaims", resourceKind("ResourceClaim")},
		{"delete", "resourceclaims", resourceKind("ResourceClaim")},
		{"update", "resourceclaims/status", resourceKind("ResourceClaim")},
		{"patch", "resourceclaims/status", resourceKind("ResourceClaim")},
		{"update", "resourceclaimtemplates", resourceKind("ResourceClaimTemplate")},
		{"patch", "resourceclaimtemplates", resourceKind("ResourceClaimTemplate")},
		{"create", "resourceslices", resourceKind("ResourceSlice")},
		{"update", "resourceslices", resourceKind("ResourceSlice")},
		{"patch", "resourceslices", resourceKind("ResourceSlice")},
		{"delete", "resourceslices", resourceKind("ResourceSlice")},
		{"patch", "deviceclasses", resourceKind("DeviceClass")},
		{"create", "pods", coreKind("Pod")},
		{"update", "pods", coreKind("Pod")},
		{"delete", "pods", coreKind("Pod")},
		{"patch", "pods/status", coreKind("Pod")},
		{"patch", "pods/resize", coreKind("Pod")},
		{"patch", "pods/ephemeralcontainers", coreKind("Pod")},
		{"create", "pods/binding", coreKind("Pod")},
		{"create", "pods/eviction", coreKind("Pod")},
		{"patch", "nodes", coreKind("Node")},
		{"patch", "nodes/status", coreKind("Node")},
		{"delete", "nodes", coreKind("Node")},
		{"get", "secrets", coreKind("Secret")},
		{"create", "secrets", coreKind("Secret")},
		{"patch", "secrets", coreKind("Secret")},
		{"create", "jobs", schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}},
		{"patch", "jobs", schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}},
		{"delete", "jobs", schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}},
		{"create", "workloads", kueueKind("Workload")},
		{"update", "workloads", kueueKind("Workload")},
		{"delete", "workloads", kueueKind("Workload")},
		{"update", "workloads/status", kueueKind("Workload")},
		{"patch", "admissionchecks", kueueKind("AdmissionCheck")},
		{"patch", "clusterqueues", kueueKind("ClusterQueue")},
		{"patch", "localqueues", kueueKind("LocalQueue")},
		{"patch", "resourceflavors", kueueKind("ResourceFlavor")},
		{"create", "devicepolicies", plimsoll.GroupVersion.WithKind("DevicePolicy")},
		{"patch", "devicepolicies", plimsoll.GroupVersion.WithKind("DevicePolicy")},
		{"delete", "devicepolicies", plimsoll.GroupVersion.WithKind("DevicePolicy")},
		{"patch", "validatingadmissionpolicies", admissionKind("ValidatingAdmissionPolicy")},
		{"delete", "validatingadmissionpolicybindings", admissionKind("ValidatingAdmissionPolicyBinding")},
		{"patch", "mutatingwebhookconfigurations", admissionKind("MutatingWebhookConfiguration")},
	} {
		attempts[refused.verb+" "+refused.resource] = attempt{
			as:      manager,
			do:      func(s *scene) error { return s.attempt(refused.verb, refused.resource, refused.kind) },
			refused: noRight(refused.verb, refused.resource),
		}
	}
	try(t, attempts)
}

func resourceKind(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "resource.k8s.io", Version: "v1", Kind: kind}
}

func coreKind(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Version: "v1", Kind: kind}
}

func kueueKind(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "kueue.x-k8s.io", Version: "v1beta2", Kind: kind}
}

func admissionKind(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: kind}
}

// attempt tries a verb on an object that need not exist: rights come before existence.
func (s *scene) attempt(verb, resource string, kind schema.GroupVersionKind) error {
	s.t.Helper()
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	object.SetName("target")
	if namespaced, err := s.admin.IsObjectNamespaced(object); err != nil {
		s.t.Fatal(err)
	} else if namespaced {
		object.SetNamespace(s.namespace)
	}
	_, subresource, isSubresource := strings.Cut(resource, "/")
	patch := s.jsonPatch([]operation{add("/metadata/labels", map[string]string{"team": "ours"})})
	switch {
	case isSubresource && verb == "create":
		body := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "target"}}}
		body.SetGroupVersionKind(map[string]schema.GroupVersionKind{
			"binding":  coreKind("Binding"),
			"eviction": {Group: "policy", Version: "v1", Kind: "Eviction"},
		}[subresource])
		return s.as.SubResource(subresource).Create(s.ctx(), object, body)
	case isSubresource && verb == "update":
		return s.as.SubResource(subresource).Update(s.ctx(), object)
	case isSubresource && verb == "patch":
		return s.as.SubResource(subresource).Patch(s.ctx(), object, patch)
	case verb == "get":
		return s.as.Get(s.ctx(), client.ObjectKeyFromObject(object), object)
	case verb == "create":
		return s.as.Create(s.ctx(), object)
	case verb == "update":
		object.SetResourceVersion("1")
		return s.as.Update(s.ctx(), object)
	case verb == "patch":
		return s.as.Patch(s.ctx(), object, patch)
	case verb == "delete":
		return s.as.Delete(s.ctx(), object)
	}
	s.t.Fatalf("no way to %s %s", verb, resource)
	return nil
}

// rightsOf lists what a user may do in a namespace, or in all, with every resource that the API server serves.
func rightsOf(t *testing.T, who user, namespace string) map[schema.GroupResource][]string {
	t.Helper()
	rights := map[schema.GroupResource][]string{}
	for resource, verbs := range servedVerbs(t) {
		for _, verb := range slices.Sorted(maps.Keys(verbs)) {
			if may(t, who, question(resource, namespace, verb)) {
				rights[resource] = append(rights[resource], verb)
			}
		}
	}
	return rights
}

// servedVerbs are the verbs that the API server knows for each resource, over all its versions.
func servedVerbs(t *testing.T) map[schema.GroupResource]map[string]bool {
	t.Helper()
	_, lists, err := server.typed.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	served := map[schema.GroupResource]map[string]bool{}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range list.APIResources {
			resource := schema.GroupResource{Group: version.Group, Resource: found.Name}
			if served[resource] == nil {
				served[resource] = map[string]bool{}
			}
			for _, verb := range found.Verbs {
				served[resource][verb] = true
			}
		}
	}
	return served
}

func question(resource schema.GroupResource, namespace, verb string) authorizationv1.ResourceAttributes {
	name, subresource, _ := strings.Cut(resource.Resource, "/")
	return authorizationv1.ResourceAttributes{
		Group: resource.Group, Resource: name, Subresource: subresource, Namespace: namespace, Verb: verb,
	}
}

func may(t *testing.T, who user, attributes authorizationv1.ResourceAttributes) bool {
	t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: who.name, Groups: who.groups, ResourceAttributes: &attributes,
	}}
	if err := server.admin.Create(t.Context(), review); err != nil {
		t.Error(err)
	}
	return review.Status.Allowed
}

// grantEverything gives a user every right that RBAC can give, until the test ends.
func grantEverything(t *testing.T, who user) {
	t.Helper()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "everything-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: who.name}},
	}
	if err := server.admin.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	everything := authorizationv1.ResourceAttributes{Group: "*", Resource: "*", Verb: "*"}
	allowed := func(want bool) func(context.Context) (bool, error) {
		return func(context.Context) (bool, error) { return may(t, who, everything) == want, nil }
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := server.admin.Delete(ctx, binding); err != nil {
			t.Error(err)
		}
		if err := poll(ctx, patience, func(ctx context.Context) (bool, error) {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: who.name, ResourceAttributes: &everything,
			}}
			return !review.Status.Allowed, server.admin.Create(ctx, review)
		}); err != nil {
			t.Error(fmt.Errorf("take the rights back: %w", err))
		}
	})
	if err := poll(t.Context(), patience, allowed(true)); err != nil {
		t.Fatal(fmt.Errorf("wait for the rights: %w", err))
	}
}
