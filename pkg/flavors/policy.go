package flavors

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// Policy is a DevicePolicy joined with the ResourceFlavors that it names. It is read-only and safe for concurrent use.
type Policy struct {
	Name string
	// Revision is a hash of all that a decision by the policy depends on.
	Revision string
	Spec     v1alpha1.DevicePolicySpec
	// Flavors are in the declared order.
	Flavors []Flavor
	// Constraints are the CEL expressions that every device must fulfil.
	Constraints []string
	// Drivers are those whose pods the policy tells how to find.
	Drivers []Driver
}

// Driver says which pods serve a driver.
type Driver struct {
	Name, Namespace string
	Pods            labels.Selector
}

// Has says whether a pod is one of the driver's.
func (d *Driver) Has(a *ledger.Agent) bool {
	return a.Namespace == d.Namespace && d.Pods.Matches(labels.Set(a.Labels))
}

// Flavor is one flavor of a Policy.
type Flavor struct {
	Name string
	// Selectors are CEL expressions; a device that fulfils all belongs to the flavor, unless an earlier one took it.
	Selectors       []string
	ChargePerDevice int64
	// NodeLabels, NodeTaints and Tolerations are the ResourceFlavor's.
	NodeLabels  map[string]string
	NodeTaints  []corev1.Taint
	Tolerations []corev1.Toleration
}

// FlavorOrder is the reason of the problem that a queue lists the policy's flavors in another order; its workloads can
// be steered all the same.
const FlavorOrder = "FlavorOrder"

// Problem is something about a policy, or a queue that uses it, that an operator must mend. Condition is the
// condition type that it makes false.
type Problem struct {
	Condition, Reason, Message string
}

// Resolve joins a policy with its ResourceFlavors; lookup returns nil for one that does not exist. While there are
// problems nothing may be decided by the policy, and the returned Policy lacks what was not found.
func Resolve(dp *v1alpha1.DevicePolicy, lookup func(name string) *kueue.ResourceFlavor) (*Policy, []Problem) {
	p := &Policy{Name: dp.Name, Spec: dp.Spec}
	var problems []Problem
	unresolved := func(reason, format string, args ...any) {
		problems = append(problems, Problem{v1alpha1.PolicyFlavorsResolved, reason, fmt.Sprintf(format, args...)})
	}
	for _, c := range dp.Spec.Constraints {
		if c.CEL != nil {
			p.Constraints = append(p.Constraints, c.CEL.Expression)
		}
	}
	for _, pf := range dp.Spec.Flavors {
		f := Flavor{Name: pf.Name, ChargePerDevice: max(1, int64(pf.ChargePerDevice))}
		for _, s := range pf.Selectors {
			if s.CEL != nil {
				f.Selectors = append(f.Selectors, s.CEL.Expression)
			}
		}
		rf := lookup(pf.Name)
		switch {
		case rf == nil:
			unresolved("ResourceFlavorNotFound", "flavor %q names no ResourceFlavor: create ResourceFlavor %s, or take the flavor out of the policy", pf.Name, pf.Name)
		case len(rf.Spec.NodeLabels) == 0:
			unresolved("NoNodeLabels", "ResourceFlavor %s has no nodeLabels: give it one that tells its nodes from those of the other flavors", pf.Name)
		case slices.Contains(slices.Collect(maps.Values(rf.Spec.NodeLabels)), noFlavor):
			unresolved("ReservedLabelValue", "ResourceFlavor %s has %q as the value of a node label, by which Plimsoll writes that no flavor is allowed: use another value", pf.Name, noFlavor)
		case rf.Spec.TopologyName != nil:
			unresolved("TopologyUnsupported", "ResourceFlavor %s has a topologyName, which is not supported yet: take it out, or the flavor out of the policy", pf.Name)
		default:
			f.NodeLabels, f.NodeTaints, f.Tolerations = rf.Spec.NodeLabels, rf.Spec.NodeTaints, rf.Spec.Tolerations
		}
		p.Flavors = append(p.Flavors, f)
	}
	for i := range p.Flavors {
		for j := range p.Flavors {
			a, b := &p.Flavors[i], &p.Flavors[j]
			if i != j && len(a.NodeLabels) > 0 && len(b.NodeLabels) > 0 && includes(b.NodeLabels, a.NodeLabels) {
				unresolved("NotTellableApart", "the nodeLabels of ResourceFlavor %s also match those of %s: give each its own value of one label, or a label of its own", a.Name, b.Name)
			}
		}
	}
	for i := range dp.Spec.Drivers {
		d := &dp.Spec.Drivers[i]
		pods, err := metav1.LabelSelectorAsSelector(&d.PodSelector)
		if err != nil {
			problems = append(problems, Problem{v1alpha1.PolicyReady, "DriverSelectorInvalid", fmt.Sprintf("the podSelector of driver %s: %v: correct it", d.Name, err)})
			continue
		}
		p.Drivers = append(p.Drivers, Driver{Name: d.Name, Namespace: d.PodNamespace, Pods: pods})
	}
	for _, field := range unsupported(&dp.Spec) {
		problems = append(problems, Problem{v1alpha1.PolicyReady, "NotSupported", field + " is not supported yet: take it out of the policy"})
	}
	p.Revision = p.hash()
	return p, problems
}

// unsupported names the fields of a policy that are part of its API and that nothing acts on yet. A policy that
// relies on one decides nothing, rather than something else than it says.
func unsupported(s *v1alpha1.DevicePolicySpec) []string {
	var fields []string
	if s.Canary != nil {
		fields = append(fields, "spec.canary")
	}
	for i := range s.Flavors {
		if s.Flavors[i].OnDemand {
			fields = append(fields, fmt.Sprintf("spec.flavors[%d].onDemand", i))
		}
	}
	return fields
}

func includes(all, part map[string]string) bool {
	for k, v := range part {
		if w, ok := all[k]; !ok || w != v {
			return false
		}
	}
	return true
}

func (p *Policy) hash() string {
	raw, err := json.Marshal(struct {
		Spec    v1alpha1.DevicePolicySpec
		Flavors []Flavor
	}{p.Spec, p.Flavors})
	if err != nil { // what is marshalled has only plain fields
		return "unhashable"
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8])
}

// Flavor returns the index of a flavor by name, or -1.
func (p *Policy) Flavor(name string) int {
	return slices.IndexFunc(p.Flavors, func(f Flavor) bool { return f.Name == name })
}

// QueueProblems says what about one ClusterQueue keeps it from being steered by the policy. checks are the names of
// its AdmissionChecks that are ours.
func (p *Policy) QueueProblems(cq *kueue.ClusterQueue, checks []string) []Problem {
	var problems []Problem
	add := func(condition, reason, format string, args ...any) {
		problems = append(problems, Problem{condition, reason, fmt.Sprintf("ClusterQueue %s: "+format, append([]any{cq.Name}, args...)...)})
	}
	if len(checks) > 1 {
		add(v1alpha1.PolicyOrderConsistent, "SeveralChecks", "has %d admission checks of Plimsoll: keep one", len(checks))
	}
	if s := cq.Spec.AdmissionChecksStrategy; s != nil {
		for _, c := range s.AdmissionChecks {
			if slices.Contains(checks, string(c.Name)) && len(c.OnFlavors) > 0 {
				add(v1alpha1.PolicyOrderConsistent, "OnFlavors", "limits check %s to some flavors: take onFlavors out, the check must see every workload", c.Name)
			}
		}
	}
	group := p.Group(cq)
	if group == nil {
		add(v1alpha1.PolicyQuotaResourceConsistent, "NoQuota", "gives no quota for %q: add it to the resource group of the policy's flavors", p.Spec.QuotaResource)
		return problems
	}
	last, known := -1, 0
	for _, f := range group.Flavors {
		i := p.Flavor(string(f.Name))
		if i < 0 {
			continue
		}
		known++
		if i < last {
			add(v1alpha1.PolicyOrderConsistent, FlavorOrder, "lists flavor %s after %s, the policy before: give both the same order", p.Flavors[i].Name, p.Flavors[last].Name)
		}
		last = max(last, i)
	}
	if known == 0 {
		add(v1alpha1.PolicyFlavorsResolved, "NoCommonFlavor", "gives quota for %q on none of the policy's flavors: list one of them", p.Spec.QuotaResource)
	}
	return problems
}

// Group returns the resource group of a ClusterQueue that covers the policy's quotaResource, or nil.
func (p *Policy) Group(cq *kueue.ClusterQueue) *kueue.ResourceGroup {
	for i := range cq.Spec.ResourceGroups {
		g := &cq.Spec.ResourceGroups[i]
		if slices.Contains(g.CoveredResources, corev1.ResourceName(p.Spec.QuotaResource)) {
			return g
		}
	}
	return nil
}

// Shadow says that the policy only records.
func (p *Policy) Shadow() bool { return p.Spec.Mode == v1alpha1.ModeShadow }

// ReleaseWait is how long a quota holder waits for devices on their way, and a pod for a slot.
func (p *Policy) ReleaseWait() time.Duration {
	return time.Duration(Seconds(p.Spec.Release.WaitSeconds, 600)) * time.Second
}

// Seconds returns v, or the default where it is nil (as in a policy that was not defaulted by a server).
func Seconds(v *int32, fallback int32) int64 { return int64(ptr.Deref(v, fallback)) }
