package admission

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// maxRemembered bounds how many looks at a node are remembered, over all questions; each takes about a kilobyte.
const maxRemembered = 1 << 16

// memory holds what was worked out for one option of one podset, node by node: of a cluster little changes between two
// decisions, and the nodes that did not change need no second look. What it gives is what would be worked out anew.
// The Decider's lock guards it.
type memory struct {
	questions map[string]*question
	// asked counts questions, to tell the one that was not asked for longest; held counts the looks that are remembered.
	asked   int64
	held    int
	answers answers
	apart   map[inventory]bool
	gone    withouts
}

// question is one option of one podset, with all nodes as they were seen last.
type question struct {
	// windows are those of the Request that asks now.
	windows  windows
	policy   *flavors.Policy
	podSet   PodSet
	option   flavors.Option
	selector labels.Selector
	affinity nodeaffinity.RequiredNodeAffinity
	// tolerations are the pod's with the flavor's.
	tolerations []corev1.Toleration
	// plugin is the plain extended resource that the podset asks for devices by; empty for none.
	plugin  corev1.ResourceName
	chosen  []flavors.Chosen
	specs   []resourcev1.ResourceClaimSpec
	classes *ledger.Classes

	here, departed looks
	asked          int64
	// kept says that the memory holds it.
	kept bool
	// last is what try came to last.
	last *tried
}

// looks are the nodes of a snapshot as a question sees them.
type looks struct {
	nodes []*ledger.Node
	// all holds a look by node, nil for one of another flavor; fits holds the others alone, and changing those of them that
	// change with time. fits and changing are replaced, never changed.
	all            []*nodeFit
	fits, changing []*nodeFit
	// version counts how often fits was replaced.
	version int64
}

// question returns the question about an option of a podset, with the nodes as a snapshot has them.
func (d *Decider) question(s *ledger.Snapshot, r *Request, ps *PodSet, o flavors.Option) *question {
	key, ok := questionKey(r.Policy, ps, o)
	if !ok {
		return newQuestion(s, r, ps, o)
	}
	if r.without {
		key += "\nwithout"
	}
	m := &d.memory
	if m.questions == nil {
		m.questions = map[string]*question{}
	}
	q := m.questions[key]
	if q == nil || q.classes != s.Classes() {
		if q != nil {
			m.drop(key)
		}
		q = newQuestion(s, r, ps, o)
		m.questions[key], q.kept = q, true
	}
	m.asked++
	q.asked, q.windows = m.asked, *windowsOf(r)
	return q
}

func newQuestion(s *ledger.Snapshot, r *Request, ps *PodSet, o flavors.Option) *question {
	q := &question{windows: *windowsOf(r), policy: r.Policy, podSet: *ps, option: o, classes: s.Classes(), chosen: ps.Shape.Chosen(o.Variant)}
	var want map[string]string
	var tolerations []corev1.Toleration
	if o.Flavor != anyFlavor {
		want, tolerations = r.Policy.Flavors[o.Flavor].NodeLabels, r.Policy.Flavors[o.Flavor].Tolerations
	}
	if ps.Assigned != nil && (o.Flavor == anyFlavor || r.Policy.Flavors[o.Flavor].Name == ps.Assigned.Flavor) {
		want, tolerations = ps.Assigned.NodeLabels, ps.Assigned.Tolerations
	}
	q.selector = labels.SelectorFromSet(want)
	q.affinity = nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: *ps.Spec})
	q.tolerations = append(slices.Clone(ps.Spec.Tolerations), tolerations...)
	if o.Flavor != anyFlavor && r.Policy.PlainDevices(ps.Shape) > 0 {
		q.plugin = corev1.ResourceName(r.Policy.Spec.QuotaResource)
	}
	for i := range ps.Shape.Claims {
		q.specs = append(q.specs, ps.Shape.SpecOf(o.Variant, i))
	}
	return q
}

// nodes returns the nodes that belong to the option's flavor, with what of them concerns the podset: those that carry the
// labels that Kueue gives to the pods. For anyFlavor these are the labels of what Kueue assigned.
func (d *Decider) nodes(s *ledger.Snapshot, q *question) *looks {
	d.look(s, q, &q.here, s.Nodes(), false)
	return &q.here
}

// gone returns nodes likewise that were deleted.
func (d *Decider) gone(s *ledger.Snapshot, q *question) []*nodeFit {
	d.look(s, q, &q.departed, s.Departed(), true)
	return q.departed.fits
}

// look brings looks up to date: only nodes that are not those of before are looked at.
func (d *Decider) look(s *ledger.Snapshot, q *question, l *looks, nodes []*ledger.Node, departed bool) {
	before := len(l.fits)
	if changed := l.align(nodes, func(n *ledger.Node) *nodeFit { return d.fit(s, q, n, departed) }); changed {
		l.fits, l.changing = make([]*nodeFit, 0, before+1), nil
		l.version++
		for _, f := range l.all {
			if f != nil {
				l.fits = append(l.fits, f)
				if !f.steady {
					l.changing = append(l.changing, f)
				}
			}
		}
	}
	for _, f := range l.changing {
		f.forget()
	}
	if q.kept {
		d.memory.held += len(l.fits) - before
		d.memory.bound(q)
	}
}

// align looks at the nodes that are not the same as before, and says whether there are any that matter.
func (l *looks) align(nodes []*ledger.Node, look func(*ledger.Node) *nodeFit) (changed bool) {
	if len(nodes) == len(l.nodes) && (len(nodes) == 0 || &nodes[0] == &l.nodes[0]) {
		return false
	}
	old, seen := l.nodes, l.all
	if len(old) != len(nodes) {
		known := make(map[*ledger.Node]*nodeFit, len(old))
		for i, n := range old {
			known[n] = seen[i]
		}
		l.nodes, l.all = nodes, make([]*nodeFit, len(nodes))
		for i, n := range nodes {
			f, same := known[n]
			if !same {
				f = look(n)
			}
			l.all[i] = f
		}
		return true
	}
	for i, n := range nodes {
		if old[i] != n {
			f := look(n)
			changed = changed || f != nil || seen[i] != nil
			seen[i] = f
		}
	}
	l.nodes = nodes
	return changed
}

// bound forgets the questions that were not asked for longest while too much is remembered; not the one that is asked now.
func (m *memory) bound(now *question) {
	for m.held > maxRemembered && len(m.questions) > 1 {
		oldest := ""
		for key, q := range m.questions {
			if q != now && (oldest == "" || q.asked < m.questions[oldest].asked) {
				oldest = key
			}
		}
		m.drop(oldest)
	}
}

func (m *memory) drop(key string) {
	if q := m.questions[key]; q != nil {
		m.held -= len(q.here.fits) + len(q.departed.fits)
		delete(m.questions, key)
		q.kept = false
	}
}

// questionKey names all that a look at a node depends on, beside the node, the classes and the time; false where it cannot be
// told.
func questionKey(p *flavors.Policy, ps *PodSet, o flavors.Option) (string, bool) {
	if !ps.told() {
		return "", false
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s %d %v %d", p.Name, p.Revision, p.Spec.QuotaResource, o.Flavor, o.Variant, ps.Count)
	if a := ps.Assigned; a != nil && !likeItsFlavor(p, a, o) {
		fmt.Fprintf(&b, " %q", a.Flavor)
		for _, k := range slices.Sorted(maps.Keys(a.NodeLabels)) {
			fmt.Fprintf(&b, " %q=%q", k, a.NodeLabels[k])
		}
		for i := range a.Tolerations {
			fmt.Fprintf(&b, " %q", a.Tolerations[i].String())
		}
	}
	b.WriteByte('\n')
	b.WriteString(ps.asks)
	return b.String(), true
}

// likeItsFlavor says whether the nodes of an option are those of its flavor in the policy, whatever Kueue assigned.
func likeItsFlavor(p *flavors.Policy, a *Assigned, o flavors.Option) bool {
	if o.Flavor == anyFlavor {
		return false
	}
	f := &p.Flavors[o.Flavor]
	return f.Name != a.Flavor || maps.Equal(f.NodeLabels, a.NodeLabels) && apiequality.Semantic.DeepEqual(f.Tolerations, a.Tolerations)
}

// tried is what try came to, with what it depends on beside the nodes that are there.
type tried struct {
	trial    trial
	version  int64
	departed []*ledger.Node
	windows  windows
	coming   bool
	ordering v1alpha1.Ordering
	reject   bool
	// timeless says that it is the same at any time.
	timeless bool
}

func (q *question) triedOn(s *ledger.Snapshot, r *Request) *tried {
	return &tried{
		version: q.here.version, departed: s.Departed(), windows: q.windows, coming: r.Coming,
		ordering: r.Policy.Spec.Ordering, reject: r.Policy.Spec.OnInfeasible == v1alpha1.OnInfeasibleReject,
	}
}

// remembered returns what try came to last, if nothing that it depends on is another now; nil otherwise.
func (q *question) remembered(now *tried) *trial {
	l := q.last
	if l == nil || l.version != now.version || l.coming != now.coming || l.ordering != now.ordering || l.reject != now.reject ||
		l.windows.window != now.windows.window || l.windows.grace != now.windows.grace || l.windows.memory != now.windows.memory ||
		len(l.departed) != len(now.departed) || len(l.departed) > 0 && &l.departed[0] != &now.departed[0] {
		return nil
	}
	if !l.timeless && (!l.windows.now.Equal(now.windows.now) || len(l.windows.others)+len(now.windows.others) > 0) {
		return nil
	}
	return &l.trial
}

// remember keeps what try came to.
func (q *question) remember(now *tried, t trial) {
	s := t.standing.Standing
	now.trial = t
	now.timeless = len(q.here.changing) == 0 && (s == v1alpha1.StandingFits || s == v1alpha1.StandingBusy || s == v1alpha1.StandingBlocked && len(now.departed) == 0)
	q.last = now
}

// told works out what a podset asks for, as a text; false where it cannot be told.
func (ps *PodSet) told() bool {
	if ps.asks == "" {
		raw, err := json.Marshal(struct {
			Selector    map[string]string
			Affinity    *corev1.NodeAffinity
			Tolerations []corev1.Toleration
			Shape       flavors.Shape
			Requests    ledger.Amounts
			Referred    []int
			Whole       []corev1.ResourceName
		}{ps.Spec.NodeSelector, nodeAffinity(ps.Spec), ps.Spec.Tolerations, ps.Shape, ps.Requests, ps.referred(), ps.whole()})
		if err != nil {
			return false
		}
		ps.asks = string(raw)
	}
	return true
}

func nodeAffinity(spec *corev1.PodSpec) *corev1.NodeAffinity {
	if spec.Affinity == nil {
		return nil
	}
	return spec.Affinity.NodeAffinity
}
