package flavors

import (
	"strconv"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// Named reads which devices a claim was cut to from its own spec, as Exact wrote it: the first selector of each request names
// them by their attributes. Nobody can change the spec of a claim, as he could what is noted beside it. Nil for a claim any of
// whose requests does not begin so.
func Named(spec *resourcev1.ResourceClaimSpec) []ledger.Naming {
	var out []ledger.Naming
	for i := range spec.Devices.Requests {
		r := &spec.Devices.Requests[i]
		var selectors []resourcev1.DeviceSelector
		switch {
		case r.Exactly != nil:
			selectors = r.Exactly.Selectors
		case len(r.FirstAvailable) == 1:
			selectors = r.FirstAvailable[0].Selectors
		}
		if len(selectors) == 0 || selectors[0].CEL == nil {
			return nil
		}
		s := scanner{left: selectors[0].CEL.Expression}
		named := s.identified()
		if s.failed || s.left != "" {
			return nil
		}
		out = append(out, named...)
	}
	return out
}

// scanner reads what identify writes. Once anything is not as expected it has failed and reads nothing more.
type scanner struct {
	left   string
	failed bool
}

// identified reads the names of all drivers' devices.
func (s *scanner) identified() []ledger.Naming {
	out := []ledger.Naming{s.ofDriver()}
	for !s.failed && s.maybe(" || ") {
		out = append(out, s.ofDriver())
	}
	return out
}

// ofDriver reads what driverExpression writes.
func (s *scanner) ofDriver() ledger.Naming {
	var n ledger.Naming
	s.must("(device.driver == ")
	n.Driver = s.text()
	for s.must(" && "); !s.failed && strings.HasPrefix(s.left, `"`); s.must(" && ") {
		id := s.text()
		s.must(" in device.attributes[")
		n.Keys = append(n.Keys, ledger.AttributeKey{Domain: s.text(), ID: id})
		s.must("]")
	}
	switch {
	case s.failed:
	case len(n.Keys) == 1:
		s.ref(n.Keys[0])
		s.must(" in [")
		n.Values = append(n.Values, []ledger.AttributeValue{s.value()})
		for !s.failed && s.maybe(", ") {
			n.Values = append(n.Values, []ledger.AttributeValue{s.value()})
		}
		s.must("])")
	default:
		s.must("(")
		n.Values = append(n.Values, s.equal(n.Keys))
		for !s.failed && s.maybe(" || ") {
			n.Values = append(n.Values, s.equal(n.Keys))
		}
		s.must("))")
	}
	return n
}

// equal reads the values of several attributes of one device.
func (s *scanner) equal(keys []ledger.AttributeKey) []ledger.AttributeValue {
	var out []ledger.AttributeValue
	s.must("(")
	for i, k := range keys {
		if i > 0 {
			s.must(" && ")
		}
		s.ref(k)
		s.must(" == ")
		out = append(out, s.value())
	}
	s.must(")")
	return out
}

// ref reads a reference to an attribute.
func (s *scanner) ref(k ledger.AttributeKey) {
	s.must("device.attributes[")
	domain := s.text()
	s.must("][")
	id := s.text()
	s.must("]")
	s.failed = s.failed || domain != k.Domain || id != k.ID
}

// value reads what literal writes.
func (s *scanner) value() ledger.AttributeValue {
	if strings.HasPrefix(s.left, `"`) {
		return ledger.AttributeValue{Text: s.text(), IsText: true}
	}
	digits := 0
	for digits < len(s.left) && (s.left[digits] >= '0' && s.left[digits] <= '9' || digits == 0 && s.left[0] == '-') {
		digits++
	}
	n, err := strconv.ParseInt(s.left[:digits], 10, 64)
	s.failed = s.failed || err != nil
	s.left = s.left[digits:]
	return ledger.AttributeValue{Int: n}
}

// text reads a quoted string.
func (s *scanner) text() string {
	quoted, err := strconv.QuotedPrefix(s.left)
	if s.failed || err != nil || quoted[0] != '"' {
		s.failed = true
		return ""
	}
	s.left = s.left[len(quoted):]
	out, err := strconv.Unquote(quoted)
	s.failed = err != nil
	return out
}

func (s *scanner) must(prefix string) {
	if !s.maybe(prefix) {
		s.failed = true
	}
}

// maybe reads a prefix if it is there.
func (s *scanner) maybe(prefix string) bool {
	if s.failed || !strings.HasPrefix(s.left, prefix) {
		return false
	}
	s.left = s.left[len(prefix):]
	return true
}
