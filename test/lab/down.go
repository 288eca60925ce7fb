package lab

import (
	"context"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	"github.com/plimsoll-dev/plimsoll/test/lab/internal/supervise"
)

const (
	downPoll = 50 * time.Millisecond
	// downTimeout is longer than the supervisor's orderly stop can take.
	downTimeout = 60 * time.Second
)

// Running says whether a lab runs in a state folder.
func Running(state string) (bool, error) {
	_, held, err := supervise.Holder(stateDir(state).lock())
	return held, err
}

// Kubeconfig is the administrator's kubeconfig of the lab in a state folder.
func Kubeconfig(state string) string { return stateDir(state).kubeconfig() }

// Down stops the lab in a state folder and waits until all of it is gone. It returns false when there was none.
func Down(ctx context.Context, state string) (bool, error) {
	state, err := filepath.Abs(state)
	if err != nil {
		return false, fmt.Errorf("find state folder: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, downTimeout)
	defer cancel()
	told := 0
	for {
		pid, held, err := supervise.Holder(stateDir(state).lock())
		if err != nil {
			return false, fmt.Errorf("stop lab: %w", err)
		}
		if !held {
			return told != 0, nil
		}
		if pid != told && pid != 0 {
			if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
				return false, fmt.Errorf("stop supervisor %d: %w", pid, err)
			}
			told = pid
		}
		select {
		case <-ctx.Done():
			return false, fmt.Errorf("wait for supervisor %d to end: %w", pid, ctx.Err())
		case <-time.After(downPoll):
		}
	}
}
