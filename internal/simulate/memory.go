package simulate

import (
	"os"
	"runtime/debug"
)

// What a run keeps for good is small beside what it makes and drops: it is swept less often than Go does by itself, as long as
// there is memory for that.
const (
	sweepAt = 300 // percent
	enough  = 896 << 20
)

// Relax has this process, which is to do nothing but simulate, sweep its memory less often. Who has set GOGC or GOMEMLIMIT has said
// how often.
func Relax() {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(sweepAt)
		debug.SetMemoryLimit(enough)
	}
}
