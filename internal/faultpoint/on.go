//go:build faultpoints

package faultpoint

import (
	"os"
	"syscall"

	"github.com/go-logr/logr"
)

// Env names the point at which the process kills itself.
const Env = "PLIMSOLL_FAULTPOINT"

// Reach kills the process, as kill -9 would, where the environment names this point.
func Reach(log logr.Logger, point string) {
	if os.Getenv(Env) != point {
		return
	}
	log.Info("Reached fault point", "point", point)
	if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
		log.Error(err, "Did not die at fault point", "point", point)
	}
	select {}
}
