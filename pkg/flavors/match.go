package flavors

import (
	"context"
	"fmt"
	"strings"
	"sync"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// celCacheSize is how many compiled expressions are kept: kube-scheduler's ten are too few for a policy, its classes
// and its users' selectors together.
const celCacheSize = 512

// features are those with which kube-scheduler and the API server 1.36 compile device selectors. Attributes that are lists are
// there only where both were told to have them.
var features = cel.Features{EnableConsumableCapacity: true, EnableListTypeAttributes: true}

// Matcher evaluates device selectors as kube-scheduler does and remembers, by slice version, which flavor its devices
// belong to. It is safe for concurrent use.
type Matcher struct {
	// Cache holds compiled expressions; it may be handed to the allocator.
	Cache *cel.Cache

	mu       sync.Mutex
	flavors  map[memberKey]*members
	selected map[selectionKey]*selection
	costly   map[string]bool
}

// maxSelections bounds what is remembered of slices and selectors together.
const maxSelections = 1 << 16

// selectionKey names a slice and the selectors that its devices were held against.
type selectionKey struct {
	slice       types.UID
	expressions string
}

// selection is what came of each device of one version of a slice.
type selection struct {
	version string
	devices map[string]outcome
	// err is that of the first device that has any, the one at failed.
	err    error
	failed int
}

type outcome struct {
	matches bool
	err     error
}

type memberKey struct {
	policy string
	slice  types.UID
}

type members struct {
	revision, version string
	flavor            []int
}

// NewMatcher returns a Matcher with an empty cache.
func NewMatcher() *Matcher {
	return &Matcher{
		Cache:   cel.NewCache(celCacheSize, features),
		flavors: map[memberKey]*members{}, selected: map[selectionKey]*selection{},
		costly: map[string]bool{},
	}
}

// Matches says whether a device of driver fulfils every expression. An expression that does not compile, or fails on
// this device, is an error; kube-scheduler gives a pod up on either.
func (m *Matcher) Matches(driver string, d *resourcev1.Device, expressions ...string) (bool, error) {
	for _, e := range expressions {
		program := m.Cache.GetOrCompile(e)
		if program.Error != nil {
			return false, fmt.Errorf("selector %q: %w", e, program.Error)
		}
		ok, _, err := program.DeviceMatches(context.Background(), cel.Device{
			Driver: driver, AllowMultipleAllocations: d.AllowMultipleAllocations, Attributes: d.Attributes, Capacity: d.Capacity,
		})
		if err != nil {
			return false, fmt.Errorf("selector %q: %w", e, err)
		}
		if !ok {
			return false, nil
		}
	}
	return true, nil
}

// Selects is Matches for a device of the ledger, remembered for as long as its slice stays as it is.
func (m *Matcher) Selects(d *ledger.Device, expressions ...string) (bool, error) {
	return m.Selected(d.Slice, expressions...)(d)
}

// Selected is Selects for devices of one slice.
func (m *Matcher) Selected(s *resourcev1.ResourceSlice, expressions ...string) func(*ledger.Device) (bool, error) {
	known := m.selection(s, expressions)
	return func(d *ledger.Device) (bool, error) {
		o := known.devices[d.ID.Device]
		return o.matches, o.err
	}
}

// Fails returns the index of the first device of a slice on which an expression fails, and its error; nil where none does.
func (m *Matcher) Fails(s *resourcev1.ResourceSlice, expressions ...string) (device int, err error) {
	known := m.selection(s, expressions)
	return known.failed, known.err
}

// selection is what comes of each device of a slice, remembered for as long as that stays as it is.
func (m *Matcher) selection(s *resourcev1.ResourceSlice, expressions []string) *selection {
	key := selectionKey{s.UID, strings.Join(expressions, "\x00")}
	m.mu.Lock()
	known := m.selected[key]
	m.mu.Unlock()
	if known == nil || known.version != s.ResourceVersion {
		spec := &s.Spec
		known = &selection{version: s.ResourceVersion, devices: make(map[string]outcome, len(spec.Devices))}
		for i := range spec.Devices {
			var o outcome
			o.matches, o.err = m.Matches(spec.Driver, &spec.Devices[i], expressions...)
			known.devices[spec.Devices[i].Name] = o
			if known.err == nil && o.err != nil {
				known.err, known.failed = o.err, i
			}
		}
		m.mu.Lock()
		if len(m.selected) >= maxSelections {
			clear(m.selected)
		}
		m.selected[key] = known
		m.mu.Unlock()
	}
	return known
}

// affordable says whether the API server accepts an expression that compiles: its estimated cost is within the limit.
func (m *Matcher) affordable(expression string) bool {
	m.mu.Lock()
	costly, known := m.costly[expression]
	m.mu.Unlock()
	if known {
		return !costly
	}
	result := cel.GetCompiler(features).CompileCELExpression(expression, cel.Options{})
	costly = result.Error != nil || result.MaxCost > resourcev1.CELSelectorExpressionMaxCost
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.costly) >= celCacheSize {
		clear(m.costly)
	}
	m.costly[expression] = costly
	return !costly
}

// FlavorOf returns the index of the first flavor of p that a device belongs to, or -1 for none. A device that fails a
// constraint belongs to none. A selector that fails on a device does not match it.
func (m *Matcher) FlavorOf(p *Policy, d *ledger.Device) int {
	of := m.FlavorsOf(p, d.Slice)
	for i := range d.Slice.Spec.Devices {
		if d.Slice.Spec.Devices[i].Name == d.ID.Device {
			return of[i]
		}
	}
	return -1
}

// FlavorsOf is FlavorOf for every device that a slice lists, in that order. It is read-only.
func (m *Matcher) FlavorsOf(p *Policy, s *resourcev1.ResourceSlice) []int {
	key := memberKey{p.Name, s.UID}
	m.mu.Lock()
	known := m.flavors[key]
	m.mu.Unlock()
	if known == nil || known.revision != p.Revision || known.version != s.ResourceVersion {
		known = &members{revision: p.Revision, version: s.ResourceVersion, flavor: m.resolve(p, s)}
		m.mu.Lock()
		m.flavors[key] = known
		m.mu.Unlock()
	}
	return known.flavor
}

func (m *Matcher) resolve(p *Policy, s *resourcev1.ResourceSlice) []int {
	flavor := make([]int, len(s.Spec.Devices))
	for i := range s.Spec.Devices {
		flavor[i] = -1
		d := &s.Spec.Devices[i]
		if ok, err := m.Matches(s.Spec.Driver, d, p.Constraints...); err != nil || !ok {
			continue
		}
		for f := range p.Flavors {
			if ok, err := m.Matches(s.Spec.Driver, d, p.Flavors[f].Selectors...); err == nil && ok {
				flavor[i] = f
				break
			}
		}
	}
	return flavor
}

// Forget drops what is remembered of slices that are not in keep. Call it now and then with the slices that exist.
func (m *Matcher) Forget(keep func(slice types.UID) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k := range m.flavors {
		if !keep(k.slice) {
			delete(m.flavors, k)
		}
	}
	for k := range m.selected {
		if !keep(k.slice) {
			delete(m.selected, k)
		}
	}
}
