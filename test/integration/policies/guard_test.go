package policies

import (
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// runVariable marks every process of one run of this test binary, which they inherit; guardVariable makes the binary the
// guard of such a run.
const (
	runVariable   = "PLIMSOLL_POLICIES_TEST_RUN"
	guardVariable = "PLIMSOLL_POLICIES_TEST_GUARD"
)

// lifeline is the guard's input. It is closed by the end of this process and by nothing before.
var lifeline io.WriteCloser

// startGuard starts a process that ends what this run starts, should this process end without doing so: by a panic, a
// timeout or a signal. It learns of that by the end of its input. Where there is no /proc it does nothing.
func startGuard() error {
	run := rand.Text()
	if err := os.Setenv(runVariable, run); err != nil {
		return err
	}
	guard := exec.Command(os.Args[0])
	guard.Env = append(os.Environ(), guardVariable+"="+run)
	guard.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt at the terminal is not for it
	var err error
	if lifeline, err = guard.StdinPipe(); err != nil {
		return err
	}
	if err := guard.Start(); err != nil {
		return fmt.Errorf("start guard: %w", err)
	}
	return nil
}

// guardRun waits for the end of its input and then kills what is left of a run.
func guardRun(run string) {
	_, _ = io.Copy(io.Discard, os.Stdin)
	mark := runVariable + "=" + run
	environments, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range environments {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil || pid == os.Getpid() {
			continue
		}
		// A process that has gone meanwhile, or is somebody else's, can't be read.
		if data, err := os.ReadFile(file); err == nil && strings.Contains("\x00"+string(data)+"\x00", "\x00"+mark+"\x00") {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}
