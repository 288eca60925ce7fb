package round

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/policies"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
)

// multiKueueOrigin is on Workloads that a MultiKueue manager made; it deletes copies whose spec differs from its own.
const multiKueueOrigin = "kueue.x-k8s.io/multikueue-origin"

// steered says whether the allowed set is ours to write.
func steered(wl *kueue.Workload, m *policies.Managed) bool {
	if _, foreign := wl.Labels[multiKueueOrigin]; foreign {
		return false
	}
	return m.Steerable() && slices.ContainsFunc(wl.Spec.PodSets, func(ps kueue.PodSet) bool { return flavors.HasClaims(&ps.Template.Spec) })
}

// waiter opens flavors to a Workload that holds no quota: those of the policy that could hold it now, or once others
// have finished. Kueue takes the first of them that has quota.
func (r *round) waiter(ctx context.Context, wl *kueue.Workload, m *policies.Managed) error {
	if notReady(m) != "" {
		return nil
	}
	if !steered(wl, m) {
		return r.leave(ctx, wl)
	}
	p := m.Policy
	if p.Spec.Mode == v1alpha1.ModeFrozen {
		return r.close(ctx, wl, p, admission.Decision{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonPolicyFrozen,
			Message: fmt.Sprintf("DevicePolicy %s is Frozen: nothing new is let in", p.Name)})
	}
	placement, err := r.Store.Get(ctx, wl)
	if err != nil {
		return err
	}
	if placement != nil && placement.Status.Retry != nil && placement.Status.Retry.NotBefore != nil {
		if until := placement.Status.Retry.NotBefore.Time; until.After(r.now) {
			r.again(until)
			return nil
		}
	}
	req, dec, err := r.decide(ctx, wl, p)
	if err != nil {
		return err
	}
	allowed := candidates(p, m.ClusterQueue, req, dec)
	if len(allowed) == 0 {
		// What is open stays so: a closing patch can be overtaken, and a reservation on it waits and says why.
		if p.Steered(wl) {
			return r.record(ctx, wl, p, dec)
		}
		return r.close(ctx, wl, p, dec)
	}
	if now := flavors.AllowedOf(wl); p.Steered(wl) && !slices.ContainsFunc(allowed, func(f string) bool { return !slices.Contains(now, f) }) &&
		charged(wl, p, req, allowed) {
		return nil
	}
	plan, err := r.plan(ctx, wl, p, req, allowed)
	if err != nil {
		return err
	}
	written, err := r.Writer.Steer(ctx, wl, p, plan)
	if err != nil {
		return err
	}
	if written {
		r.Events.Eventf(wl, nil, corev1.EventTypeNormal, "FlavorsOpened", "Open", "Kueue may try %s", strings.Join(allowed, ", "))
	}
	return nil
}

// close leaves a Workload the empty set, mends it where the webhook did not write it, and records why.
func (r *round) close(ctx context.Context, wl *kueue.Workload, p *flavors.Policy, dec admission.Decision) error {
	if !p.Steered(wl) || len(flavors.AllowedOf(wl)) > 0 {
		if _, err := r.Writer.Steer(ctx, wl, p, flavors.Plan{}); err != nil {
			return err
		}
	}
	return r.record(ctx, wl, p, dec)
}

// candidates returns the flavors that a Workload may have: those of its queue on which every podset with devices fits
// or is Busy, as long as they cost the same as the first.
func candidates(p *flavors.Policy, cq *kueue.ClusterQueue, req *admission.Request, dec admission.Decision) []string {
	if req.Refusal != nil {
		return nil
	}
	group := p.Group(cq)
	if group == nil {
		return nil
	}
	var out []string
	first := -1
	for i := range p.Flavors {
		name := p.Flavors[i].Name
		inQueue := slices.ContainsFunc(group.Flavors, func(f kueue.FlavorQuotas) bool { return string(f.Name) == name })
		if !inQueue || !hopeful(dec.Standings, name) {
			continue
		}
		if first < 0 {
			first = i
		}
		if sameCharge(p, req, first, i) {
			out = append(out, name)
		}
	}
	return out
}

// hopeful says whether a flavor was looked at and every podset fits on it or would once others have finished.
func hopeful(standings []v1alpha1.FlavorStanding, flavor string) bool {
	seen := false
	for _, s := range standings {
		if s.Flavor != flavor {
			continue
		}
		if s.Standing != v1alpha1.StandingFits && s.Standing != v1alpha1.StandingBusy {
			return false
		}
		seen = true
	}
	return seen
}

func sameCharge(p *flavors.Policy, req *admission.Request, a, b int) bool {
	for i := range req.PodSets {
		s := req.PodSets[i].Shape
		if p.Charge(s, s.Variants()[0], a) != p.Charge(s, s.Variants()[0], b) {
			return false
		}
	}
	return true
}

// plan is the allowed set with its charge.
func (r *round) plan(ctx context.Context, wl *kueue.Workload, p *flavors.Policy, req *admission.Request, allowed []string) (flavors.Plan, error) {
	plan := flavors.Plan{Allowed: allowed, Charge: charge(p, req, allowed)}
	var err error
	plan.Overhead, err = r.Policies.Overheads(ctx, wl)
	return plan, err
}

// charge is what one pod of each podset costs on the first of the allowed flavors.
func charge(p *flavors.Policy, req *admission.Request, allowed []string) map[string]int64 {
	out := map[string]int64{}
	for i := range req.PodSets {
		if ps := &req.PodSets[i]; len(ps.Shape.Claims) > 0 {
			out[ps.Name] = p.Charge(ps.Shape, ps.Shape.Variants()[0], p.Flavor(allowed[0]))
		}
	}
	return out
}

// charged says whether the Workload carries the charge of the allowed flavors.
func charged(wl *kueue.Workload, p *flavors.Policy, req *admission.Request, allowed []string) bool {
	have := flavors.ChargeOf(wl)
	for name, want := range charge(p, req, allowed) {
		if got, ok := have[name]; !ok || got != want {
			return false
		}
	}
	return true
}

// reactivate ends an eviction of ours once Kueue has taken the quota back.
func (r *round) reactivate(ctx context.Context, wl *kueue.Workload, m *policies.Managed) error {
	if m.Policy == nil || !steered(wl, m) {
		return r.leave(ctx, wl)
	}
	return r.Writer.Reactivate(ctx, wl, m.Policy, flavors.Plan{})
}
