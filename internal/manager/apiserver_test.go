package manager

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	restwatch "k8s.io/client-go/rest/watch"
)

// server is as much of an API server as informers need: discovery, lists, and watches with initial events. What it serves is
// JSON of any shape; pods it serves as protobuf too, which holds what the types do.
type server struct {
	t *testing.T
	*httptest.Server

	mu      sync.Mutex
	served  map[string][]metav1.APIResource // by group and version
	version int64
	objects map[string]map[string]map[string]any // by path and name
	events  map[string][]served                  // by path
	changed chan struct{}
	asked   map[string][]string // what was accepted, by path
}

type served struct {
	kind    watch.EventType
	version int64
	object  map[string]any
}

// everything is what the manager's ledger watches on any server.
var everything = map[string][]metav1.APIResource{
	"v1":             {{Name: "nodes", Kind: "Node"}, {Name: "pods", Kind: "Pod", Namespaced: true}, {Name: "limitranges", Kind: "LimitRange", Namespaced: true}},
	"node.k8s.io/v1": {{Name: "runtimeclasses", Kind: "RuntimeClass"}},
	"resource.k8s.io/v1": {
		{Name: "resourceslices", Kind: "ResourceSlice"}, {Name: "resourceclaims", Kind: "ResourceClaim", Namespaced: true}, {Name: "deviceclasses", Kind: "DeviceClass"},
	},
	"plimsoll.dev/v1alpha1":  {{Name: "placements", Kind: "Placement", Namespaced: true}},
	"kueue.x-k8s.io/v1beta2": {{Name: "workloads", Kind: "Workload", Namespaced: true}},
}

func newServer(t *testing.T) *server {
	s := &server{
		t: t, served: maps.Clone(everything), objects: map[string]map[string]map[string]any{}, events: map[string][]served{},
		changed: make(chan struct{}), asked: map[string][]string{}, version: 100,
	}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *server) config() *rest.Config { return &rest.Config{Host: s.URL, QPS: -1} }

// serve adds resources to what is served.
func (s *server) serve(groupVersion string, resources ...metav1.APIResource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.served[groupVersion] = append(slices.Clone(s.served[groupVersion]), resources...)
}

// withdraw takes DeviceTaintRules out of what a group and version serve.
func (s *server) withdraw(groupVersion string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.served[groupVersion] = slices.DeleteFunc(slices.Clone(s.served[groupVersion]), func(r metav1.APIResource) bool { return r.Kind == taintRuleResource.Kind })
}

// put stores an object of JSON under a path such as "/api/v1/pods".
func (s *server) put(path, text string) {
	s.t.Helper()
	object := map[string]any{}
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		s.t.Fatalf("fixture: %v\n%s", err, text)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	m := object["metadata"].(map[string]any)
	name := m["name"].(string)
	m["resourceVersion"] = strconv.FormatInt(s.version, 10)
	if m["uid"] == nil {
		m["uid"] = name
	}
	kind := watch.Added
	if s.objects[path] == nil {
		s.objects[path] = map[string]map[string]any{}
	}
	if s.objects[path][name] != nil {
		kind = watch.Modified
	}
	s.objects[path][name] = object
	s.event(path, served{kind, s.version, object})
}

func (s *server) remove(path, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	object := maps.Clone(s.objects[path][name])
	m := maps.Clone(object["metadata"].(map[string]any))
	m["resourceVersion"] = strconv.FormatInt(s.version, 10)
	object["metadata"] = m
	delete(s.objects[path], name)
	s.event(path, served{watch.Deleted, s.version, object})
}

func (s *server) event(path string, e served) {
	s.events[path] = append(s.events[path], e)
	close(s.changed)
	s.changed = make(chan struct{})
}

// accepts returns what requests for a path asked for.
func (s *server) accepts(path string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked[path])
}

// ServeHTTP answers a request.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimSuffix(r.URL.Path, "/")
	switch parts := strings.Split(strings.Trim(path, "/"), "/"); {
	case path == "/api":
		s.answer(w, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	case path == "/apis":
		s.answer(w, s.groups())
	case len(parts) == 2 && parts[0] == "api":
		s.resources(w, parts[1])
	case len(parts) == 3 && parts[0] == "apis":
		s.resources(w, parts[1]+"/"+parts[2])
	default:
		s.read(w, r, path)
	}
}

func (s *server) answer(w http.ResponseWriter, o any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(o); err != nil {
		s.t.Error(err)
	}
}

func (s *server) groups() metav1.APIGroupList {
	s.mu.Lock()
	defer s.mu.Unlock()
	groups := map[string]*metav1.APIGroup{}
	list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for _, gv := range slices.Sorted(maps.Keys(s.served)) {
		group, version, ok := strings.Cut(gv, "/")
		if !ok {
			continue
		}
		if groups[group] == nil {
			groups[group] = &metav1.APIGroup{Name: group}
		}
		groups[group].Versions = append(groups[group].Versions, metav1.GroupVersionForDiscovery{GroupVersion: gv, Version: version})
		groups[group].PreferredVersion = groups[group].Versions[0]
	}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		list.Groups = append(list.Groups, *groups[name])
	}
	return list
}

func (s *server) resources(w http.ResponseWriter, gv string) {
	s.mu.Lock()
	list, ok := s.served[gv]
	s.mu.Unlock()
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	s.answer(w, metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv, APIResources: list})
}

// read lists or watches.
func (s *server) read(w http.ResponseWriter, r *http.Request, path string) {
	accept, query := r.Header.Get("Accept"), r.URL.Query()
	s.mu.Lock()
	s.asked[path] = append(s.asked[path], accept)
	at := strings.LastIndex(path, "/")
	gv := strings.TrimPrefix(strings.TrimPrefix(path[:at], "/apis/"), "/api/")
	is := slices.IndexFunc(s.served[gv], func(r metav1.APIResource) bool { return r.Name == path[at+1:] })
	if is < 0 {
		s.mu.Unlock()
		w.WriteHeader(http.StatusNotFound)
		return
	}
	kind := s.served[gv][is].Kind
	protobuf := kind == "Pod" && strings.Contains(accept, "protobuf")
	if query.Get("watch") != "" {
		s.mu.Unlock()
		s.watch(w, r, path, &metav1.TypeMeta{Kind: kind, APIVersion: gv}, protobuf)
		return
	}
	items := []any{}
	for _, name := range slices.Sorted(maps.Keys(s.objects[path])) {
		items = append(items, s.objects[path][name])
	}
	list := map[string]any{
		"kind": kind + "List", "apiVersion": gv, "metadata": map[string]any{"resourceVersion": strconv.FormatInt(s.version, 10)}, "items": items,
	}
	s.mu.Unlock()
	if !protobuf {
		s.answer(w, list)
		return
	}
	info := mediaOf(runtime.ContentTypeProtobuf)
	w.Header().Set("Content-Type", info.MediaType)
	if err := codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion).Encode(typed(s.t, list, &corev1.PodList{}), w); err != nil {
		s.t.Error(err)
	}
}

var codecs = serializer.NewCodecFactory(clientgoscheme.Scheme)

func mediaOf(name string) runtime.SerializerInfo {
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), name)
	return info
}

// typed returns an object as the types hold it.
func typed(t *testing.T, from map[string]any, into runtime.Object) runtime.Object {
	text, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		t.Error(err)
	}
	return into
}

// watch sends all that is there, where that is asked for, and then what changes.
func (s *server) watch(w http.ResponseWriter, r *http.Request, path string, of *metav1.TypeMeta, protobuf bool) {
	send := s.sender(w, of, protobuf)
	after, _ := strconv.ParseInt(r.URL.Query().Get("resourceVersion"), 10, 64)
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		s.mu.Lock()
		var list []served
		for _, name := range slices.Sorted(maps.Keys(s.objects[path])) {
			list = append(list, served{kind: watch.Added, object: s.objects[path][name]})
		}
		after = s.version
		s.mu.Unlock()
		for _, e := range append(list, served{kind: watch.Bookmark, object: map[string]any{"metadata": map[string]any{
			"resourceVersion": strconv.FormatInt(after, 10), "annotations": map[string]any{metav1.InitialEventsAnnotationKey: "true"},
		}}}) {
			send(e)
		}
	}
	for {
		s.mu.Lock()
		var due []served
		for _, e := range s.events[path] {
			if e.version > after {
				due, after = append(due, e), e.version
			}
		}
		changed := s.changed
		s.mu.Unlock()
		for _, e := range due {
			send(e)
		}
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
	}
}

// sender returns what writes events to a watch.
func (s *server) sender(w http.ResponseWriter, of *metav1.TypeMeta, protobuf bool) func(served) {
	flush := func() { w.(http.Flusher).Flush() }
	if !protobuf {
		w.Header().Set("Content-Type", "application/json")
		flush()
		return func(e served) {
			object := maps.Clone(e.object)
			object["kind"], object["apiVersion"] = of.Kind, of.APIVersion
			text, err := json.Marshal(map[string]any{"type": e.kind, "object": object})
			if err != nil {
				s.t.Error(err)
			}
			_, _ = fmt.Fprintln(w, string(text)) // whoever watched may have gone
			flush()
		}
	}
	info := mediaOf(runtime.ContentTypeProtobuf)
	w.Header().Set("Content-Type", info.MediaType+";stream=watch")
	flush()
	frames := streaming.NewEncoder(info.StreamSerializer.Framer.NewFrameWriter(w), info.StreamSerializer.Serializer)
	encoder := restwatch.NewEncoder(frames, codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion))
	return func(e served) {
		_ = encoder.Encode(&watch.Event{Type: e.kind, Object: typed(s.t, e.object, &corev1.Pod{})})
		flush()
	}
}
