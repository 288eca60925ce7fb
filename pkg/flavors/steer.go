package flavors

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// maxTerms bounds the node selector terms that steering writes into a podset.
const maxTerms = 128

// Plan is what steering writes into a Workload.
type Plan struct {
	// Allowed holds names of flavors of the policy; empty is the empty set, which Kueue never assigns.
	Allowed []string
	// AllowedFor holds, by podset, the set of those that differ from Allowed.
	AllowedFor map[string][]string
	// Charge is what one pod costs, by podset; a podset that is absent has an unknown charge, and keeps what it has.
	Charge map[string]int64
	// Overhead is the pod overhead that the podset's RuntimeClass fixes, by podset; Kueue fills it in only where no
	// overhead is set, so steering has to.
	Overhead map[string]corev1.ResourceList
}

// Steer writes a plan into a Workload that holds no quota: required node affinity for the allowed set, the charge as
// pod overhead, and annotations by which both can be restored and taken out again. It changes only podsets that ask for
// devices, and gives one that no longer does its user's own back. A podset whose charge the plan leaves out gets the one that the Workload's annotation names, if any. Names
// in the allowed set that are no flavors of the policy are passed over. It is idempotent. The error says why the
// Workload cannot be steered; it is unchanged then.
func (p *Policy) Steer(wl *kueue.Workload, plan Plan) error {
	if len(p.closingKeys()) == 0 {
		return fmt.Errorf("policy %s: no flavor has node labels to steer by", p.Name)
	}
	known, err := keptOf(wl)
	if err != nil {
		return err
	}
	before := ChargeOf(wl)
	now, charges, allowed := map[string]*kept{}, map[string]int64{}, map[string][]string{}
	specs := map[string]*corev1.PodSpec{}
	for i := range wl.Spec.PodSets {
		ps := &wl.Spec.PodSets[i]
		name := string(ps.Name)
		if !p.AsksDevices(&ps.Template.Spec) {
			if known[name] != nil {
				specs[name] = p.UserPodSpec(wl, ps)
			}
			continue
		}
		k := &kept{Own: ownAffinity(&ps.Template.Spec, known[name]), Fixed: stillFixed(&ps.Template.Spec, known[name])}
		allowed[name] = p.known(plan.allowedFor(name))
		terms := p.affinity(k.Own, allowed[name])
		if len(terms.NodeSelectorTerms) > maxTerms {
			return fmt.Errorf("podset %s: %d node affinity terms times %d flavors is more than %d", name, len(k.Own.NodeSelectorTerms), len(allowed[name]), maxTerms)
		}
		k.Wrote = digest(terms)
		spec := ps.Template.Spec.DeepCopy()
		setRequired(spec, terms)
		if charge, ok := p.charge(name, plan, known[name], before); ok && HasClaims(spec) { // Kueue counts what is asked for plainly
			charges[name] = charge
			p.setCharge(spec, k, known[name], charge, plan.Overhead[name])
		} else {
			uncharge(spec, known[name])
		}
		now[name], specs[name] = k, spec
	}
	if err := annotate(wl, now, charges, allowed); err != nil {
		return err
	}
	for i := range wl.Spec.PodSets {
		if spec := specs[string(wl.Spec.PodSets[i].Name)]; spec != nil {
			wl.Spec.PodSets[i].Template.Spec = *spec
		}
	}
	return nil
}

func (plan *Plan) allowedFor(podSet string) []string {
	if own, ok := plan.AllowedFor[podSet]; ok {
		return own
	}
	return plan.Allowed
}

// charge returns what one pod of a podset is charged: as planned, else what the annotation names, unless that was
// written for another quotaResource.
func (p *Policy) charge(podSet string, plan Plan, k *kept, before map[string]int64) (int64, bool) {
	if c, ok := plan.Charge[podSet]; ok {
		return c, true
	}
	if k != nil && k.Charged != "" && string(k.Charged) != p.Spec.QuotaResource {
		return 0, false
	}
	c, ok := before[podSet]
	return c, ok
}

// Steered says whether a Workload's podsets that ask for devices all carry the set and the charge that its annotations name. A
// Workload that Kueue rewrote, that came while the webhook was away, or whose policy changed since, does not.
func (p *Policy) Steered(wl *kueue.Workload) bool {
	known, err := keptOf(wl)
	if err != nil {
		return false
	}
	if _, ok := wl.Annotations[v1alpha1.AllowedFlavorsAnnotation]; !ok {
		return false
	}
	charges := ChargeOf(wl)
	for i := range wl.Spec.PodSets {
		ps := &wl.Spec.PodSets[i]
		k := known[string(ps.Name)]
		if !p.AsksDevices(&ps.Template.Spec) {
			if k != nil {
				return false
			}
			continue
		}
		if k == nil || !apiequality.Semantic.DeepEqual(required(&ps.Template.Spec), p.affinity(k.Own, AllowedFor(wl, string(ps.Name)))) {
			return false
		}
		charge, charged := charges[string(ps.Name)]
		q, ok := ps.Template.Spec.Overhead[corev1.ResourceName(p.Spec.QuotaResource)]
		if ok != charged || charged && q.Cmp(*resource.NewQuantity(charge, resource.DecimalSI)) != 0 {
			return false
		}
		for _, name := range k.Fixed {
			if _, ok := ps.Template.Spec.Overhead[name]; !ok {
				return false
			}
		}
	}
	return true
}

// HasClaims says whether a pod spec asks for devices by claim.
func HasClaims(spec *corev1.PodSpec) bool { return len(spec.ResourceClaims) > 0 }

// UserPodSpec returns a copy of a podset's pod spec as its user wrote it: without the allowed set, and without the
// charge. What the RuntimeClass fixes stays. p may be nil.
func (p *Policy) UserPodSpec(wl *kueue.Workload, ps *kueue.PodSet) *corev1.PodSpec {
	spec := ps.Template.Spec.DeepCopy()
	known, err := keptOf(wl)
	if err != nil {
		known = nil // what cannot be read keeps nothing
	}
	k := known[string(ps.Name)]
	if k == nil && !p.AsksDevices(spec) {
		return spec
	}
	if p != nil {
		delete(spec.Overhead, corev1.ResourceName(p.Spec.QuotaResource))
	}
	uncharge(spec, k)
	setRequired(spec, ownAffinity(spec, k))
	return spec
}

// Leave takes everything that steering wrote out of a Workload that holds no quota. p may be nil: a queue that no
// longer has a check of ours has no policy either.
func (p *Policy) Leave(wl *kueue.Workload) {
	known, err := keptOf(wl)
	if err != nil {
		known = nil
	}
	for i := range wl.Spec.PodSets {
		ps := &wl.Spec.PodSets[i]
		had := ps.Template.Spec.Overhead != nil
		ps.Template.Spec = *p.UserPodSpec(wl, ps)
		if k := known[string(ps.Name)]; k != nil {
			for _, name := range k.Fixed {
				delete(ps.Template.Spec.Overhead, name)
			}
		}
		if had && len(ps.Template.Spec.Overhead) == 0 {
			ps.Template.Spec.Overhead = nil
		}
	}
	for _, a := range []string{v1alpha1.UserAffinityAnnotation, v1alpha1.ChargeAnnotation, v1alpha1.AllowedFlavorsAnnotation} {
		delete(wl.Annotations, a)
	}
}

// affinity returns the user's terms with the allowed set ANDed into each: one term a pair of both.
func (p *Policy) affinity(user *corev1.NodeSelector, allowed []string) *corev1.NodeSelector {
	own := []corev1.NodeSelectorTerm{{}}
	if user != nil && len(user.NodeSelectorTerms) > 0 {
		own = slices.DeleteFunc(slices.Clone(user.NodeSelectorTerms), matchesNothing)
	}
	out := &corev1.NodeSelector{}
	for _, name := range p.known(allowed) {
		labels := p.Flavors[p.Flavor(name)].NodeLabels
		for t := range own {
			term := own[t].DeepCopy()
			for _, k := range slices.Sorted(maps.Keys(labels)) {
				term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{
					Key: k, Operator: corev1.NodeSelectorOpIn, Values: []string{labels[k]},
				})
			}
			out.NodeSelectorTerms = append(out.NodeSelectorTerms, *term)
		}
	}
	if len(out.NodeSelectorTerms) == 0 {
		return p.closed()
	}
	return out
}

// matchesNothing says that a term has no requirement: kube-scheduler finds no node for it, so that ANDing an allowed
// set into it would loosen it.
func matchesNothing(t corev1.NodeSelectorTerm) bool {
	return len(t.MatchExpressions) == 0 && len(t.MatchFields) == 0
}

// known returns the names of allowed that are flavors of the policy, in the policy's order.
func (p *Policy) known(allowed []string) []string {
	var names []string
	for i := range p.Flavors {
		if slices.Contains(allowed, p.Flavors[i].Name) {
			names = append(names, p.Flavors[i].Name)
		}
	}
	return names
}

// noFlavor is a label value that no ResourceFlavor may have: steering writes it to match none.
const noFlavor = "none.plimsoll.dev"

// closed returns the empty set. Kueue takes requirements out whose key no flavor of the resource group carries, and a
// term that becomes empty matches every flavor; so each key of each of the policy's flavors is there, and whichever
// of them a queue lists, one requirement stays.
func (p *Policy) closed() *corev1.NodeSelector {
	var term corev1.NodeSelectorTerm
	for _, key := range p.closingKeys() {
		term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{
			Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{noFlavor},
		})
	}
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}}
}

// closingKeys returns the node labels that the policy's flavors are told apart by, sorted.
func (p *Policy) closingKeys() []string {
	keys := map[string]bool{}
	for _, f := range p.Flavors {
		for k := range f.NodeLabels {
			keys[k] = true
		}
	}
	return slices.Sorted(maps.Keys(keys))
}

// ownAffinity returns the required node affinity that a podset's user wants. What stands there is ours as long as it
// is what steering wrote last, whatever became of the policy since; else Kueue wrote the Job's own again.
func ownAffinity(spec *corev1.PodSpec, k *kept) *corev1.NodeSelector {
	now := required(spec)
	if k != nil && digest(now) == k.Wrote {
		return k.Own.DeepCopy()
	}
	if bearsNoFlavor(now) { // no user writes that: it is ours, edited, or its annotation is lost
		if k != nil {
			return k.Own.DeepCopy()
		}
		return nil
	}
	return now.DeepCopy()
}

func bearsNoFlavor(s *corev1.NodeSelector) bool {
	return s != nil && slices.ContainsFunc(s.NodeSelectorTerms, func(t corev1.NodeSelectorTerm) bool {
		return slices.ContainsFunc(t.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool {
			return slices.Contains(r.Values, noFlavor)
		})
	})
}

func required(spec *corev1.PodSpec) *corev1.NodeSelector {
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil {
		return nil
	}
	return spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

// setRequired replaces a pod spec's required node affinity; nil takes it out, and what becomes empty around it.
func setRequired(spec *corev1.PodSpec, s *corev1.NodeSelector) {
	if spec.Affinity == nil {
		if s == nil {
			return
		}
		spec.Affinity = &corev1.Affinity{}
	}
	if spec.Affinity.NodeAffinity == nil {
		if s == nil {
			return
		}
		spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	na := spec.Affinity.NodeAffinity
	na.RequiredDuringSchedulingIgnoredDuringExecution = s.DeepCopy()
	if s == nil && len(na.PreferredDuringSchedulingIgnoredDuringExecution) == 0 {
		spec.Affinity.NodeAffinity = nil
		if spec.Affinity.PodAffinity == nil && spec.Affinity.PodAntiAffinity == nil {
			spec.Affinity = nil
		}
	}
}

// setCharge writes a charge as overhead, with what the RuntimeClass fixes, and records in k what it wrote.
func (p *Policy) setCharge(spec *corev1.PodSpec, k, before *kept, charge int64, fixed corev1.ResourceList) {
	uncharge(spec, before)
	if spec.Overhead == nil {
		spec.Overhead = corev1.ResourceList{}
	}
	for name, q := range fixed {
		if _, ok := spec.Overhead[name]; !ok || slices.Contains(k.Fixed, name) {
			spec.Overhead[name] = q.DeepCopy()
			k.Fixed = append(k.Fixed, name)
		}
	}
	slices.Sort(k.Fixed)
	k.Fixed = slices.Compact(k.Fixed)
	k.Charged = corev1.ResourceName(p.Spec.QuotaResource)
	spec.Overhead[k.Charged] = *resource.NewQuantity(charge, resource.DecimalSI)
}

// stillFixed returns which of the overhead that was added because the RuntimeClass fixes it is still there.
func stillFixed(spec *corev1.PodSpec, k *kept) []corev1.ResourceName {
	if k == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(k.Fixed), func(name corev1.ResourceName) bool {
		_, ok := spec.Overhead[name]
		return !ok
	})
}

// uncharge takes the charge out that was written before.
func uncharge(spec *corev1.PodSpec, k *kept) {
	if k != nil && k.Charged != "" {
		delete(spec.Overhead, k.Charged)
	}
}
