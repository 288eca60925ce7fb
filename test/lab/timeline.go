package lab

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// timeline prints the steps of a start with the milliseconds since it began. Safe for concurrent use.
type timeline struct {
	mu    sync.Mutex
	start time.Time
	out   io.Writer
}

func (t *timeline) step(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.out, "%6d ms  %s\n", time.Since(t.start).Milliseconds(), fmt.Sprintf(format, args...))
}
