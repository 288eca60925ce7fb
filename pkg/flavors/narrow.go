package flavors

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// maxCELBytes bounds all expressions of a narrowed claim together.
const maxCELBytes = 10 << 10

// Pick is the devices that one request of a claim is promised.
type Pick struct {
	// Request and Alternative are indices into the claim's shape.
	Request, Alternative int
	Devices              []*ledger.Device
}

// Exact returns a claim spec that only the given devices can satisfy: the user's spec with each request cut to its
// devices, to the flavor, to no earlier flavor, to the policy's constraints and to the user's own selectors, in that
// order; the first expression is false on every other device, so the rest is evaluated on the given ones alone. A
// firstAvailable keeps the one subrequest that was picked. There is one pick for each request; onNode holds every device
// of the node, from which the given ones must be told. A refusal says why it cannot be done.
func (p *Policy) Exact(m *Matcher, c ClaimShape, flavor int, picks []Pick, onNode []ledger.Device) (resourcev1.ResourceClaimSpec, *Refusal) {
	var none resourcev1.ResourceClaimSpec
	choice, refusal := c.choice(picks)
	if refusal != nil {
		return none, refusal
	}
	spec := c.cut(choice)
	cuts, total := make([]cut, len(picks)), 0
	for i, pick := range picks {
		a := &c.Requests[pick.Request].Alternatives[pick.Alternative]
		first, ok := identify(pick.Devices, onNode)
		if !ok {
			return none, unsupportedf("no attribute tells the devices of node %s apart, so a claim cannot be cut to those promised", sliceNodeName(pick.Devices))
		}
		cuts[i] = cut{first, p.beside(a, flavor)}
		total += cuts[i].bytes()
		if n := cuts[i].selectors(); n > resourcev1.DeviceSelectorsMaxSize || total > maxCELBytes {
			return none, unsupportedf("claim %q: %d selectors of %d bytes together are too many to cut it to the promised devices (at most %d and %d)",
				c.Name, n, total, resourcev1.DeviceSelectorsMaxSize, maxCELBytes)
		}
	}
	left := maxCELBytes - total
	for i, pick := range picks {
		a := &c.Requests[pick.Request].Alternatives[pick.Alternative]
		expressions := append([]string{cuts[i].first}, p.Flavors[flavor].Selectors...)
		for _, not := range p.notEarlier(m, flavor, pick.Devices) { // the first expression says as much: they go where there is no room
			if cuts[i].selectors() == resourcev1.DeviceSelectorsMaxSize || len(not) > left {
				break
			}
			left -= len(not)
			cuts[i].rest = append(cuts[i].rest, not)
			expressions = append(expressions, not)
		}
		expressions = slices.Concat(expressions, p.Constraints, a.Selectors)
		selectors := make([]resourcev1.DeviceSelector, len(expressions))
		for i, x := range expressions {
			selectors[i].CEL = &resourcev1.CELDeviceSelector{Expression: x}
		}
		if e := spec.Devices.Requests[pick.Request].Exactly; e != nil {
			e.AllocationMode, e.Count, e.Selectors = resourcev1.DeviceAllocationModeExactCount, a.Count, selectors
			continue
		}
		s := &spec.Devices.Requests[pick.Request].FirstAvailable[0]
		s.AllocationMode, s.Count, s.Selectors = resourcev1.DeviceAllocationModeExactCount, a.Count, selectors
	}
	return spec, nil
}

// choice returns the alternative that was picked, by request, having held the picks against the claim.
func (c *ClaimShape) choice(picks []Pick) ([]int, *Refusal) {
	if len(picks) != len(c.Requests) {
		return nil, unsupportedf("claim %q has %d requests, devices are promised for %d", c.Name, len(c.Requests), len(picks))
	}
	choice := make([]int, len(c.Requests))
	seen := make([]bool, len(c.Requests))
	for _, pick := range picks {
		if pick.Request >= len(c.Requests) || seen[pick.Request] || pick.Alternative >= len(c.Requests[pick.Request].Alternatives) {
			return nil, unsupportedf("claim %q has no request for what is promised", c.Name)
		}
		a := c.Requests[pick.Request].Alternatives[pick.Alternative]
		if int64(len(pick.Devices)) != a.Count {
			return nil, unsupportedf("claim %q asks for %d devices, %d are promised", c.Name, a.Count, len(pick.Devices))
		}
		seen[pick.Request], choice[pick.Request] = true, pick.Alternative
	}
	return choice, nil
}

// cut is what one request is cut to its devices by.
type cut struct {
	// first names the devices, rest are the selectors beside it.
	first string
	rest  []string
}

func (c *cut) selectors() int { return 1 + len(c.rest) }

func (c *cut) bytes() int {
	n := len(c.first)
	for _, e := range c.rest {
		n += len(e)
	}
	return n
}

// beside returns the selectors that a request of a flavor carries beside its devices' names, whichever they are.
func (p *Policy) beside(a *Alternative, flavor int) []string {
	return slices.Concat(p.Flavors[flavor].Selectors, p.Constraints, a.Selectors)
}

// Naming a driver and its attributes takes about driverBytes of CEL, naming one of its devices about deviceBytes.
const (
	driverBytes = 160
	deviceBytes = 50
)

// Uncuttable says why the claims of an option are too large to be cut to the devices of its flavor, whichever those are; nil where
// they are not. Names of devices count as what they are as a rule: Exact knows them, and has the last word.
func (p *Policy) Uncuttable(s Shape, o Option) *Refusal {
	if o.Flavor < 0 {
		return nil
	}
	total := make([]int, len(s.Claims))
	for _, r := range s.Chosen(o.Variant) {
		c := cut{rest: p.beside(&r.Alternative, o.Flavor)}
		total[r.Claim] += driverBytes + deviceBytes*int(r.Count) + c.bytes()
		if n := c.selectors(); n > resourcev1.DeviceSelectorsMaxSize || total[r.Claim] > maxCELBytes {
			return unsupportedf("ResourceClaimTemplate %q: spec.devices.requests[%q]: %d selectors, or %d bytes of them, with those of flavor %s are too many (at most %d and %d): join or shorten them",
				s.Claims[r.Claim].Template, r.Name, n, total[r.Claim], p.Flavors[o.Flavor].Name, resourcev1.DeviceSelectorsMaxSize, maxCELBytes)
		}
	}
	return nil
}

// notEarlier returns expressions that are false on devices of the flavors before one, as far as they are true on its own and the
// API server takes them.
func (p *Policy) notEarlier(m *Matcher, flavor int, devices []*ledger.Device) []string {
	var out []string
	for f := range flavor {
		not := "!(" + strings.Join(parenthesized(p.Flavors[f].Selectors), " && ") + ")"
		if holds(m, devices, not) && m.affordable(not) {
			out = append(out, not)
		}
	}
	return out
}

func parenthesized(expressions []string) []string {
	out := make([]string, len(expressions))
	for i, e := range expressions {
		out[i] = "(" + e + "\n)" // on a line of its own, since e may end in a comment
	}
	return out
}

// holds says whether an expression is true, without an error, on each device.
func holds(m *Matcher, devices []*ledger.Device, expression string) bool {
	for _, d := range devices {
		if ok, err := m.Matches(d.ID.Driver, d.Spec, expression); err != nil || !ok {
			return false
		}
	}
	return true
}

func sliceNodeName(devices []*ledger.Device) string {
	if len(devices) == 0 || devices[0].Slice.Spec.NodeName == nil {
		return "?"
	}
	return *devices[0].Slice.Spec.NodeName
}

// Distinct says whether claims can be cut to single devices of a driver on a node.
func Distinct(driver string, onNode []ledger.Device) bool {
	return len(keys(driver, onNode)) > 0
}

// identify returns an expression that is true on the given devices and on no other of the node.
func identify(devices []*ledger.Device, onNode []ledger.Device) (string, bool) {
	byDriver := map[string][]*ledger.Device{}
	for _, d := range devices {
		byDriver[d.ID.Driver] = append(byDriver[d.ID.Driver], d)
	}
	drivers := make([]string, 0, len(byDriver))
	for d := range byDriver {
		drivers = append(drivers, d)
	}
	slices.Sort(drivers)
	var parts []string
	for _, driver := range drivers {
		names := keys(driver, onNode)
		if len(names) == 0 {
			return "", false
		}
		for _, d := range byDriver[driver] {
			if slices.ContainsFunc(names, func(n resourcev1.QualifiedName) bool { return literal(d.Spec.Attributes[n]) == "" }) {
				return "", false
			}
		}
		parts = append(parts, driverExpression(driver, names, byDriver[driver]))
	}
	return strings.Join(parts, " || "), len(parts) > 0
}

// keys returns the fewest attributes that together tell all devices of a driver on a node apart: one, or else two;
// nil when that is not enough. Of equals a uuid comes first, then a bus address, then the name's order. An attribute
// counts only where every device has it, with values of one kind: CEL takes no list of several.
func keys(driver string, onNode []ledger.Device) []resourcev1.QualifiedName {
	var own []*resourcev1.Device
	for i := range onNode {
		if onNode[i].ID.Driver == driver {
			own = append(own, onNode[i].Spec)
		}
	}
	if len(own) == 0 {
		return nil
	}
	var names []resourcev1.QualifiedName
	for name := range own[0].Attributes {
		text := own[0].Attributes[name].StringValue != nil
		if !slices.ContainsFunc(own, func(d *resourcev1.Device) bool {
			a := d.Attributes[name]
			return literal(a) == "" || text != (a.StringValue != nil)
		}) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b resourcev1.QualifiedName) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
	})
	for _, a := range names {
		if tellApart(own, a) {
			return []resourcev1.QualifiedName{a}
		}
	}
	for i, a := range names {
		for _, b := range names[i+1:] {
			if tellApart(own, a, b) {
				return []resourcev1.QualifiedName{a, b}
			}
		}
	}
	return nil
}

func rank(name resourcev1.QualifiedName) int {
	_, id, found := strings.Cut(string(name), "/")
	if !found {
		id = string(name)
	}
	switch id {
	case "uuid":
		return 0
	case "pciBusID":
		return 1
	}
	return 2
}

func tellApart(devices []*resourcev1.Device, names ...resourcev1.QualifiedName) bool {
	seen := map[string]bool{}
	for _, d := range devices {
		var key strings.Builder
		for _, n := range names {
			key.WriteString(literal(d.Attributes[n]) + ",")
		}
		if seen[key.String()] {
			return false
		}
		seen[key.String()] = true
	}
	return true
}

// literal returns an attribute's value as CEL writes it; "" for kinds that cannot be compared so.
func literal(a resourcev1.DeviceAttribute) string {
	switch {
	case a.StringValue != nil && utf8.ValidString(*a.StringValue):
		return strconv.QuoteToASCII(*a.StringValue)
	case a.IntValue != nil:
		return strconv.FormatInt(*a.IntValue, 10)
	}
	return ""
}

func driverExpression(driver string, names []resourcev1.QualifiedName, devices []*ledger.Device) string {
	var guard, refs []string
	for _, n := range names {
		domain, id, found := strings.Cut(string(n), "/")
		if !found {
			domain, id = driver, string(n)
		}
		guard = append(guard, fmt.Sprintf("%q in device.attributes[%q]", id, domain))
		refs = append(refs, fmt.Sprintf("device.attributes[%q][%q]", domain, id))
	}
	prefix := fmt.Sprintf("device.driver == %q && %s && ", driver, strings.Join(guard, " && "))
	if len(names) == 1 {
		values := make([]string, len(devices))
		for i, d := range devices {
			values[i] = literal(d.Spec.Attributes[names[0]])
		}
		slices.Sort(values)
		return "(" + prefix + refs[0] + " in [" + strings.Join(values, ", ") + "])"
	}
	alternatives := make([]string, len(devices))
	for i, d := range devices {
		equal := make([]string, len(names))
		for j, n := range names {
			equal[j] = refs[j] + " == " + literal(d.Spec.Attributes[n])
		}
		alternatives[i] = "(" + strings.Join(equal, " && ") + ")"
	}
	slices.Sort(alternatives)
	return "(" + prefix + "(" + strings.Join(alternatives, " || ") + "))"
}
