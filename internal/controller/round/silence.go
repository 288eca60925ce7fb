package round

import (
	"time"

	"github.com/plimsoll-dev/plimsoll/pkg/admission"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
)

// listen takes in how long the watches were silent. Where that makes accounts stale that were fresh when a round looked last,
// or fresh that were stale, by the window of any policy that was looked at, everything is decided anew.
func (e *Engine) listen(now time.Time) admission.Heard {
	if e.Heard == nil {
		return admission.Heard{}
	}
	heard := e.Heard()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.turned(heard, now) {
		e.inputs++
	}
	return heard
}

// turned says whether accounts turned stale or fresh since a round looked last. The lock is held.
func (e *Engine) turned(heard admission.Heard, now time.Time) bool {
	for window, deaf := range e.deaf {
		if heard.Deaf(now, window) != deaf {
			return true
		}
	}
	return false
}

// Turned says whether a round is due because the accounts turned stale or fresh by themselves. Nothing else tells that a watch
// fell silent; it is cheap, to be asked every second.
func (e *Engine) Turned() bool {
	if e.Heard == nil {
		return false
	}
	heard, now := e.Heard(), e.Clock.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.turned(heard, now)
}

// looked keeps, by the windows of the policies of all Workloads for which anything was to be done, whether a round found the
// accounts stale.
func (r *round) looked() {
	deaf := map[time.Duration]bool{}
	for _, m := range r.queues {
		if m != nil && m.Policy != nil {
			window := admission.Window(m.Policy)
			deaf[window] = r.heard.Deaf(r.now, window)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Engine.deaf = deaf
}

// stale says why nothing may be decided by a policy on the accounts; empty where it may.
func (r *round) stale(p *flavors.Policy) string {
	if p == nil {
		return ""
	}
	return r.heard.Stale(r.now, p)
}
