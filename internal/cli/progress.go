package cli

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// progressEvery is how often a line of progress is written at most.
const progressEvery = 500 * time.Millisecond

// progress shows on one line of a terminal how far a run has come, and is silent elsewhere. It may be called from one
// goroutine and ended from another.
type progress struct {
	out  io.Writer // nil where nothing is shown
	now  func() time.Time
	name string // of the run, or nothing

	mu    sync.Mutex
	last  time.Time
	shown bool
	ended bool
}

// newProgress shows progress on stderr if it is a terminal.
func newProgress(stderr io.Writer, now func() time.Time) *progress {
	if !isTerminal(stderr) {
		stderr = nil
	}
	return &progress{out: stderr, now: now}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// tell shows that the run has come to a time, and has done so many of all workloads.
func (p *progress) tell(at time.Duration, done, total int) {
	if p.out == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if p.ended || p.shown && now.Sub(p.last) < progressEvery {
		return
	}
	p.last, p.shown = now, true
	fmt.Fprintf(p.out, "\r\x1b[K%sat %s, %d of %d workloads done", p.name, at.Truncate(time.Second), done, total)
}

// end takes the line away. Nothing is shown after it.
func (p *progress) end() {
	if p.out == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown && !p.ended {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
	p.ended = true
}
