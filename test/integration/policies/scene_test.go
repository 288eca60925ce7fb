package policies

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// scene is a tenant's namespace, and somebody who tries something in it.
type scene struct {
	t         *testing.T
	namespace string
	// admin prepares the scene; a master of the system.
	admin client.Client
	// as is the client of the user whose writes are tested.
	as client.Client
}

// attempt is one write, and what must come of it.
type attempt struct {
	as user
	do func(s *scene) error
	// refused are parts of the sentence with which the API server refuses the write; none if it must be allowed.
	refused []string
}

// denied is a refusal by one of our policies, in words that begin so.
func denied(policy, words string) []string {
	return []string{"ValidatingAdmissionPolicy '" + policy + "' with binding '" + policy + "' denied request: " + words}
}

// noRight is a refusal by RBAC.
func noRight(verb, resource string) []string {
	return []string{fmt.Sprintf("cannot %s resource %q", verb, resource)}
}

// try makes a subtest of every attempt.
func try(t *testing.T, attempts map[string]attempt) {
	t.Helper()
	for name, a := range attempts {
		t.Run(name, func(t *testing.T) {
			err := a.do(newScene(t, a.as))
			switch {
			case a.refused == nil && err != nil:
				t.Fatalf("%s may not do it: %v", a.as.name, err)
			case a.refused == nil:
			case err == nil:
				t.Fatalf("%s may do it, want it refused with %q", a.as.name, a.refused)
			case !apierrors.IsForbidden(err):
				t.Fatalf("%s fails otherwise than by being forbidden: %v", a.as.name, err)
			default:
				for _, words := range a.refused {
					if !strings.Contains(err.Error(), words) {
						t.Errorf("%s is refused with %q, want %q in it", a.as.name, err, words)
					}
				}
			}
		})
	}
}

func newScene(t *testing.T, who user) *scene {
	t.Helper()
	s := &scene{t: t, admin: server.admin}
	var err error
	if s.as, err = client.New(server.configFor(who), client.Options{Mapper: server.admin.RESTMapper()}); err != nil {
		t.Fatal(err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "team-"}}
	s.must(s.admin.Create(t.Context(), namespace))
	s.namespace = namespace.Name
	for _, role := range []string{"edit", "batch-user-role"} {
		s.must(s.admin.Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: groupTenants}},
		}))
	}
	for _, resource := range []schema.GroupResource{
		{Group: "resource.k8s.io", Resource: "resourceclaims"}, {Group: "kueue.x-k8s.io", Resource: "workloads"},
	} {
		s.eventually("the tenant has the roles", func(context.Context) (bool, error) {
			return may(t, tenant, question(resource, s.namespace, "get")), nil
		})
	}
	return s
}

func (s *scene) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// by is a client of another user in the same scene.
func (s *scene) by(who user) client.Client {
	s.t.Helper()
	c, err := client.New(server.configFor(who), client.Options{Mapper: server.admin.RESTMapper()})
	s.must(err)
	return c
}

func (s *scene) ctx() context.Context { return s.t.Context() }

// operation is one step of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

func add(path string, value any) operation { return operation{Op: "add", Path: path, Value: value} }
func replace(path string, value any) operation {
	return operation{Op: "replace", Path: path, Value: value}
}
func remove(path string) operation { return operation{Op: "remove", Path: path} }

// patch is a JSON patch by the scene's user.
func (s *scene) patch(object client.Object, steps ...operation) error {
	s.t.Helper()
	return s.as.Patch(s.ctx(), object, s.jsonPatch(steps))
}

// patchSubresource is a JSON patch of a subresource by the scene's user.
func (s *scene) patchSubresource(object client.Object, subresource string, steps ...operation) error {
	s.t.Helper()
	return s.as.SubResource(subresource).Patch(s.ctx(), object, s.jsonPatch(steps))
}

func (s *scene) jsonPatch(steps []operation) client.Patch {
	s.t.Helper()
	data, err := json.Marshal(steps)
	s.must(err)
	return client.RawPatch(types.JSONPatchType, data)
}

// eventually waits for what controllers do.
func (s *scene) eventually(what string, check func(ctx context.Context) (bool, error)) {
	s.t.Helper()
	if err := poll(s.ctx(), patience, check); err != nil {
		s.t.Fatalf("not within %s: %s: %v", patience, what, err)
	}
}

// gone tells whether an object is not there any more, or another in its place.
func (s *scene) gone(object client.Object) func(context.Context) (bool, error) {
	s.t.Helper()
	uid := object.GetUID()
	if uid == "" {
		s.t.Fatalf("%s was not read before it goes", object.GetName())
	}
	return func(ctx context.Context) (bool, error) {
		err := s.admin.Get(ctx, client.ObjectKeyFromObject(object), object)
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return object.GetUID() != uid, err
	}
}
