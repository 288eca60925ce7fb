package flavors

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
)

// maxVariants bounds in how many ways the alternatives of a pod's requests can be combined.
const maxVariants = 64

// Shape is what one pod of a podset asks for in devices. It is read-only.
type Shape struct {
	// Claims are in the order of the pod's spec.resourceClaims; empty where it has none.
	Claims []ClaimShape
	// Plain holds the extended resources that the containers ask for, as kube-scheduler counts them for one pod; nil for
	// none. Which of them are devices is for a Policy to say.
	Plain map[corev1.ResourceName]int64
}

// ClaimShape is one claim of a pod, made from a template.
type ClaimShape struct {
	// Name is that in the pod's spec.resourceClaims.
	Name string
	// Template is the user's template.
	Template string
	// Spec is the template's claim spec.
	Spec resourcev1.ResourceClaimSpec
	// Requests are those of Spec, in its order.
	Requests []RequestShape
}

// RequestShape is one request of a claim.
type RequestShape struct {
	Name string
	// Alternatives are in the user's order of preference: the subrequests of firstAvailable, or the one of exactly.
	Alternatives []Alternative
}

// Alternative is one way to serve a request.
type Alternative struct {
	// Sub is the subrequest's name in firstAvailable; empty for exactly.
	Sub string
	// Class is the DeviceClass.
	Class string
	// Count is how many devices it takes, at least 1.
	Count int64
	// Selectors are the user's own CEL expressions.
	Selectors   []string
	Tolerations []resourcev1.DeviceToleration
}

// Variant is one choice of alternative for each request of a Shape: its index, by request, in the order of the claims
// and of the requests in each.
type Variant []int

// Chosen is one request of a Shape as a Variant has it.
type Chosen struct {
	// Claim and Request are indices into the Shape.
	Claim, Request int
	// Name is the request's name, or request/subrequest.
	Name string
	Alternative
}

// Variants returns every choice of alternatives that a claim's limit of devices allows, in the user's order of
// preference: the first request's order counts most. A Shape without claims has one, which is empty.
func (s Shape) Variants() []Variant {
	variants := []Variant{{}}
	for _, c := range s.Claims {
		for _, r := range c.Requests {
			var longer []Variant
			for _, v := range variants {
				for a := range r.Alternatives {
					longer = append(longer, append(slices.Clone(v), a))
				}
			}
			variants = longer
		}
	}
	return slices.DeleteFunc(variants, func(v Variant) bool {
		devices := make([]int64, len(s.Claims))
		return slices.ContainsFunc(s.Chosen(v), func(r Chosen) bool {
			devices[r.Claim] += r.Count
			return devices[r.Claim] > resourcev1.AllocationResultsMaxSize
		})
	})
}

// Chosen returns the requests of a Shape as a Variant has them, in order. A Variant of another Shape gives nil.
func (s Shape) Chosen(v Variant) []Chosen {
	var out []Chosen
	for c := range s.Claims {
		for r := range s.Claims[c].Requests {
			request := &s.Claims[c].Requests[r]
			if len(out) >= len(v) || v[len(out)] >= len(request.Alternatives) {
				return nil
			}
			a := request.Alternatives[v[len(out)]]
			out = append(out, Chosen{Claim: c, Request: r, Name: a.name(request.Name), Alternative: a})
		}
	}
	return out
}

func (a Alternative) name(request string) string {
	if a.Sub == "" {
		return request
	}
	return request + "/" + a.Sub
}

// Devices returns how many devices one pod asks for by claim, as a Variant has it.
func (s Shape) Devices(v Variant) int64 {
	var n int64
	for _, r := range s.Chosen(v) {
		n += r.Count
	}
	return n
}

// AlternativeOf names the subrequests that a Variant has chosen, as request/subrequest, joined by commas; empty where
// no request has any.
func (s Shape) AlternativeOf(v Variant) string {
	var names []string
	for _, r := range s.Chosen(v) {
		if r.Sub != "" {
			names = append(names, r.Name)
		}
	}
	return strings.Join(names, ",")
}

// SpecOf returns the spec of one claim as a Variant has it: each firstAvailable holds the chosen subrequest alone.
func (s Shape) SpecOf(v Variant, claim int) resourcev1.ResourceClaimSpec {
	c := &s.Claims[claim]
	choice := make([]int, 0, len(c.Requests))
	for _, r := range s.Chosen(v) {
		if r.Claim == claim {
			choice = append(choice, slices.IndexFunc(c.Requests[r.Request].Alternatives, func(a Alternative) bool { return a.Sub == r.Sub }))
		}
	}
	return c.cut(choice)
}

// Find returns the indices of a request and its alternative by the name that a promise gives them: request, or
// request/subrequest. ok is false where the claim has none of that name.
func (c *ClaimShape) Find(name string) (request, alternative int, ok bool) {
	for r := range c.Requests {
		for a := range c.Requests[r].Alternatives {
			if c.Requests[r].Alternatives[a].name(c.Requests[r].Name) == name {
				return r, a, true
			}
		}
	}
	return 0, 0, false
}

// cut returns the claim's spec with the chosen subrequest of each firstAvailable alone, and the API server's defaults.
// Constraints and configuration stay for the requests and subrequests that are left.
func (c *ClaimShape) cut(choice []int) resourcev1.ResourceClaimSpec {
	spec := *c.Spec.DeepCopy()
	gone := map[string]bool{}
	for i := range spec.Devices.Requests {
		r := &spec.Devices.Requests[i]
		if e := r.Exactly; e != nil {
			e.AllocationMode, e.Count = resourcev1.DeviceAllocationModeExactCount, max(1, e.Count)
		}
		if len(r.FirstAvailable) == 0 {
			continue
		}
		for a := range r.FirstAvailable {
			gone[r.Name+"/"+r.FirstAvailable[a].Name] = a != choice[i]
		}
		r.FirstAvailable = r.FirstAvailable[choice[i] : choice[i]+1]
		sub := &r.FirstAvailable[0]
		sub.AllocationMode, sub.Count = resourcev1.DeviceAllocationModeExactCount, max(1, sub.Count)
	}
	// An empty list means every request, so what names only subrequests that are gone goes as a whole.
	left := func(names []string) ([]string, bool) {
		if len(names) == 0 {
			return names, true
		}
		names = slices.DeleteFunc(names, func(n string) bool { return gone[n] })
		return names, len(names) > 0
	}
	constraints, config := spec.Devices.Constraints, spec.Devices.Config
	spec.Devices.Constraints, spec.Devices.Config = nil, nil
	for _, x := range constraints {
		var ok bool
		if x.Requests, ok = left(x.Requests); ok {
			spec.Devices.Constraints = append(spec.Devices.Constraints, x)
		}
	}
	for _, x := range config {
		var ok bool
		if x.Requests, ok = left(x.Requests); ok {
			spec.Devices.Config = append(spec.Devices.Config, x)
		}
	}
	return spec
}
