package observe

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/pkg/quota"
)

func TestQuotaObserver(t *testing.T) {
	ctx, scheme := context.Background(), runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := kueue.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	book, err := quota.New(quota.Options{})
	if err != nil {
		t.Fatal(err)
	}
	informers, changes := &informertest.FakeInformers{Scheme: scheme}, 0
	informers.InformersByGVK = map[schema.GroupVersionKind]toolscache.SharedIndexInformer{}
	for _, kind := range quotaKinds() {
		gvk, err := apiutil.GVKForObject(kind, scheme)
		if err != nil {
			t.Fatal(err)
		}
		informers.InformersByGVK[gvk] = controllertest.NewFakeInformer() // not synced
	}
	o := &QuotaObserver{Book: book, Changed: func() { changes++ }}
	if err := o.Register(ctx, informers); err != nil {
		t.Fatal(err)
	}
	of := func(kind client.Object) *controllertest.FakeInformer {
		f, err := informers.FakeInformerFor(ctx, kind)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}

	for i, kind := range quotaKinds() {
		if o.Synced() {
			t.Errorf("synced while %T is not", kind)
		}
		of(kind).Synced()
		before := changes
		made := kind.DeepCopyObject().(client.Object)
		made.SetName("x")
		made.SetResourceVersion("1")
		of(kind).Add(made)
		_, waits := kind.(*kueue.Workload)
		if changed := changes > before; changed == waits {
			t.Errorf("%d: a new %T: changed is %v", i, kind, changed)
		}
	}
	if !o.Synced() {
		t.Error("never synced")
	}

	queue := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "x", ResourceVersion: "2"}}
	before := changes
	of(queue).Update(queue, queue)
	if changes != before {
		t.Error("an update that changes no answer was reported")
	}
	handler(o.see).OnDelete(toolscache.DeletedFinalStateUnknown{Key: "x", Obj: queue})
	if changes != before+1 {
		t.Error("an object whose end the watch missed is not gone")
	}
	s, err := book.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if s.Active("x") {
		t.Error("the queue is still there")
	}
}
