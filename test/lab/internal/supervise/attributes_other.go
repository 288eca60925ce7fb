//go:build unix && !linux

package supervise

import "syscall"

// childAttributes puts a child into a process group of its own. There is no parent-death signal here: children outlive
// a supervisor that is killed.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
