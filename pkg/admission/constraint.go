package admission

import (
	"fmt"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// maxPatterns bounds the ways in which the constraints of one pod may be given values on one node.
const maxPatterns = 256

// constraint is one of a claim's, with the wants that it is about.
type constraint struct {
	// match is the attribute of matchAttribute; empty for any other kind, which only the allocator models.
	match string
	// name is how a message calls it.
	name  string
	wants []int
}

// constraints lists those of the podset's claims.
func constraints(wants []want, specs []resourcev1.ResourceClaimSpec) []constraint {
	var out []constraint
	for claim := range specs {
		for _, x := range specs[claim].Devices.Constraints {
			c := constraint{}
			if x.MatchAttribute != nil {
				c.match, c.name = string(*x.MatchAttribute), "matchAttribute "+string(*x.MatchAttribute)
			} else if x.DistinctAttribute != nil {
				c.name = "distinctAttribute " + string(*x.DistinctAttribute)
			}
			for i := range wants {
				name, _, _ := strings.Cut(wants[i].Name, "/")
				if wants[i].Claim == claim && (len(x.Requests) == 0 || slices.Contains(x.Requests, name) || slices.Contains(x.Requests, wants[i].Name)) {
					c.wants = append(c.wants, i)
				}
			}
			if len(c.wants) > 0 {
				out = append(out, c)
			}
		}
	}
	return out
}

// singled returns a copy of a claim's spec in which a request of several devices is as many of one each where an attribute must be
// distinct: of several devices of one request kube-scheduler's allocator compares each with the last alone, or with none once it
// went back, and what it finds so it need not find again among the devices that were found.
func singled(of resourcev1.ResourceClaimSpec) resourcev1.ResourceClaimSpec {
	spec := *of.DeepCopy()
	if !slices.ContainsFunc(spec.Devices.Constraints, func(c resourcev1.DeviceConstraint) bool { return c.DistinctAttribute != nil }) {
		return spec
	}
	spec.Devices.Requests = nil
	names := map[string][]string{}
	for _, r := range of.Devices.Requests {
		sub, count := "", int64(1)
		if r.Exactly != nil {
			count = max(1, r.Exactly.Count)
		} else if len(r.FirstAvailable) == 1 {
			sub, count = "/"+r.FirstAvailable[0].Name, max(1, r.FirstAvailable[0].Count)
		}
		for i := range count {
			one := *r.DeepCopy()
			one.Name = fmt.Sprintf("%s#%d", r.Name, i)
			if one.Exactly != nil {
				one.Exactly.Count = 1
			} else if len(one.FirstAvailable) == 1 {
				one.FirstAvailable[0].Count = 1
			}
			names[r.Name], names[r.Name+sub] = append(names[r.Name], one.Name), append(names[r.Name+sub], one.Name+sub)
			spec.Devices.Requests = append(spec.Devices.Requests, one)
		}
	}
	for i := range spec.Devices.Constraints {
		c := &spec.Devices.Constraints[i]
		var requests []string
		for _, name := range c.Requests {
			requests = append(requests, names[name]...)
		}
		c.Requests = requests
	}
	return spec
}

// unsingled returns the name of the request that one of singled is of.
func unsingled(name string) string {
	before, after, cut := strings.Cut(name, "#")
	if !cut {
		return name
	}
	_, sub, of := strings.Cut(after, "/")
	if of {
		return before + "/" + sub
	}
	return before
}

// eligible holds, by want, the devices that may be given in a book.
func (n *nodeFit) eligible(b book) []map[*ledger.Device]bool {
	out := make([]map[*ledger.Device]bool, len(n.wants))
	for i := range n.wants {
		out[i] = map[*ledger.Device]bool{}
		for _, dev := range n.wants[i].matching {
			if n.wants[i].given(dev, b) {
				out[i][dev] = true
			}
		}
	}
	return out
}

// patterns returns the ways in which one pod's matchAttribute constraints can be given values in a book such that each
// want has enough devices left; false where they are too many. Without constraints there is one.
func (n *nodeFit) patterns(b book) ([]pattern, bool) {
	if known, ok := n.known[b]; ok {
		return known, known != nil
	}
	if n.known == nil {
		n.known = map[book][]pattern{}
	}
	all := []pattern{{eligible: n.eligible(b)}}
	for _, c := range n.constraints {
		if c.match == "" {
			continue
		}
		longer := []pattern{}
		for _, p := range all {
			for _, value := range n.values(p, c) {
				if q, ok := n.with(p, c, value); ok {
					longer = append(longer, q)
				}
			}
		}
		if all = longer; len(all) > maxPatterns {
			n.known[b] = nil
			return nil, false
		}
	}
	n.known[b] = all
	return all, true
}

// values lists the values of a constraint's attribute among the devices that its first want may have, in order of the
// devices.
func (n *nodeFit) values(p pattern, c constraint) []string {
	var out []string
	for _, dev := range n.wants[c.wants[0]].matching {
		if !p.eligible[c.wants[0]][dev] {
			continue
		}
		if v := valueOf(dev, c.match); v != "" && !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// with narrows a pattern to the devices that have a value, for the wants of a constraint; false where one has too few.
func (n *nodeFit) with(p pattern, c constraint, value string) (pattern, bool) {
	q := pattern{eligible: slices.Clone(p.eligible)}
	for _, w := range c.wants {
		left := map[*ledger.Device]bool{}
		for dev := range p.eligible[w] {
			if valueOf(dev, c.match) == value {
				left[dev] = true
			}
		}
		if int64(len(left)) < n.wants[w].Count {
			return q, false
		}
		q.eligible[w] = left
	}
	return q, true
}

// valueOf returns a device's value of a fully qualified attribute, as a text that two devices share where the allocator
// holds them for equal; empty where it has none. A value of a kind that the allocator does not compare equals no other.
func valueOf(dev *ledger.Device, attribute string) string {
	a, ok := dev.Spec.Attributes[resourcev1.QualifiedName(attribute)]
	if domain, id, found := strings.Cut(attribute, "/"); !ok && found && domain == dev.ID.Driver {
		a, ok = dev.Spec.Attributes[resourcev1.QualifiedName(id)]
	}
	switch {
	case !ok:
		return ""
	case a.StringValue != nil:
		return "string " + *a.StringValue
	case a.IntValue != nil:
		return fmt.Sprint("int ", *a.IntValue)
	case a.BoolValue != nil:
		return fmt.Sprint("bool ", *a.BoolValue)
	case a.VersionValue != nil:
		return "version " + *a.VersionValue
	}
	return "device " + dev.ID.String()
}
