package admission

import (
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	schedulingcorev1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// nodeFit is one node of a flavor, looked at for one way to serve one podset.
type nodeFit struct {
	*windows
	ps   *PodSet
	node *ledger.Node
	// devices are those of the flavor on the node, and those that it lost.
	devices []*ledger.Device
	// wants are the requests of one pod, in the order of its claims; empty for a podset without claims.
	wants []want
	// specs are the claims' specs as the option has them, and constraints what they say of several devices.
	specs       []resourcev1.ResourceClaimSpec
	constraints []constraint
	// known holds the patterns of the constraints by book, once they were worked out; nil for too many.
	known map[book][]pattern
	// unavailable says why no pod of the podset may run there now; meant is true where only a change of the pod or of
	// the node's labels would help.
	unavailable string
	meant       bool
	// absentSince is set where nothing but its readiness, or the taints that come with it, makes a node unavailable: since
	// then.
	absentSince *time.Time
	// departed is true for a node that was deleted.
	departed bool
	classes  classLister
	// plain is true for a podset without devices. plugin names the extended resource that is a device of the podset's,
	// which a device plugin serves; empty for none.
	plain  bool
	plugin corev1.ResourceName
	// byNumber names the extended resource of the podset's that a DeviceClass serves on the node; empty for none. spans
	// says why the node cannot lend for it.
	byNumber corev1.ResourceName
	spans    string
	// selected are the devices that any of the wants selects, in order.
	selected []*ledger.Device
	// heldBy are the Workloads that hold what any of the wants selects, once they were asked for.
	heldBy []types.UID
	// given are devices that were given out on other nodes; nil for none.
	given map[ledger.DeviceID]bool
	// err is why the claim's selectors cannot be evaluated.
	err error
	// steady says that nothing about the node changes with time alone.
	steady bool
	// taken holds, by book, what most returned; served what allocate last returned for pods of this podset alone.
	taken [books]*taking
	// short is the resource of the node of which devices are to take least, while they are looked for; empty for none.
	short  corev1.ResourceName
	served *served
}

// want is one request of a pod.
type want struct {
	*windows
	flavors.Chosen
	// matching are the devices of the flavor that the request selects, whoever holds them.
	matching []*ledger.Device
	// plugged are the devices that a device plugin lends, by its resource.
	plugged map[*ledger.Device]corev1.ResourceName
	// references is how often the pod's containers refer to its claim.
	references int
	// mistaken are devices that kube-scheduler may take for others.
	mistaken map[ledger.DeviceID]bool
}

// unreferred says whether kube-scheduler 1.36 would not give a device to the request since no container refers to its claim.
func (w *want) unreferred(dev *ledger.Device) bool {
	return dev.Mappings != nil && dev.Mappings.Rules == ledger.Rules136 && w.references == 0
}

// given says whether a device can be given to the request in a book.
func (w *want) given(dev *ledger.Device, b book) bool {
	if _, plugged := w.plugged[dev]; plugged && b != emptyHealthy {
		return false
	}
	return w.usable(dev, b) && !w.unreferred(dev) && !w.mistaken[dev.ID] && (b == emptyHealthy || tainted(w.Tolerations, dev) == nil)
}

// stop says why a node takes no further pod.
type stop struct {
	reason  v1alpha1.Reason
	message string
	// full is true where the node takes as many pods as it ever could: nothing on it is to be waited for.
	full bool
}

// matching returns the devices that any of the requests selects, in order.
func (n *nodeFit) matching() []*ledger.Device {
	if len(n.wants) == 1 {
		return n.wants[0].matching
	}
	if n.selected == nil {
		n.selected = []*ledger.Device{}
		for _, dev := range n.devices {
			if slices.ContainsFunc(n.wants, func(w want) bool { return slices.Contains(w.matching, dev) }) {
				n.selected = append(n.selected, dev)
			}
		}
	}
	return n.selected
}

// requests is what one pod asks of the node's own resources.
func (n *nodeFit) requests() ledger.Amounts {
	return ofNode(n.ps.Requests, func(name corev1.ResourceName) bool { return name == n.byNumber })
}

// timeless says that what the node takes, and whether more may come back to it, changes with nothing but the node.
func (n *nodeFit) timeless() bool {
	if n.departed || n.absentSince != nil || len(n.node.Lost) > 0 || n.unpublished() {
		return false
	}
	return !slices.ContainsFunc(n.node.Uses, func(u ledger.Use) bool { return u.Freeing || !u.Until.IsZero() }) &&
		!slices.ContainsFunc(n.node.Devices, func(d ledger.Device) bool {
			return !d.Lost.IsZero() || slices.ContainsFunc(d.Holders, func(h ledger.Holder) bool { return h.Freeing || !h.Until.IsZero() })
		})
}

// forget drops what was worked out at an earlier time.
func (n *nodeFit) forget() {
	n.known, n.taken, n.served = nil, [books]*taking{}, nil
}

// free returns how many of the matching devices are free in a book.
func (n *nodeFit) free(b book) int {
	c := 0
	for _, d := range n.matching() {
		if n.usable(d, b) {
			c++
		}
	}
	return c
}

// fit looks at one node for an option; nil for a node that does not belong to its flavor.
func (d *Decider) fit(s *ledger.Snapshot, q *question, n *ledger.Node, departed bool) *nodeFit {
	if !q.selector.Matches(labels.Set(n.Object.Labels)) {
		return nil
	}
	n = asServed(n, q.policy)
	f := &nodeFit{
		windows: &q.windows, ps: &q.podSet, node: n, departed: departed, specs: q.specs, classes: classLister{q.classes},
		plain: q.option.Flavor == anyFlavor, plugin: q.plugin,
	}
	f.unavailable, f.meant = unavailable(n, q.affinity, q.tolerations)
	switch {
	case departed && !f.meant:
		f.unavailable = fmt.Sprintf("node %s was deleted", n.Name)
	case f.unavailable != "" && !f.meant:
		f.absentSince = absentSince(n, q.affinity, q.tolerations)
	}
	if q.option.Flavor != anyFlavor {
		f.devices = d.ofFlavor(d.ofFlavor(nil, q.policy, n.Devices, q.option.Flavor), q.policy, n.Lost, q.option.Flavor)
		d.match(s, f, q.chosen)
		if q.plugin != "" {
			d.byClass(s, q.policy, f, q.plugin)
		}
		f.neverBound(s)
	}
	f.steady = f.timeless()
	return f
}

// ofFlavor appends those of devices that belong to a flavor.
func (d *Decider) ofFlavor(list []*ledger.Device, p *flavors.Policy, devices []ledger.Device, flavor int) []*ledger.Device {
	var s *resourcev1.ResourceSlice
	var of []int
	at := 0 // where the slice lists the next device, as a rule
	for i := range devices {
		dev := &devices[i]
		if dev.Slice != s {
			s, of, at = dev.Slice, d.Matcher.FlavorsOf(p, dev.Slice), 0
		}
		for range of {
			if at >= len(of) {
				at = 0
			}
			if at++; s.Spec.Devices[at-1].Name == dev.ID.Device {
				if of[at-1] == flavor {
					list = append(list, dev)
				}
				break
			}
		}
	}
	return list
}

// match keeps, for each request, the devices that its class and its own selectors accept.
func (d *Decider) match(s *ledger.Snapshot, f *nodeFit, requests []flavors.Chosen) {
	var plugged map[*ledger.Device]corev1.ResourceName
	if len(requests) > 0 {
		plugged = d.plugged(s, f.node)
	}
	mistaken := mistakable(f.node)
	for _, r := range requests {
		w := want{windows: f.windows, Chosen: r, plugged: plugged, references: f.ps.references(r.Claim), mistaken: mistaken}
		expressions := ClassSelectors(s.DeviceClass(r.Class))
		fails := d.fails(f.node, expressions)
		expressions = append(expressions, r.Selectors...)
		var of *resourcev1.ResourceSlice
		var selects func(*ledger.Device) (bool, error)
		var behind error
		for _, dev := range f.devices {
			if dev.Slice != of {
				of, selects = dev.Slice, d.Matcher.Selected(dev.Slice, expressions...)
			}
			ok, err := selects(dev)
			if err != nil {
				f.err = err
				return
			}
			switch {
			case ok && fails.comesBefore(dev):
				behind = fails.err
			case ok:
				w.matching = append(w.matching, dev)
			}
		}
		if behind != nil && len(w.matching) == 0 {
			f.err = behind
			return
		}
		f.wants = append(f.wants, w)
	}
	f.constraints = constraints(f.wants, f.specs)
}

// ClassSelectors returns the CEL expressions of a DeviceClass; none for nil.
func ClassSelectors(c *resourcev1.DeviceClass) []string {
	var out []string
	if c == nil {
		return nil
	}
	for _, s := range c.Spec.Selectors {
		if s.CEL != nil {
			out = append(out, s.CEL.Expression)
		}
	}
	return out
}

// Unavailable says why a pod, as it is, may not run on a node; empty where it may.
func Unavailable(n *ledger.Node, spec *corev1.PodSpec) string {
	why, _ := unavailable(n, nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: *spec}), spec.Tolerations)
	return why
}

// readinessTaints come and go with a node's readiness.
var readinessTaints = []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable}

// absentSince returns since when nothing but its readiness keeps a pod from a node; nil if something else does as well.
func absentSince(n *ledger.Node, affinity nodeaffinity.RequiredNodeAffinity, tolerations []corev1.Toleration) *time.Time {
	since := n.NotReadySince
	for i := range n.Object.Spec.Taints {
		t := &n.Object.Spec.Taints[i]
		if slices.Contains(readinessTaints, t.Key) && t.TimeAdded != nil && n.Ready && since.Before(t.TimeAdded.Time) {
			since = t.TimeAdded.Time
		}
	}
	if since.IsZero() || !onlyAway(n, affinity, tolerations) {
		return nil
	}
	return &since
}

// onlyAway says whether nothing but its readiness, or the taints that come with it, keeps a pod from a node.
func onlyAway(n *ledger.Node, affinity nodeaffinity.RequiredNodeAffinity, tolerations []corev1.Toleration) bool {
	ready := *n
	ready.Ready = true
	tolerations = slices.Clone(tolerations)
	for _, key := range readinessTaints {
		tolerations = append(tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
	}
	why, _ := unavailable(&ready, affinity, tolerations)
	return why == ""
}

// unavailable says why a pod may not run on a node, and whether that is meant for good.
func unavailable(n *ledger.Node, affinity nodeaffinity.RequiredNodeAffinity, tolerations []corev1.Toleration) (string, bool) {
	why, meant := kept(n, affinity, tolerations)
	switch {
	case meant:
		return why, true
	case n.Hostname == "":
		return fmt.Sprintf("node %s has no %s label of its own to pin a pod by", n.Name, corev1.LabelHostname), true
	case !n.Ready:
		return fmt.Sprintf("node %s is not Ready", n.Name), false
	}
	return why, false
}

// kept says why kube-scheduler keeps a pod from a node, whatever the pod asks for, and whether that is meant for good.
func kept(n *ledger.Node, affinity nodeaffinity.RequiredNodeAffinity, tolerations []corev1.Toleration) (string, bool) {
	if ok, err := affinity.Match(n.Object); err != nil || !ok {
		return fmt.Sprintf("node %s does not match the pod's node selector or affinity", n.Name), true
	}
	if n.Object.Spec.Unschedulable {
		cordon := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
		if !schedulingcorev1.TolerationsTolerateTaint(logr.Discard(), tolerations, &cordon, false) {
			return fmt.Sprintf("node %s is cordoned", n.Name), false
		}
	}
	taint, untolerated := schedulingcorev1.FindMatchingUntoleratedTaint(logr.Discard(), n.Object.Spec.Taints, tolerations, func(t *corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
	}, false)
	if untolerated {
		return fmt.Sprintf("node %s has taint %s, which the pod does not tolerate", n.Name, taint.ToString()), false
	}
	return "", false
}
