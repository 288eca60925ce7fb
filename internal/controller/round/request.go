package round

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/policies"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// Requests gathers what decisions need. It is safe for concurrent use if its client is.
type Requests struct {
	Client   client.Reader
	Policies *policies.Resolver
}

// Of gathers what a decision on a Workload needs. An error is one of reading.
func (r Requests) Of(ctx context.Context, now time.Time, wl *kueue.Workload, p *flavors.Policy) (*admission.Request, error) {
	req := &admission.Request{Now: now, Policy: p, Namespace: wl.Namespace, EveryFlavor: wl.Status.Admission == nil}
	if ref := metav1.GetControllerOfNoCopy(wl); ref != nil && ref.Kind == "Pod" {
		req.Refusal = &flavors.Refusal{Reason: v1alpha1.ReasonClaimUnsupported, Message: "Kueue's plain pod integration is not supported yet: wrap the pod in a Job"}
		return req, nil
	}
	for i := range wl.Spec.PodSets {
		ps := &wl.Spec.PodSets[i]
		if ps.TopologyRequest != nil && (ps.TopologyRequest.Required != nil || ps.TopologyRequest.Preferred != nil) {
			req.Refusal = &flavors.Refusal{Reason: v1alpha1.ReasonClaimUnsupported, Message: "a topology request is not supported yet: take the topology annotations out of the pod template"}
			return req, nil
		}
		spec := p.UserPodSpec(wl, ps)
		shape, refusal, err := r.Policies.Shape(ctx, wl.Namespace, spec)
		if err != nil {
			return nil, err
		}
		if refusal != nil {
			req.Refusal = refusal
			return req, nil
		}
		add, err := r.Policies.Additions(ctx, wl.Namespace, ps)
		if err != nil {
			return nil, err
		}
		out := admission.PodSet{
			Name: string(ps.Name), Count: ps.Count, MinCount: ptr.Deref(ps.MinCount, 0), Spec: spec, Shape: shape,
			Requests: ledger.RequestsOfTemplate(ledger.Template{Spec: spec, Overhead: spec.Overhead}, add),
		}
		if err := r.assigned(ctx, wl, p, &out); err != nil {
			return nil, err
		}
		req.PodSets = append(req.PodSets, out)
	}
	return req, nil
}

// assigned adds what Kueue assigned to a podset, if anything.
func (r Requests) assigned(ctx context.Context, wl *kueue.Workload, p *flavors.Policy, ps *admission.PodSet) error {
	count := ps.Count
	for _, rp := range wl.Status.ReclaimablePods {
		if string(rp.Name) == ps.Name {
			ps.Count = max(0, ps.Count-rp.Count)
		}
	}
	a := assignment(wl, ps.Name)
	if a == nil {
		return nil
	}
	if a.Count != nil {
		ps.Count = min(ps.Count, *a.Count)
	}
	resource := corev1.ResourceName(p.Spec.QuotaResource)
	if !p.Asks(ps.Shape) {
		resource = corev1.ResourceCPU
	}
	byResource := map[corev1.ResourceName]string{}
	for name, f := range a.Flavors {
		byResource[name] = string(f)
	}
	var failed error
	ps.Assigned = admission.AssignedOf(byResource, resource, r.flavor(ctx, &failed))
	if used, ok := a.ResourceUsage[resource]; ok && p.Asks(ps.Shape) {
		ps.Assigned.Charge = chargeOfPod(used.Value(), ptr.Deref(a.Count, count), p.PlainDevices(ps.Shape))
	}
	return failed
}

// chargeOfPod returns what one pod was charged beside what it asks for by the resource's own name; nil, which is any, where
// there are no pods and nothing was charged, and -1, which nothing costs, where pods were charged unevenly.
func chargeOfPod(used int64, count int32, plain int64) *int64 {
	if count <= 0 && used == 0 {
		return nil
	}
	if count <= 0 || used%int64(count) != 0 {
		return ptr.To(int64(-1))
	}
	return ptr.To(used/int64(count) - plain)
}

// flavor looks ResourceFlavors up; one that does not exist is nil, and an error of reading is kept in failed.
func (r Requests) flavor(ctx context.Context, failed *error) func(string) *kueue.ResourceFlavor {
	return func(name string) *kueue.ResourceFlavor {
		rf := &kueue.ResourceFlavor{}
		err := r.Client.Get(ctx, types.NamespacedName{Name: name}, rf)
		if err == nil {
			return rf
		}
		if client.IgnoreNotFound(err) != nil && *failed == nil {
			*failed = fmt.Errorf("get resource flavor %s: %w", name, err)
		}
		return nil
	}
}

func assignment(wl *kueue.Workload, podSet string) *kueue.PodSetAssignment {
	if wl.Status.Admission == nil {
		return nil
	}
	for i := range wl.Status.Admission.PodSetAssignments {
		if a := &wl.Status.Admission.PodSetAssignments[i]; string(a.Name) == podSet {
			return a
		}
	}
	return nil
}

// decide returns the decision on a Workload: the remembered one where nothing that it depends on has changed.
func (r *round) decide(ctx context.Context, wl *kueue.Workload, p *flavors.Policy) (*admission.Request, admission.Decision, error) {
	r.mu.Lock()
	last, ok := r.memo[wl.UID]
	r.mu.Unlock()
	if ok && last.ledger == r.snapshot.Version && last.inputs == r.inputs && last.version == wl.ResourceVersion && (last.decision.Until.IsZero() || r.now.Before(last.decision.Until)) {
		return last.request, last.decision, nil
	}
	req, err := Requests{Client: r.Client, Policies: r.Policies}.Of(ctx, r.now, wl, p)
	if err != nil {
		return nil, admission.Decision{}, err
	}
	req.Heard = r.heard
	req.Coming, req.Others = true, r.spokenFor(wl.UID)
	beside := r.Store.Beside(r.snapshot, wl.UID)
	dec := r.Decider.Decide(ctx, beside, req)
	if dec.Verdict != v1alpha1.VerdictAdmit && beside != r.snapshot {
		dec = r.Decider.Decide(ctx, r.snapshot, req)
	}
	r.Metrics.Decisions.WithLabelValues(string(dec.Verdict), string(dec.Reason)).Inc()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.memo == nil {
		r.memo = map[types.UID]remembered{}
	}
	r.memo[wl.UID] = remembered{ledger: r.snapshot.Version, inputs: r.inputs, version: wl.ResourceVersion, request: req, decision: dec}
	return req, dec, nil
}

// notReady says why nothing may be decided by a queue's policy; empty where something may.
func notReady(m *policies.Managed) string {
	for _, p := range m.Problems {
		if p.Condition == v1alpha1.PolicyReady || m.Policy == nil {
			return p.Message
		}
	}
	if m.Policy == nil {
		return "the DevicePolicy is not resolved"
	}
	return ""
}
