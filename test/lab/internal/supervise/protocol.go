// Package supervise runs processes under one parent, the supervisor, which ends them when whoever asked for them goes
// away, however it goes.
//
// The supervisor reads requests from its standard input, one JSON object a line, and answers on its standard output.
// When its input ends (the asking process exited, or was killed and the kernel closed the pipe) it stops every child in
// bounded time and exits. Should the supervisor itself be killed, Linux ends the children through the parent-death
// signal. It restarts nothing: a process that exits is reported and stays down.
package supervise

import (
	"fmt"
	"syscall"
	"time"
)

// Spec describes one process.
type Spec struct {
	Name string   `json:"name"` // unique among the running processes of a supervisor
	Path string   `json:"path"`
	Args []string `json:"args"`          // without the program itself
	Env  []string `json:"env"`           // the whole environment, KEY=value
	Dir  string   `json:"dir,omitempty"` // working folder; empty means the supervisor's
	Log  string   `json:"log"`           // file that standard output and error are appended to

	// Tier orders an orderly stop: processes of the highest tier stop first, together.
	Tier int `json:"tier"`
	// Grace is how long the process may take between SIGTERM and SIGKILL.
	Grace time.Duration `json:"grace"`
}

// Exit says how a process ended.
type Exit struct {
	Name   string         `json:"name"`
	PID    int            `json:"pid"`
	Code   int            `json:"code"`             // exit code, -1 when ended by a signal
	Signal syscall.Signal `json:"signal,omitempty"` // the signal that ended it, 0 when it exited
}

// String is the exit as a person would say it: "exit code 1", "signal: killed".
func (e Exit) String() string {
	if e.Signal != 0 {
		return fmt.Sprintf("signal: %v", e.Signal)
	}
	return fmt.Sprintf("exit code %d", e.Code)
}

type op string

const (
	opPing   op = "ping" // answered once the supervisor is up
	opStart  op = "start"
	opSignal op = "signal"
	opStop   op = "stop"
	opDetach op = "detach"
)

// request is one line to the supervisor.
type request struct {
	ID     int            `json:"id"`
	Op     op             `json:"op"`
	Spec   *Spec          `json:"spec,omitempty"`   // opStart
	Name   string         `json:"name,omitempty"`   // opSignal, opStop
	Signal syscall.Signal `json:"signal,omitempty"` // opSignal
}

// message is one line from the supervisor: the answer to a request (ID set), or news of an exit (Exit set).
type message struct {
	ID    int    `json:"id,omitempty"`
	PID   int    `json:"pid,omitempty"`
	Error string `json:"error,omitempty"`
	Exit  *Exit  `json:"exit,omitempty"`
}
