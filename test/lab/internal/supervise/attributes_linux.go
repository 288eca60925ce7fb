package supervise

import "syscall"

// childAttributes puts a child into a process group of its own, so that an interrupt typed at a terminal reaches only
// the command in front, and has the kernel kill it when the supervisor dies without stopping it.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
