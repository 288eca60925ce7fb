package flavors

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

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
	// Charge is what one pod costs, by podset; a podset that is absent has an unknown charge, and keeps what it has.
	Charge map[string]int64
	// Overhead is the pod overhead that the podset's RuntimeClass fixes, by podset; Kueue fills it in only where no
	// overhead is set, so steering has to.
	Overhead map[string]corev1.ResourceList
}

// Steer writes a plan into a Workload that holds no quota: required node affinity for the allowed set, the charge as
// pod overhead, and annotations by which both can be restored and taken out again. It changes only podsets that have
// claims. It is idempotent. The error says why the Workload cannot be steered.
func (p *Policy) Steer(wl *kueue.Workload, plan Plan) error {
	user, err := UserAffinity(wl)
	if err != nil {
		return err
	}
	charges := ChargeOf(wl)
	for i := range wl.Spec.PodSets {
		ps := &wl.Spec.PodSets[i]
		if !HasClaims(&ps.Template.Spec) {
			continue
		}
		name := string(ps.Name)
		own, known := user[name]
		if !known || !apiequality.Semantic.DeepEqual(required(&ps.Template.Spec), p.affinity(own, AllowedOf(wl))) {
			own = required(&ps.Template.Spec) // what is there is not ours: the user's own, or Kueue rewrote it
			if own != nil && p.isClosed(own) {
				own = nil
			}
		}
		user[name] = own
		terms := p.affinity(own, plan.Allowed)
		if len(terms.NodeSelectorTerms) > maxTerms {
			return fmt.Errorf("podset %s: %d node affinity terms times %d flavors is more than %d", name, len(own.NodeSelectorTerms), len(plan.Allowed), maxTerms)
		}
		setRequired(&ps.Template.Spec, terms)
		if charge, ok := plan.Charge[name]; ok {
			charges[name] = charge
			setCharge(&ps.Template.Spec, corev1.ResourceName(p.Spec.QuotaResource), charge, plan.Overhead[name])
		}
	}
	return annotate(wl, user, charges, plan.Allowed)
}

// Closed says whether a Workload's podsets with claims all carry the set that its annotations name. A Workload that
// Kueue rewrote, or that came while the webhook was away, does not.
func (p *Policy) Steered(wl *kueue.Workload) bool {
	user, err := UserAffinity(wl)
	if err != nil {
		return false
	}
	if _, ok := wl.Annotations[v1alpha1.AllowedFlavorsAnnotation]; !ok {
		return false
	}
	charges := ChargeOf(wl)
	for i := range wl.Spec.PodSets {
		ps := &wl.Spec.PodSets[i]
		if !HasClaims(&ps.Template.Spec) {
			continue
		}
		own, known := user[string(ps.Name)]
		if !known || !apiequality.Semantic.DeepEqual(required(&ps.Template.Spec), p.affinity(own, AllowedOf(wl))) {
			return false
		}
		if charge, ok := charges[string(ps.Name)]; ok {
			q := ps.Template.Spec.Overhead[corev1.ResourceName(p.Spec.QuotaResource)]
			if q.Value() != charge {
				return false
			}
		}
	}
	return true
}

// HasClaims says whether a pod spec asks for devices by claim.
func HasClaims(spec *corev1.PodSpec) bool { return len(spec.ResourceClaims) > 0 }

// AllowedOf returns the allowed set that a Workload's annotation names, in its order; nil for the empty set.
func AllowedOf(wl *kueue.Workload) []string {
	v := wl.Annotations[v1alpha1.AllowedFlavorsAnnotation]
	if v == "" {
		return nil
	}
	return strings.Split(v, ",")
}

// ChargeOf returns the charge a pod that a Workload's annotation names, by podset. What does not parse is left out.
func ChargeOf(wl *kueue.Workload) map[string]int64 {
	var raw map[string]string
	charges := map[string]int64{}
	if json.Unmarshal([]byte(wl.Annotations[v1alpha1.ChargeAnnotation]), &raw) != nil {
		return charges
	}
	for name, s := range raw {
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			charges[name] = n
		}
	}
	return charges
}

// UserAffinity returns the required node affinity that a Workload's podsets had before steering, by podset; a nil
// value is none, an absent key one that was never steered.
func UserAffinity(wl *kueue.Workload) (map[string]*corev1.NodeSelector, error) {
	user := map[string]*corev1.NodeSelector{}
	if v := wl.Annotations[v1alpha1.UserAffinityAnnotation]; v != "" {
		if err := json.Unmarshal([]byte(v), &user); err != nil {
			return nil, fmt.Errorf("annotation %s: %w", v1alpha1.UserAffinityAnnotation, err)
		}
	}
	return user, nil
}

// UserPodSpec returns a copy of a podset's pod spec as its user wrote it: without the allowed set, and without the
// charge.
func (p *Policy) UserPodSpec(wl *kueue.Workload, ps *kueue.PodSet) *corev1.PodSpec {
	spec := ps.Template.Spec.DeepCopy()
	delete(spec.Overhead, corev1.ResourceName(p.Spec.QuotaResource))
	user, err := UserAffinity(wl)
	if err != nil {
		return spec
	}
	if own, known := user[string(ps.Name)]; known {
		setRequired(spec, own)
	}
	return spec
}

func annotate(wl *kueue.Workload, user map[string]*corev1.NodeSelector, charges map[string]int64, allowed []string) error {
	affinity, err := json.Marshal(user)
	if err != nil {
		return fmt.Errorf("user affinity: %w", err)
	}
	raw := map[string]string{}
	for name, c := range charges {
		raw[name] = strconv.FormatInt(c, 10)
	}
	charge, err := json.Marshal(raw)
	if err != nil {
		return fmt.Errorf("charge: %w", err)
	}
	if wl.Annotations == nil {
		wl.Annotations = map[string]string{}
	}
	wl.Annotations[v1alpha1.UserAffinityAnnotation] = string(affinity)
	wl.Annotations[v1alpha1.ChargeAnnotation] = string(charge)
	wl.Annotations[v1alpha1.AllowedFlavorsAnnotation] = strings.Join(allowed, ",")
	return nil
}

// affinity returns the user's terms with the allowed set ANDed into each: one term a pair of both.
func (p *Policy) affinity(user *corev1.NodeSelector, allowed []string) *corev1.NodeSelector {
	own := []corev1.NodeSelectorTerm{{}}
	if user != nil && len(user.NodeSelectorTerms) > 0 {
		own = user.NodeSelectorTerms
	}
	out := &corev1.NodeSelector{}
	for _, name := range allowed {
		i := p.Flavor(name)
		if i < 0 {
			continue
		}
		for t := range own {
			term := own[t].DeepCopy()
			for _, k := range slices.Sorted(maps.Keys(p.Flavors[i].NodeLabels)) {
				term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{
					Key: k, Operator: corev1.NodeSelectorOpIn, Values: []string{p.Flavors[i].NodeLabels[k]},
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

// noFlavor is a label value that no ResourceFlavor may have here: steering writes it to match none.
const noFlavor = "none"

func (p *Policy) closed() *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: p.closingKey(), Operator: corev1.NodeSelectorOpIn, Values: []string{noFlavor}},
	}}}}
}

func (p *Policy) isClosed(s *corev1.NodeSelector) bool {
	return apiequality.Semantic.DeepEqual(s, p.closed())
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

func setCharge(spec *corev1.PodSpec, quotaResource corev1.ResourceName, charge int64, fixed corev1.ResourceList) {
	if spec.Overhead == nil {
		spec.Overhead = corev1.ResourceList{}
	}
	for name, q := range fixed {
		if _, ok := spec.Overhead[name]; !ok {
			spec.Overhead[name] = q.DeepCopy()
		}
	}
	spec.Overhead[quotaResource] = *resource.NewQuantity(charge, resource.DecimalSI)
}

// Leave takes everything that steering wrote out of a Workload that holds no quota.
func (p *Policy) Leave(wl *kueue.Workload) {
	for i := range wl.Spec.PodSets {
		ps := &wl.Spec.PodSets[i]
		ps.Template.Spec = *p.UserPodSpec(wl, ps)
		if len(ps.Template.Spec.Overhead) == 0 {
			ps.Template.Spec.Overhead = nil
		}
	}
	for _, a := range []string{v1alpha1.UserAffinityAnnotation, v1alpha1.ChargeAnnotation, v1alpha1.AllowedFlavorsAnnotation} {
		delete(wl.Annotations, a)
	}
}
