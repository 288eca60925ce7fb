package e2e

import (
	"context"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/internal/parts"
	"github.com/plimsoll-dev/plimsoll/pkg/simulate"
)

// diary is what happened to the Workloads of Jobs: who came, was admitted and evicted, ended and went, and when that was seen.
// Unlike a history it keeps no versions.
type diary struct {
	mu     sync.Mutex
	states map[types.UID]standing
	pages  map[simulate.Key][]happening
	broken error
}

type standing struct{ arrived, admitted, finished bool }

type happening struct {
	kind simulate.EventKind
	seen time.Time
}

// diary begins one; it is ended when the container's specs have run.
func (c *cluster) diary() *diary {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(context.Background())
	DeferCleanup(cancel)
	watcher, err := client.NewWithWatch(c.Admin(), client.Options{Scheme: parts.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	w, err := watcher.Watch(ctx, &kueue.WorkloadList{})
	Expect(err).NotTo(HaveOccurred())
	d := &diary{states: map[types.UID]standing{}, pages: map[simulate.Key][]happening{}}
	go func() {
		for e := range w.ResultChan() {
			d.see(e)
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		if ctx.Err() == nil && d.broken == nil {
			d.broken = fmt.Errorf("the watch of Workloads ended")
		}
	}()
	return d
}

func (d *diary) see(e watch.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	wl, ok := e.Object.(*kueue.Workload)
	if !ok {
		d.broken = fmt.Errorf("a watch said %v", e)
		return
	}
	ref := metav1.GetControllerOf(wl)
	if ref == nil || ref.Kind != "Job" {
		return
	}
	key := simulate.Key{Namespace: wl.Namespace, Kind: ref.Kind, Name: ref.Name}
	say := func(kind simulate.EventKind) {
		d.pages[key] = append(d.pages[key], happening{kind, time.Now()})
	}
	was := d.states[wl.UID]
	now := standing{
		arrived:  true,
		admitted: meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadAdmitted),
		finished: meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadFinished),
	}
	d.states[wl.UID] = now
	if !was.arrived {
		say(simulate.EventArrived)
	}
	if now.admitted && !was.admitted {
		say(simulate.EventAdmitted)
	}
	if was.admitted && !now.admitted && !now.finished {
		say(simulate.EventEvicted)
	}
	if now.finished && !was.finished {
		say(simulate.EventFinished)
	}
	if e.Type == watch.Deleted {
		say(simulate.EventDeleted)
	}
}

// of returns what happened to a Job, with its times since a moment.
func (d *diary) of(key simulate.Key, start time.Time) []simulate.Event {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []simulate.Event
	for _, h := range d.pages[key] {
		out = append(out, simulate.Event{At: h.seen.Sub(start), Kind: h.kind, Workload: key})
	}
	return out
}

// whole returns an error if anything was missed.
func (d *diary) whole() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.broken
}
