package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
)

func TestNothingIsLeftWhenTheParentIsKilled(t *testing.T) {
	state := t.TempDir()
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), holdVariable+"="+state)
	parent.Stderr = os.Stderr
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var pids map[string]int
	err = json.NewDecoder(out).Decode(&pids)
	if killErr := parent.Process.Kill(); killErr != nil {
		t.Error(killErr)
	}
	_ = parent.Wait() // it was killed
	if err != nil {
		t.Fatalf("the parent did not start a lab: %v", err)
	}

	for _, name := range []string{"supervisor", Etcd, APIServer, ControllerManager, Scheduler, KWOK, Kueue} {
		pid := pids[name]
		if pid <= 1 {
			t.Errorf("%s: no process id", name)
			continue
		}
		start := time.Now()
		eventually(t, 30*time.Second, fmt.Sprintf("%s (process %d) is gone", name, pid), func() error {
			if runs(pid) {
				return fmt.Errorf("still there")
			}
			return nil
		})
		t.Logf("%s gone %s later", name, time.Since(start).Round(time.Millisecond))
	}
	if up, err := Running(state); up || err != nil {
		t.Errorf("the state folder is still in use: %v, %v", up, err)
	}
}

// runs says whether a process exists and is more than an entry that its parent has not read yet.
func runs(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

func TestUpLeavesALabRunningAndDownStopsIt(t *testing.T) {
	root, err := FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	state := t.TempDir()
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), filepath.Join(root, "bin", "lab"), append(args, "--state", state)...)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("lab %s: %v\n%s", args, err, out)
		}
		return string(out)
	}
	t.Cleanup(func() {
		if _, err := Down(context.Background(), state); err != nil {
			t.Error(err)
		}
	})
	if out := run("down"); !strings.Contains(out, "No lab is up") {
		t.Errorf("down before up says %q", out)
	}
	run("up", "--without-plimsoll", "--cluster", "test/lab/testdata/simple")
	if out := run("up"); !strings.Contains(out, "already up") {
		t.Errorf("a second up says %q", out)
	}
	config, err := clientcmd.BuildConfigFromFlags("", Kubeconfig(state))
	if err != nil {
		t.Fatal(err)
	}
	t.Run("Jobs run meanwhile", func(t *testing.T) { // and are gone before the lab is
		client := clientFor(t, config)
		waitPhase(t, client, submit(t, client, map[string]string{RunSecondsAnnotation: "0"}), corev1.PodSucceeded)
	})
	if out := run("down"); !strings.Contains(out, "is down") {
		t.Errorf("down says %q", out)
	}
	if up, err := Running(state); up || err != nil {
		t.Errorf("running after down: %v, %v", up, err)
	}
}
