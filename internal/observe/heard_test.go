package observe

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/plimsoll-dev/plimsoll/pkg/admission"
)

// server is one kind's list and watch.
type server struct {
	failing bool
	watch   *watch.FakeWatcher
}

func (s *server) List(metav1.ListOptions) (runtime.Object, error) {
	if s.failing {
		return nil, errors.New("away")
	}
	return &corev1.NodeList{}, nil
}

func (s *server) Watch(metav1.ListOptions) (watch.Interface, error) {
	if s.failing {
		return nil, errors.New("away")
	}
	return s.watch, nil
}

// listening is a Heard of Nodes, at noon.
type listening struct {
	*Heard
	t      *testing.T
	clock  *clocktesting.FakePassiveClock
	server *server
	lw     toolscache.ListerWatcherWithContext
}

var heardNoon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func listen(t *testing.T) *listening {
	clock := clocktesting.NewFakePassiveClock(heardNoon)
	l := &listening{Heard: NewHeard(clock), t: t, clock: clock, server: &server{watch: watch.NewFake()}}
	l.lw = toolscache.ToListerWatcherWithContext(l.listen("Node", l.server))
	return l
}

// at sets the clock to so many seconds after noon.
func (l *listening) at(seconds int) {
	l.clock.SetTime(heardNoon.Add(time.Duration(seconds) * time.Second))
}

// heard expects that anything came last so many seconds after noon.
func (l *listening) heard(seconds int) {
	l.t.Helper()
	if want := (admission.Heard{Kind: "Node", At: heardNoon.Add(time.Duration(seconds) * time.Second)}); l.Oldest() != want {
		l.t.Errorf("heard last of %v, want %v", l.Oldest(), want)
	}
}

func TestHeardOfWhatComes(t *testing.T) {
	l := listen(t)
	l.at(10)
	l.heard(0) // a watch is silent from when it is made
	if _, err := l.lw.ListWithContext(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	l.heard(10)
	l.at(20)
	w, err := l.lw.WatchWithContext(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	l.heard(20) // the server answers
	node := &corev1.Node{}
	for i, event := range []watch.EventType{watch.Added, watch.Modified, watch.Bookmark, watch.Deleted} {
		l.at(30 + i)
		l.server.watch.Action(event, node)
		if got := <-w.ResultChan(); got.Type != event || got.Object != node {
			t.Errorf("%s passes as %v", event, got)
		}
		l.heard(30 + i)
	}
	l.at(40)
	l.server.watch.Error(&metav1.Status{})
	if got := <-w.ResultChan(); got.Type != watch.Error {
		t.Errorf("an error passes as %v", got)
	}
	l.server.failing = true
	if _, err := l.lw.ListWithContext(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("a list that failed did not")
	}
	if _, err := l.lw.WatchWithContext(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("a watch that failed did not")
	}
	l.heard(33)
	if got := l.Ages()["Node"]; got != 7*time.Second {
		t.Errorf("the age is %s", got)
	}
}

func TestAWatchThatWasSilentForLongCountsOnceItHasSettled(t *testing.T) {
	l := listen(t)
	l.at(60)
	l.list()
	l.heard(60)
	l.at(151) // longer than the shortest window
	l.list()
	l.heard(60)
	l.at(152)
	l.list()
	l.heard(60)
	l.at(154)
	l.heard(152)
}

func (l *listening) list() {
	l.t.Helper()
	if _, err := l.lw.ListWithContext(l.t.Context(), metav1.ListOptions{}); err != nil {
		l.t.Fatal(err)
	}
}

func TestAWatchEndsWithWhoeverReadsIt(t *testing.T) {
	l := listen(t)
	for name, end := range map[string]func(w watch.Interface){
		"stopped by its reader": func(w watch.Interface) { w.Stop(); w.Stop() },
		"stopped by its reader while an event waits": func(w watch.Interface) {
			l.server.watch.Add(&corev1.Node{})
			w.Stop()
		},
		"ended by the server": func(watch.Interface) { l.server.watch.Stop() },
	} {
		l.server.watch = watch.NewFake()
		w, err := l.lw.WatchWithContext(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		end(w)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		for open := true; open; {
			select {
			case _, open = <-w.ResultChan():
			case <-ctx.Done():
				t.Fatalf("%s: it goes on", name)
			}
		}
		cancel()
		if !l.server.watch.IsStopped() {
			t.Errorf("%s: the server's watch goes on", name)
		}
	}
}

func TestTheQuietestWatchOfKindsThatMatterCounts(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(heardNoon)
	h := NewHeard(clock)
	if got := h.Oldest(); got != (admission.Heard{}) {
		t.Errorf("without watches it is %v", got)
	}
	rule := &unstructured.Unstructured{}
	rule.SetKind("DeviceTaintRule")
	for i, o := range []runtime.Object{&corev1.Namespace{}, rule, &resourcev1.ResourceSlice{}, &corev1.Pod{}} {
		clock.SetTime(heardNoon.Add(time.Duration(i) * time.Second))
		h.NewInformer(&server{}, o, 0, nil)
	}
	if want := (admission.Heard{Kind: "ResourceSlice", At: heardNoon.Add(2 * time.Second)}); h.Oldest() != want {
		t.Errorf("it is %v, want %v", h.Oldest(), want)
	}
	if got := h.Ages(); len(got) != 2 || got["ResourceSlice"] != time.Second || got["Pod"] != 0 {
		t.Errorf("the ages are %v", got)
	}
}
