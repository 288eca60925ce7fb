package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/plimsoll-dev/plimsoll/test/lab/internal/supervise"
)

// ErrAlreadyUp says that a lab already runs in a state folder.
var ErrAlreadyUp = errors.New("a lab is already up in this state folder")

// Options say what to start. The zero value is a control plane with Kueue, without Plimsoll, in a temporary folder.
type Options struct {
	// Root is the repository's folder, whose bin/ Build has filled. Empty means found from the working folder.
	Root string
	// StateDir is the lab's own folder; it stays after Stop. Empty means a temporary one, which Stop removes.
	StateDir string
	// Out gets the timeline of the start. Nil means nobody.
	Out io.Writer
	// Release is what Kubernetes to run, as BuildRelease has built it.
	Release Release

	// Plimsoll applies config/default: CRDs, RBAC, policies and webhooks. Those fail closed, so what they guard is
	// refused until a manager runs.
	Plimsoll bool
	// Manager also starts the manager and waits until it is ready. It implies Plimsoll.
	Manager bool
	// ManagerArgs and ManagerEnv (KEY=value) are given to every manager that is started, after the lab's own.
	ManagerArgs []string
	ManagerEnv  []string
	// ManagerBinary is what runs as the manager, an absolute path: whatever is there when one starts. Empty means the one
	// that Build has made.
	ManagerBinary string

	// KueueFeatureGates are set in Kueue's configuration.
	KueueFeatureGates map[string]bool
}

// Lab is a running control plane. Its methods are safe for concurrent use.
type Lab struct {
	options    Options
	root       string
	state      stateDir
	temporary  bool
	timeline   *timeline
	ports      portPool
	endpoints  endpoints
	identities identities
	supervisor *supervise.Client
	components map[string]process
	applier    *applier

	stop    sync.Once
	stopErr error
}

// Start brings a lab up and returns once everything asked for is ready. After an error nothing is left running; the logs
// stay where StateDir says. The context bounds the start only.
func Start(ctx context.Context, options Options) (_ *Lab, err error) {
	l := &Lab{options: options}
	l.options.Plimsoll = options.Plimsoll || options.Manager
	out := options.Out
	if out == nil {
		out = io.Discard
	}
	l.timeline = &timeline{start: time.Now(), out: out}
	if l.root, err = resolveRoot(options.Root); err != nil {
		return nil, err
	}
	if err := l.checkBinaries(); err != nil {
		return nil, err
	}
	if err := l.openState(ctx); err != nil {
		return nil, errors.Join(err, l.removeTemporary())
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Stop())
		}
	}()
	if err := l.reservePorts(); err != nil {
		return nil, err
	}
	if err := l.bringUp(ctx); err != nil {
		return nil, err
	}
	return l, nil
}

// bringUp starts the processes in the order of their needs, with the slow pure work beside it.
func (l *Lab) bringUp(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)

	var kueue, plimsoll []*unstructured.Unstructured
	certified := make(chan struct{})
	rendered := make(chan struct{})
	group.Go(func() error {
		if err := l.certify(); err != nil {
			return err
		}
		close(certified)
		var err error
		if kueue, err = l.kueueObjects(); err != nil {
			return err
		}
		if l.options.Plimsoll {
			if plimsoll, err = l.plimsollObjects(); err != nil {
				return err
			}
		}
		close(rendered)
		return nil
	})
	group.Go(func() error {
		if err := l.startAndWait(ctx, Etcd); err != nil {
			return err
		}
		if err := await(ctx, certified); err != nil {
			return err
		}
		if err := l.startAndWait(ctx, APIServer); err != nil {
			return err
		}
		if err := await(ctx, rendered); err != nil {
			return err
		}
		if err := l.applier.applyAll(ctx, kueue); err != nil {
			return fmt.Errorf("install Kueue: %w", err)
		}
		l.timeline.step("Kueue installed")
		if l.options.Plimsoll {
			if err := l.applier.applyAll(ctx, plimsoll); err != nil {
				return fmt.Errorf("install Plimsoll: %w", err)
			}
			l.timeline.step("Plimsoll installed")
		}
		// The garbage collector looks for new kinds every 30 s. One that starts before the CRDs are there would leave the
		// Workloads of deleted Jobs lying, and with them their quota after a restart of Kueue.
		for _, name := range []string{Kueue, ControllerManager, Scheduler, KWOK} {
			if err := l.start(ctx, name); err != nil {
				return err
			}
		}
		for _, name := range []string{ControllerManager, Scheduler, KWOK, Kueue} {
			if err := l.waitReady(ctx, name); err != nil {
				return err
			}
		}
		if l.options.Manager {
			return l.StartManager(ctx)
		}
		return nil
	})
	return group.Wait()
}

func await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// checkBinaries gives the advice that a missing file alone would not.
func (l *Lab) checkBinaries() error {
	names := []string{"lab", Etcd, APIServer, ControllerManager, Scheduler, KWOK, Kueue, kueueManifests}
	if l.options.Manager {
		names = append(names, Manager)
	}
	for _, name := range names {
		if _, err := os.Stat(l.binary(name)); err != nil {
			command := "go run ./test/lab/cmd/lab build"
			if l.options.Release != Current {
				command += " --release=" + string(l.options.Release)
			}
			return fmt.Errorf("%s is not built; run %q: %w", name, command, err)
		}
	}
	return nil
}

// openState starts the supervisor, which locks the state folder, and only then empties the folder.
func (l *Lab) openState(ctx context.Context) error {
	dir := l.options.StateDir
	if dir == "" {
		made, err := os.MkdirTemp("", "plimsoll-lab-")
		if err != nil {
			return fmt.Errorf("make state folder: %w", err)
		}
		dir, l.temporary = made, true
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("make state folder: %w", err)
	}
	l.state = stateDir(dir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make state folder: %w", err)
	}
	if _, held, err := supervise.Holder(l.state.lock()); err != nil {
		return fmt.Errorf("open state: %w", err)
	} else if held {
		return fmt.Errorf("%s: %w", dir, ErrAlreadyUp)
	}
	argv := []string{l.binary("lab"), "supervise", l.state.lock()}
	l.supervisor, err = supervise.Launch(ctx, argv, l.state.supervisorLog())
	if err != nil {
		return fmt.Errorf("start supervisor (see %s): %w", l.state.supervisorLog(), err)
	}
	if err := l.state.reset(); err != nil {
		return errors.Join(err, l.supervisor.Close())
	}
	return nil
}

func (l *Lab) binary(name string) string {
	if name == Manager && l.options.ManagerBinary != "" {
		return l.options.ManagerBinary
	}
	return filepath.Join(l.root, "bin", l.options.Release.folder(name), name)
}

// Stop ends every process of the lab in bounded time, and removes the state folder if it was a temporary one. Further
// calls return the first one's result.
func (l *Lab) Stop() error {
	l.stop.Do(func() {
		l.ports.releaseAll()
		l.stopErr = errors.Join(l.supervisor.Close(), l.removeTemporary())
	})
	return l.stopErr
}

func (l *Lab) removeTemporary() error {
	if !l.temporary {
		return nil
	}
	if err := os.RemoveAll(string(l.state)); err != nil {
		return fmt.Errorf("remove state: %w", err)
	}
	return nil
}

// Detach leaves the lab running after this process has ended; Down stops it.
func (l *Lab) Detach(ctx context.Context) error {
	return l.supervisor.Detach(ctx)
}

// StateDir is the lab's own folder.
func (l *Lab) StateDir() string { return string(l.state) }

// PIDs returns the process ids of all that runs, by component; the supervisor is one of them.
func (l *Lab) PIDs() map[string]int {
	pids := l.supervisor.PIDs()
	pids["supervisor"] = l.supervisor.PID()
	return pids
}
