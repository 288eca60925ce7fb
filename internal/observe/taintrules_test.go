package observe

import (
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// answers is a server's discovery that answers every question with the same.
type answers struct {
	list *metav1.APIResourceList
	err  error
}

func (a *answers) ServerResourcesForGroupVersion(string) (*metav1.APIResourceList, error) {
	return a.list, a.err
}

func TestNothingIsSyncedBeforeItIsKnownWhetherRulesAreServed(t *testing.T) {
	o := &Observer{}
	if !o.Synced() {
		t.Fatal("not synced where no rules are looked for")
	}
	server := &answers{err: errors.New("no answer")}
	rules := o.TaintRules(nil, server, time.Second)
	if o.Synced() {
		t.Error("synced before the first look")
	}
	if err := rules.look(t.Context()); err == nil || o.Synced() {
		t.Errorf("%v, synced %v, want an error and no sync without an answer", err, o.Synced())
	}
	server.err = apierrors.NewNotFound(schema.GroupResource{Group: "resource.k8s.io"}, "v1")
	if err := rules.look(t.Context()); err != nil || !o.Synced() {
		t.Errorf("%v, synced %v, want sync where no version is served", err, o.Synced())
	}
	server.err, server.list = nil, &metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: "resourceslices"}, {Name: "devicetaintrules/status"}}}
	if err := rules.look(t.Context()); err != nil || !o.Synced() {
		t.Errorf("%v, synced %v, want sync where the group has no rules", err, o.Synced())
	}
	server.err = errors.New("no answer")
	if err := rules.look(t.Context()); err == nil || !o.Synced() {
		t.Errorf("%v, synced %v, want an error, and what was known before to stand", err, o.Synced())
	}
}
