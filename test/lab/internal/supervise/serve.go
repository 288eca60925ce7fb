package supervise

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// killWait bounds the wait for a process that was sent SIGKILL; only one stuck in the kernel takes longer.
const killWait = 5 * time.Second

// Serve is the supervisor. It returns after in ended or SIGTERM or SIGINT arrived, with every child gone; a child
// that outlived SIGKILL is an error.
//
// Serve keeps its goroutine's thread locked for ever, since Linux delivers the parent-death signal when the thread
// that started a child ends, not the process. Call it from the main goroutine.
func Serve(in io.Reader, out io.Writer) error {
	runtime.LockOSThread()
	signal.Ignore(syscall.SIGPIPE, syscall.SIGHUP) // the reader of out may be gone
	terminate := make(chan os.Signal, 1)
	signal.Notify(terminate, syscall.SIGTERM, syscall.SIGINT)

	s := &server{
		out:      json.NewEncoder(out),
		children: map[string]*child{},
		exits:    make(chan exited),
	}
	requests := make(chan request)
	go readRequests(in, requests)

	detached := false
	for {
		select {
		case <-terminate:
			return s.shutdown()
		case e := <-s.exits:
			s.reap(e)
		case r, ok := <-requests:
			switch {
			case ok && r.Op == opDetach:
				detached = true
				s.send(message{ID: r.ID})
			case ok:
				s.send(s.handle(r))
			case detached:
				requests = nil // nobody asks any more; SIGTERM ends it
			default:
				return s.shutdown()
			}
		}
	}
}

// readRequests closes requests when in ends or says something unreadable.
func readRequests(in io.Reader, requests chan<- request) {
	defer close(requests)
	decoder := json.NewDecoder(bufio.NewReader(in))
	for {
		var r request
		if err := decoder.Decode(&r); err != nil {
			return
		}
		requests <- r
	}
}

type child struct {
	spec Spec
	cmd  *exec.Cmd
	kill *time.Timer // set once the child was told to stop
}

type exited struct {
	child *child
	err   error
}

// server is owned by Serve's loop; only exits is written from elsewhere.
type server struct {
	out      *json.Encoder
	children map[string]*child
	exits    chan exited
}

// send ignores errors: when the reader is gone, the end of the input says so.
func (s *server) send(m message) { _ = s.out.Encode(m) }

func (s *server) handle(r request) message {
	m := message{ID: r.ID}
	var err error
	switch r.Op {
	case opPing:
	case opStart:
		m.PID, err = s.start(r.Spec)
	case opSignal:
		err = s.signal(r.Name, r.Signal)
	case opStop:
		if c := s.children[r.Name]; c != nil {
			c.stop()
		} else {
			err = fmt.Errorf("%s is not running", r.Name)
		}
	default:
		err = fmt.Errorf("unknown operation %q", r.Op)
	}
	if err != nil {
		m.Error = err.Error()
	}
	return m
}

func (s *server) start(spec *Spec) (int, error) {
	if spec == nil || spec.Name == "" {
		return 0, errors.New("start without a process")
	}
	if s.children[spec.Name] != nil {
		return 0, fmt.Errorf("%s is already running", spec.Name)
	}
	log, err := os.OpenFile(spec.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, fmt.Errorf("open log: %w", err)
	}
	defer log.Close()

	cmd := exec.Command(spec.Path, spec.Args...)
	cmd.Env, cmd.Dir = spec.Env, spec.Dir
	if cmd.Env == nil {
		cmd.Env = []string{} // nil would mean the supervisor's own
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = childAttributes()
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	c := &child{spec: *spec, cmd: cmd}
	s.children[spec.Name] = c
	go func() { s.exits <- exited{child: c, err: cmd.Wait()} }()
	return cmd.Process.Pid, nil
}

func (s *server) signal(name string, sig syscall.Signal) error {
	c := s.children[name]
	if c == nil {
		return fmt.Errorf("%s is not running", name)
	}
	return c.cmd.Process.Signal(sig)
}

// stop asks the child to end, and kills it when its grace is over. Further calls do nothing.
func (c *child) stop() {
	if c.kill != nil {
		return
	}
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	c.kill = time.AfterFunc(c.spec.Grace, func() { _ = c.cmd.Process.Kill() })
}

func (s *server) reap(e exited) {
	c := e.child
	if c.kill != nil {
		c.kill.Stop()
	}
	delete(s.children, c.spec.Name)
	exit := Exit{Name: c.spec.Name, PID: c.cmd.Process.Pid, Code: c.cmd.ProcessState.ExitCode()}
	if status, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		exit.Signal = status.Signal()
	}
	s.send(message{Exit: &exit})
}

// shutdown stops the children tier by tier, from the highest down.
func (s *server) shutdown() error {
	for len(s.children) > 0 {
		tier := s.highestTier()
		var grace time.Duration
		for _, c := range s.children {
			if c.spec.Tier == tier {
				c.stop()
				grace = max(grace, c.spec.Grace)
			}
		}
		deadline := time.After(grace + killWait)
		for len(s.children) > 0 && s.highestTier() == tier {
			select {
			case e := <-s.exits:
				s.reap(e)
			case <-deadline:
				return fmt.Errorf("tier %d did not end: %d processes left", tier, len(s.children))
			}
		}
	}
	return nil
}

func (s *server) highestTier() int {
	tier := 0
	for _, c := range s.children {
		tier = max(tier, c.spec.Tier)
	}
	return tier
}
