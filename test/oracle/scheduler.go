package oracle

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"

	"github.com/plimsoll-dev/plimsoll/test/oracle/world"
)

// Scheduler is the real kube-scheduler in a process of its own. One goroutine may Tell and another Answer; neither is safe for
// more.
type Scheduler struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	encoder *json.Encoder
	decoder *json.Decoder
	said    bytes.Buffer
}

// patience is how long its output is waited for after it was stopped.
const patience = 10 * time.Second

// Start builds the command kubescheduler, unless that was done before, and starts it. It runs in the module's folder, where
// tests of this package run.
func Start(ctx context.Context) (*Scheduler, error) {
	s := &Scheduler{cmd: exec.CommandContext(ctx, "go", "run", "./kubescheduler")}
	in, err := s.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start kubescheduler: %w", err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start kubescheduler: %w", err)
	}
	s.in, s.encoder, s.decoder = in, json.NewEncoder(in), json.NewDecoder(out)
	s.cmd.Stderr = &s.said
	s.cmd.WaitDelay = patience
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start kubescheduler: %w", err)
	}
	return s, nil
}

// Tell gives it a world. It may block until earlier ones were answered.
func (s *Scheduler) Tell(w *world.World) error {
	if err := s.encoder.Encode(w); err != nil {
		return fmt.Errorf("tell kubescheduler: %w", err)
	}
	return nil
}

// Answer returns its answer to the first world that it was not yet asked for.
func (s *Scheduler) Answer() (world.Answer, error) {
	var a world.Answer
	if err := s.decoder.Decode(&a); err != nil {
		return a, fmt.Errorf("ask kubescheduler: %w", err)
	}
	if a.Error != "" {
		return a, fmt.Errorf("ask kubescheduler: %s", a.Error)
	}
	return a, nil
}

// Close lets it end after the worlds that it was told, and waits for that.
func (s *Scheduler) Close() error {
	err := s.in.Close()
	if ended := s.cmd.Wait(); ended != nil {
		err = errors.Join(err, fmt.Errorf("kubescheduler: %w\n%s", ended, s.said.String()))
	}
	return err
}
