package supervise

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// closeWait bounds Close. It is longer than any orderly stop that the supervisor allows itself.
const closeWait = 60 * time.Second

// ErrSupervisorGone says that the supervisor ended, and its children with it.
var ErrSupervisorGone = errors.New("supervisor is gone")

// Client talks to a supervisor that this process started. Safe for concurrent use.
type Client struct {
	cmd   *exec.Cmd
	pid   int
	stdin io.WriteCloser
	gone  chan struct{} // closed when the supervisor's output ended

	closing  sync.Once
	closeErr error

	mu        sync.Mutex
	nextID    int
	asked     map[int]question
	processes map[string]*process // the latest of each name, ended ones too
}

// question is a request that waits for its answer.
type question struct {
	name   string
	answer chan message // holds one
}

type process struct {
	pid  int
	done chan struct{}
	exit Exit // set before done is closed
}

// Launch starts a supervisor and waits until it answers: argv is the command that ends up in Serve. Its standard error is
// appended to the file log. It runs in a session of its own and stops its children when this process ends, in whatever
// way.
func Launch(ctx context.Context, argv []string, log string) (*Client, error) {
	stderr, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open supervisor log: %w", err)
	}
	defer stderr.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr = stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("supervisor input: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("supervisor output: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start supervisor: %w", err)
	}
	c := &Client{
		cmd:       cmd,
		pid:       cmd.Process.Pid,
		stdin:     stdin,
		gone:      make(chan struct{}),
		asked:     map[int]question{},
		processes: map[string]*process{},
	}
	go c.read(stdout)
	if _, err := c.ask(ctx, request{Op: opPing}); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// PID is the supervisor's own process id.
func (c *Client) PID() int { return c.pid }

func (c *Client) read(stdout io.Reader) {
	defer close(c.gone)
	decoder := json.NewDecoder(bufio.NewReader(stdout))
	for {
		var m message
		if err := decoder.Decode(&m); err != nil {
			return
		}
		c.receive(m)
	}
}

func (c *Client) receive(m message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.Exit != nil {
		if p := c.processes[m.Exit.Name]; p != nil && p.pid == m.Exit.PID {
			p.exit = *m.Exit
			close(p.done)
		}
		return
	}
	q, ok := c.asked[m.ID]
	if !ok {
		return
	}
	delete(c.asked, m.ID)
	if m.PID != 0 {
		// Noted here, not by the asker: the next message may be the exit of this very process.
		c.processes[q.name] = &process{pid: m.PID, done: make(chan struct{})}
	}
	q.answer <- m
}

func (c *Client) ask(ctx context.Context, r request) (message, error) {
	name := r.Name
	if r.Spec != nil {
		name = r.Spec.Name
	}
	q := question{name: name, answer: make(chan message, 1)}
	c.mu.Lock()
	c.nextID++
	r.ID = c.nextID
	c.asked[r.ID] = q
	err := json.NewEncoder(c.stdin).Encode(r)
	c.mu.Unlock()
	if err != nil {
		return message{}, fmt.Errorf("%s %s: %w: %w", r.Op, name, ErrSupervisorGone, err)
	}
	select {
	case m := <-q.answer:
		if m.Error != "" {
			return m, fmt.Errorf("%s %s: %s", r.Op, name, m.Error)
		}
		return m, nil
	case <-c.gone:
		return message{}, fmt.Errorf("%s %s: %w", r.Op, name, ErrSupervisorGone)
	case <-ctx.Done():
		return message{}, fmt.Errorf("%s %s: %w", r.Op, name, ctx.Err())
	}
}

// Start starts a process and returns its id. A process of that name that still runs is an error.
func (c *Client) Start(ctx context.Context, spec Spec) (int, error) {
	m, err := c.ask(ctx, request{Op: opStart, Spec: &spec})
	return m.PID, err
}

// Signal sends sig to the named process.
func (c *Client) Signal(ctx context.Context, name string, sig syscall.Signal) error {
	_, err := c.ask(ctx, request{Op: opSignal, Name: name, Signal: sig})
	return err
}

// Stop ends the named process with SIGTERM, or SIGKILL after its grace, and waits until it is gone.
func (c *Client) Stop(ctx context.Context, name string) (Exit, error) {
	if _, err := c.ask(ctx, request{Op: opStop, Name: name}); err != nil {
		return Exit{}, err
	}
	return c.Wait(ctx, name)
}

// Wait waits until the latest process of that name has ended; it returns at once if it did long ago.
func (c *Client) Wait(ctx context.Context, name string) (Exit, error) {
	c.mu.Lock()
	p := c.processes[name]
	c.mu.Unlock()
	if p == nil {
		return Exit{}, fmt.Errorf("%s was never started", name)
	}
	select {
	case <-p.done:
		return p.exit, nil
	case <-c.gone:
		return Exit{}, fmt.Errorf("wait for %s: %w", name, ErrSupervisorGone)
	case <-ctx.Done():
		return Exit{}, fmt.Errorf("wait for %s: %w", name, ctx.Err())
	}
}

// Running returns the id of the named process, and false when it does not run.
func (c *Client) Running(name string) (int, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.processes[name]
	if p == nil {
		return 0, false
	}
	select {
	case <-p.done:
		return 0, false
	case <-c.gone:
		return 0, false
	default:
		return p.pid, true
	}
}

// PIDs returns the ids of all running processes by name.
func (c *Client) PIDs() map[string]int {
	c.mu.Lock()
	names := make([]string, 0, len(c.processes))
	for name := range c.processes {
		names = append(names, name)
	}
	c.mu.Unlock()
	pids := map[string]int{}
	for _, name := range names {
		if pid, ok := c.Running(name); ok {
			pids[name] = pid
		}
	}
	return pids
}

// Detach makes the supervisor outlive this process. From then on only SIGTERM ends it.
func (c *Client) Detach(ctx context.Context) error {
	_, err := c.ask(ctx, request{Op: opDetach})
	return err
}

// Close makes the supervisor stop every child and waits until it has ended. Further calls return the first one's result.
func (c *Client) Close() error {
	c.closing.Do(func() { c.closeErr = c.close() })
	return c.closeErr
}

func (c *Client) close() error {
	c.mu.Lock()
	err := c.stdin.Close()
	c.mu.Unlock()
	if err != nil {
		return fmt.Errorf("close supervisor input: %w", err)
	}
	overdue := time.AfterFunc(closeWait, func() { _ = c.cmd.Process.Kill() })
	defer overdue.Stop()
	<-c.gone // all output is read before Wait closes the pipe
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("supervisor: %w", err)
	}
	return nil
}
