package selfcheck

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// finding is one difference, or one flag; the other is zero. It is itself its identity: other figures are another finding.
type finding struct {
	difference ledger.Divergence
	flag       ledger.Flag
	// node is empty for a flag about a pool or a device, which several nodes may have.
	node string
}

// findings returns all that is found on a node, each once.
func (c *Controller) findings(s *ledger.Snapshot, n *ledger.Node) []finding {
	var list []finding
	for _, d := range c.Book.Divergences(n.Name) {
		list = append(list, finding{difference: d, node: n.Name})
	}
	for _, f := range slices.Concat(n.Flags(), c.Decider.Flags(s, n)) {
		x := finding{flag: f}
		if f.Object == "" {
			x.node = n.Name
		}
		list = append(list, x)
	}
	return list
}

// stands says how long the finding has to be there before it is said: what one object says by itself is not in passing.
func (f *finding) stands() time.Duration {
	switch f.flag.Reason {
	case ledger.FlagImpossible, ledger.FlagListedTwice, ledger.FlagServedTwice, ledger.FlagQuirk:
		return 0
	}
	return stands
}

// placement is the Placement that a difference concerns; empty for none, and for a flag.
func (f *finding) placement() types.NamespacedName {
	if f.difference.Workload == "" {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: f.difference.Namespace, Name: f.difference.Workload}
}

func (f *finding) message() string { return cmp.Or(f.difference.Message, f.flag.Message) }

func compare(a, b finding) int {
	return cmp.Or(
		cmp.Compare(a.node, b.node), cmp.Compare(a.difference.Kind, b.difference.Kind), cmp.Compare(a.flag.Reason, b.flag.Reason),
		cmp.Compare(a.difference.Namespace, b.difference.Namespace), cmp.Compare(a.difference.Pod, b.difference.Pod),
		cmp.Compare(a.flag.Object, b.flag.Object), cmp.Compare(a.message(), b.message()),
	)
}

// inOrder returns what stands, in an order of its own.
func (c *Controller) inOrder() []finding {
	list := make([]finding, 0, len(c.sightings))
	for f := range c.sightings {
		list = append(list, f)
	}
	slices.SortFunc(list, compare)
	return list
}

// say counts what has stood for long enough, once each, and writes the events that are not a Placement's.
func (c *Controller) say(now time.Time) {
	written := 0
	for _, f := range c.inOrder() {
		x := c.sightings[f]
		switch due := x.since.Add(f.stands()); {
		case x.said:
			continue
		case now.Before(due):
			c.at(due)
			continue
		case written == maxEvents:
			c.at(now.Add(checkEvery))
			return
		}
		written++
		x.said = true
		if f.flag != (ledger.Flag{}) {
			c.event(x.node.Object, f, x.node.Name)
			continue
		}
		if f.placement() == (types.NamespacedName{}) {
			c.differs(x.node.Object, f)
		}
	}
}

// differs tells of a difference where it belongs.
func (c *Controller) differs(on runtime.Object, f finding) {
	c.Metrics.Divergences.WithLabelValues(string(f.difference.Kind)).Inc()
	c.event(on, f, f.node)
}

// maxNote is how long an event's note may be, in bytes.
const maxNote = 1024

// event writes a finding on an object. Events that differ in their words alone are one to a recorder, which keeps the words of
// the first: what is related tells them apart.
func (c *Controller) event(on runtime.Object, f finding, node string) {
	words := fnv.New64a()
	_, _ = words.Write([]byte(f.message()))
	related := &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node, FieldPath: fmt.Sprintf("%s[%x]", f.flag.Object, words.Sum64())}
	c.Events.Eventf(on, related, corev1.EventTypeWarning, cmp.Or(string(f.flag.Reason), v1alpha1.PlacementDiverged), "Compare", "%s", cut(f.message(), maxNote))
}

// cut shortens a text to so many bytes.
func cut(s string, most int) string {
	const more = " …"
	if len(s) <= most {
		return s
	}
	s = s[:most-len(more)]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s + more
}
