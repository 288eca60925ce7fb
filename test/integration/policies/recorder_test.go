package policies

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// call is one admission request that reached a webhook.
type call struct {
	Path, Operation, Namespace, Name, User string
}

// recorder stands in for the manager's webhooks: it allows everything, changes nothing and remembers who asked what. So
// whatever is refused is refused without the webhooks' help.
type recorder struct {
	server *httptest.Server
	down   atomic.Bool

	lock  sync.Mutex
	calls []call
}

func startRecorder() *recorder {
	r := &recorder{}
	r.server = httptest.NewTLSServer(r)
	return r
}

// ServeHTTP implements http.Handler.
func (r *recorder) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if r.down.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(request.Body).Decode(&review); err != nil || review.Request == nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	asked := review.Request
	r.lock.Lock()
	r.calls = append(r.calls, call{
		Path: request.URL.Path, Operation: string(asked.Operation),
		Namespace: asked.Namespace, Name: asked.Name, User: asked.UserInfo.Username,
	})
	r.lock.Unlock()
	review.Response = &admissionv1.AdmissionResponse{UID: asked.UID, Allowed: true}
	review.Request = nil
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review) // the API server sees it as a failed call
}

// about returns the calls for objects in a namespace, "" for those of the cluster.
func (r *recorder) about(namespace string) []call {
	r.lock.Lock()
	defer r.lock.Unlock()
	return slices.DeleteFunc(slices.Clone(r.calls), func(c call) bool { return c.Namespace != namespace })
}

// point makes the webhooks of a configuration call the recorder.
func (r *recorder) point(configuration *unstructured.Unstructured) error {
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.server.Certificate().Raw})
	webhooks, _, err := unstructured.NestedSlice(configuration.Object, "webhooks")
	if err != nil {
		return err
	}
	for i := range webhooks {
		webhook, ok := webhooks[i].(map[string]any)
		if !ok {
			return fmt.Errorf("%s: webhook %d is no object", configuration.GetName(), i)
		}
		path, found, err := unstructured.NestedString(webhook, "clientConfig", "service", "path")
		if err != nil {
			return fmt.Errorf("%s: webhook %d: %w", configuration.GetName(), i, err)
		}
		if !found {
			return fmt.Errorf("%s: webhook %d has no path of a service", configuration.GetName(), i)
		}
		webhook["clientConfig"] = map[string]any{
			"url": r.server.URL + path, "caBundle": base64.StdEncoding.EncodeToString(authority),
		}
	}
	return unstructured.SetNestedSlice(configuration.Object, webhooks, "webhooks")
}
