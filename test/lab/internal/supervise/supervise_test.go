package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// roleVariable makes this test binary play a part of a test instead of running tests.
const roleVariable = "PLIMSOLL_TEST_ROLE"

const patience = 20 * time.Second

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "":
		os.Exit(m.Run())
	case "supervisor":
		if err := Serve(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case "obedient":
		hang()
	case "tidy": // says when it was asked to end
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGTERM)
		fmt.Println("ready")
		<-asked
		fmt.Println("ended", time.Now().UnixNano())
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		hang()
	case "failing":
		os.Exit(3)
	}
}

// hang waits for a signal that nobody sends; an empty select would be reported as a deadlock.
func hang() {
	never := make(chan os.Signal, 1)
	signal.Notify(never, syscall.SIGUSR1)
	fmt.Println("ready")
	<-never
}

func launch(t *testing.T) *Client {
	t.Helper()
	t.Setenv(roleVariable, "supervisor")
	c, err := Launch(t.Context(), []string{os.Args[0]}, filepath.Join(t.TempDir(), "supervisor.log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // fails where the test killed the supervisor
	return c
}

// run starts this test binary as a child in a role and waits until it says that it is ready.
func run(t *testing.T, c *Client, role string, spec Spec) (pid int, log string) {
	t.Helper()
	log = filepath.Join(t.TempDir(), spec.Name+".log")
	spec.Path, spec.Env, spec.Log = os.Args[0], []string{roleVariable + "=" + role}, log
	pid, err := c.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if role != "failing" {
		eventually(t, spec.Name+" ready", func() bool {
			data, _ := os.ReadFile(log)
			return strings.HasPrefix(string(data), "ready\n")
		})
	}
	return pid, log
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", patience, what)
		}
		<-tick.C
	}
}

// signalSupervisor refuses what kill(2) would take for a group of processes, or for all of them.
func signalSupervisor(t *testing.T, c *Client, sig syscall.Signal) {
	t.Helper()
	if c.PID() <= 1 {
		t.Fatalf("the supervisor's process id is %d", c.PID())
	}
	if err := syscall.Kill(c.PID(), sig); err != nil {
		t.Error(err)
	}
}

// alive counts zombies as dead: their parent may be slow to look.
func alive(pid int) bool {
	if pid <= 1 || syscall.Kill(pid, 0) != nil {
		return false
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return runtime.GOOS != "linux"
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	return !strings.HasPrefix(rest, "Z")
}

func TestProcessesEndWithTheirSupervisor(t *testing.T) {
	ends := map[string]func(t *testing.T, c *Client){
		"when its input ends": func(t *testing.T, c *Client) {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		},
		"when it is asked to terminate": func(t *testing.T, c *Client) {
			signalSupervisor(t, c, syscall.SIGTERM)
		},
		"when it is asked to terminate after it was detached": func(t *testing.T, c *Client) {
			if err := c.Detach(t.Context()); err != nil {
				t.Error(err)
			}
			signalSupervisor(t, c, syscall.SIGTERM)
		},
	}
	if runtime.GOOS == "linux" {
		ends["when it is killed"] = func(t *testing.T, c *Client) {
			signalSupervisor(t, c, syscall.SIGKILL)
		}
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			c := launch(t)
			obedient, _ := run(t, c, "obedient", Spec{Name: "a", Grace: time.Second})
			stubborn, _ := run(t, c, "stubborn", Spec{Name: "b", Grace: 100 * time.Millisecond})
			if !alive(obedient) || !alive(stubborn) {
				t.Fatal("the processes ended before they should")
			}
			end(t, c)
			for _, pid := range []int{obedient, stubborn, c.PID()} {
				eventually(t, fmt.Sprintf("process %d is gone", pid), func() bool { return !alive(pid) })
			}
		})
	}
}

func TestHigherTiersStopFirst(t *testing.T) {
	c := launch(t)
	_, store := run(t, c, "tidy", Spec{Name: "store", Grace: patience})
	_, client := run(t, c, "tidy", Spec{Name: "client", Tier: 2, Grace: patience})
	_, server := run(t, c, "tidy", Spec{Name: "server", Tier: 1, Grace: patience})
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	var ends []int64
	for _, log := range []string{client, server, store} {
		data, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		var end int64
		if _, err := fmt.Sscanf(string(data), "ready\nended %d", &end); err != nil {
			t.Fatalf("%s did not end in order: %q", log, data)
		}
		ends = append(ends, end)
	}
	if !slices.IsSorted(ends) {
		t.Errorf("ended at %v, want client, server, store", ends)
	}
}

func TestStopAndWait(t *testing.T) {
	c := launch(t)
	ctx := t.Context()

	run(t, c, "stubborn", Spec{Name: "stubborn", Grace: 50 * time.Millisecond})
	if _, err := c.Start(ctx, Spec{Name: "stubborn", Path: os.Args[0], Log: os.DevNull}); err == nil {
		t.Error("two processes of one name were started")
	}
	exit, err := c.Stop(ctx, "stubborn")
	if err != nil || exit.Signal != syscall.SIGKILL {
		t.Errorf("stop of a stubborn process: %v, %v; want killed", exit, err)
	}
	if _, running := c.Running("stubborn"); running {
		t.Error("a stopped process is said to run")
	}

	first, _ := run(t, c, "obedient", Spec{Name: "stubborn", Grace: time.Second})
	if pid, running := c.Running("stubborn"); !running || pid != first {
		t.Errorf("running: %d, %v; want %d", pid, running, first)
	}
	exit, err = c.Stop(ctx, "stubborn")
	if err != nil || exit.Signal != syscall.SIGTERM || exit.PID != first {
		t.Errorf("stop of an obedient process: %v, %v; want terminated", exit, err)
	}

	run(t, c, "failing", Spec{Name: "failing", Grace: time.Second})
	exit, err = c.Wait(ctx, "failing")
	if err != nil || exit.Code != 3 {
		t.Errorf("wait for a failing process: %v, %v; want exit code 3", exit, err)
	}
	if _, err := c.Stop(ctx, "failing"); err == nil {
		t.Error("a process that is gone was stopped")
	}
	if _, err := c.Start(ctx, Spec{Name: "none", Path: "/does/not/exist", Log: os.DevNull}); err == nil {
		t.Error("a missing program was started")
	}
}

func TestClientNoticesALostSupervisor(t *testing.T) {
	c := launch(t)
	run(t, c, "obedient", Spec{Name: "a", Grace: time.Second})
	signalSupervisor(t, c, syscall.SIGKILL)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := c.Wait(ctx, "a"); !errors.Is(err, ErrSupervisorGone) {
		t.Errorf("wait: %v, want %v", err, ErrSupervisorGone)
	}
	if _, err := c.Start(ctx, Spec{Name: "b"}); !errors.Is(err, ErrSupervisorGone) {
		t.Errorf("start: %v, want %v", err, ErrSupervisorGone)
	}
}

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if _, held, err := Holder(path); held || err != nil {
		t.Errorf("a missing lock: held %v, %v", held, err)
	}
	file, err := Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(path); !errors.Is(err, ErrInUse) {
		t.Errorf("second lock: %v, want %v", err, ErrInUse)
	}
	if pid, held, err := Holder(path); pid != os.Getpid() || !held || err != nil {
		t.Errorf("holder: %d, %v, %v; want this process", pid, held, err)
	}
	file.Close()
	if _, held, err := Holder(path); held || err != nil {
		t.Errorf("a released lock: held %v, %v", held, err)
	}
}
