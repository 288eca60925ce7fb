// Package steering writes to Workloads: the allowed set and the charge while they hold no quota, the eviction by
// deactivation, and the state of our admission check. Each write is one patch, safe to repeat.
package steering

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
)

// maxMessage bounds the message of a check; Kueue allows 32 KiB.
const maxMessage = 1024

// Writer writes to Workloads. It is safe for concurrent use.
type Writer struct {
	Client client.Client
	// Now is the time that check states carry.
	Now func() time.Time
	// Nonce is where nonces come from; nil for crypto/rand.
	Nonce io.Reader
}

// Steer writes a plan into a Workload that holds no quota; it does nothing where the Workload carries it already. A
// conflict is an error: the Workload is looked at again when its newer version comes.
func (w *Writer) Steer(ctx context.Context, wl *kueue.Workload, p *flavors.Policy, plan flavors.Plan) (written bool, err error) {
	return w.patch(ctx, wl, func(c *kueue.Workload) error { return p.Steer(c, plan) })
}

// Leave takes out of a Workload that holds no quota all that steering wrote, and ends an eviction of ours, in one patch.
func (w *Writer) Leave(ctx context.Context, wl *kueue.Workload) (written bool, err error) {
	return w.patch(ctx, wl, func(c *kueue.Workload) error {
		if Deactivated(c) {
			delete(c.Annotations, v1alpha1.SteeringAnnotation)
			c.Spec.Active = ptr.To(true)
		}
		(*flavors.Policy)(nil).Leave(c)
		return nil
	})
}

// Deactivate begins an eviction: Kueue takes the quota back and suspends the Job. The nonce in the annotation allows
// Reactivate, and nothing else does.
func (w *Writer) Deactivate(ctx context.Context, wl *kueue.Workload) error {
	nonce := make([]byte, 8)
	from := w.Nonce
	if from == nil {
		from = rand.Reader
	}
	if _, err := io.ReadFull(from, nonce); err != nil {
		return fmt.Errorf("make nonce: %w", err)
	}
	_, err := w.patch(ctx, wl, func(c *kueue.Workload) error {
		if c.Annotations == nil {
			c.Annotations = map[string]string{}
		}
		c.Annotations[v1alpha1.SteeringAnnotation] = hex.EncodeToString(nonce)
		c.Spec.Active = ptr.To(false)
		return nil
	})
	return err
}

// Deactivated says whether a Workload is inactive by an eviction of ours. An admin's own active: false has no nonce.
func Deactivated(wl *kueue.Workload) bool {
	return !ptr.Deref(wl.Spec.Active, true) && wl.Annotations[v1alpha1.SteeringAnnotation] != ""
}

// TakenOver says whether somebody else made a Workload active again before an eviction of ours had come to that.
func TakenOver(wl *kueue.Workload) bool {
	return ptr.Deref(wl.Spec.Active, true) && wl.Annotations[v1alpha1.SteeringAnnotation] != ""
}

// SetByAnother says whether somebody else has set active since an eviction of ours began, though it is false as we left it:
// activated and deactivated again, or applied as false. Our nonce cannot tell, the API server can: it keeps who owns the
// field. live must come from the API server, since the cache holds no managed fields. Where it keeps no owner, the nonce
// stands alone.
func SetByAnother(live *kueue.Workload) bool {
	for _, f := range live.ManagedFields {
		if f.Subresource != "" || f.FieldsV1 == nil || f.Manager == v1alpha1.FieldOwner || f.Manager == forgottenOwners {
			continue
		}
		var owned struct {
			Spec map[string]any `json:"f:spec"`
		}
		if err := json.Unmarshal(f.FieldsV1.GetRawBytes(), &owned); err != nil {
			continue
		}
		if _, active := owned.Spec["f:active"]; active {
			return true
		}
	}
	return false
}

// forgottenOwners is whom the API server names as the owner of what the oldest of many writers wrote.
const forgottenOwners = "ancient-changes"

// Reject ends a Workload for good: inactive, with the reason, and without the nonce that would bring it back.
func (w *Writer) Reject(ctx context.Context, wl *kueue.Workload, reason v1alpha1.Reason) error {
	_, err := w.patch(ctx, wl, func(c *kueue.Workload) error {
		if c.Annotations == nil {
			c.Annotations = map[string]string{}
		}
		delete(c.Annotations, v1alpha1.SteeringAnnotation)
		c.Annotations[v1alpha1.RejectedAnnotation] = string(reason)
		c.Spec.Active = ptr.To(false)
		return nil
	})
	return err
}

// Rejected says whether a Workload was rejected and made active again since, by somebody else: it is tried anew.
func Rejected(wl *kueue.Workload) bool {
	return ptr.Deref(wl.Spec.Active, true) && wl.Annotations[v1alpha1.RejectedAnnotation] != ""
}

// Forget takes the nonce, and the reason of a rejection, out of a Workload that was taken over: left there, it would let us undo a later deactivation
// that is not ours.
func (w *Writer) Forget(ctx context.Context, wl *kueue.Workload) error {
	_, err := w.patch(ctx, wl, func(c *kueue.Workload) error {
		delete(c.Annotations, v1alpha1.SteeringAnnotation)
		delete(c.Annotations, v1alpha1.RejectedAnnotation)
		return nil
	})
	return err
}

// Reactivate ends an eviction of ours once the quota is released: closed, charged and active again in one patch. A nil
// policy leaves affinity and charge as they are.
func (w *Writer) Reactivate(ctx context.Context, wl *kueue.Workload, p *flavors.Policy, plan flavors.Plan) error {
	_, err := w.patch(ctx, wl, func(c *kueue.Workload) error {
		delete(c.Annotations, v1alpha1.SteeringAnnotation)
		c.Spec.Active = ptr.To(true)
		if p == nil {
			return nil
		}
		return p.Steer(c, plan)
	})
	return err
}

func (w *Writer) patch(ctx context.Context, wl *kueue.Workload, change func(*kueue.Workload) error) (bool, error) {
	c := wl.DeepCopy()
	if err := change(c); err != nil {
		return false, err
	}
	if apiequality.Semantic.DeepEqual(wl.Spec, c.Spec) && apiequality.Semantic.DeepEqual(wl.Annotations, c.Annotations) {
		return false, nil
	}
	patch := client.MergeFromWithOptions(wl.DeepCopy(), client.MergeFromWithOptimisticLock{})
	if err := w.Client.Patch(ctx, c, patch, client.FieldOwner(v1alpha1.FieldOwner)); err != nil {
		return false, fmt.Errorf("patch workload: %w", err)
	}
	return true, nil
}

// Answer is what our check says.
type Answer struct {
	State kueue.CheckState
	// Message is cut to maxMessage.
	Message string
	// Bare leaves the managed label out of a Ready answer, so that the pods come without a gate.
	Bare bool
}

// Check writes the answer of our check. Ready carries the managed label for every podset, unless bare, and any other
// state an explicit empty list, since what an earlier Ready left would come back with the next. It does nothing where
// the check says so already, or where the Workload does not list it yet.
func (w *Writer) Check(ctx context.Context, wl *kueue.Workload, name string, answer Answer) (written bool, err error) {
	state, message := answer.State, answer.Message
	current := CheckState(wl, name)
	if current == nil {
		return false, nil
	}
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "")
	}
	var updates []any
	if state == kueue.CheckStateReady && !answer.Bare {
		for i := range wl.Spec.PodSets {
			updates = append(updates, map[string]any{
				"name": string(wl.Spec.PodSets[i].Name), "labels": map[string]any{v1alpha1.ManagedLabel: "true"},
			})
		}
	}
	if current.State == state && current.Message == message && len(current.PodSetUpdates) == len(updates) {
		return false, nil
	}
	since := current.LastTransitionTime
	if current.State != state {
		since = metav1.NewTime(w.Now())
	}
	if updates == nil {
		updates = []any{}
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": kueue.GroupVersion.String(), "kind": "Workload",
		"metadata": map[string]any{"name": wl.Name, "namespace": wl.Namespace, "resourceVersion": wl.ResourceVersion},
		"status": map[string]any{"admissionChecks": []any{map[string]any{
			"name": name, "state": string(state), "message": message,
			"lastTransitionTime": since.UTC().Format(time.RFC3339), "podSetUpdates": updates,
		}}},
	}}
	err = w.Client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(v1alpha1.FieldOwner), client.ForceOwnership)
	if err != nil {
		return false, fmt.Errorf("apply check: %w", err)
	}
	return true, nil
}

// CheckState returns the state of a check on a Workload, or nil.
func CheckState(wl *kueue.Workload, name string) *kueue.AdmissionCheckState {
	for i := range wl.Status.AdmissionChecks {
		if c := &wl.Status.AdmissionChecks[i]; string(c.Name) == name {
			return c
		}
	}
	return nil
}

// OthersReady says whether all checks but the named one are Ready.
func OthersReady(wl *kueue.Workload, name string) bool {
	for i := range wl.Status.AdmissionChecks {
		if c := &wl.Status.AdmissionChecks[i]; string(c.Name) != name && c.State != kueue.CheckStateReady {
			return false
		}
	}
	return true
}
