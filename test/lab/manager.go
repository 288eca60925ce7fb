package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/plimsoll-dev/plimsoll/test/lab/internal/manifest"
)

const (
	managerNamespace      = "plimsoll-system"
	managerServiceAccount = "plimsoll-manager"
	// managerInstallation is the kustomization that an operator would apply.
	managerInstallation = "config/default"
)

// ErrManagerNotRunning says that there is no manager to do that to.
var ErrManagerNotRunning = errors.New("the manager is not running")

// ManagerExit says how a manager ended.
type ManagerExit struct {
	Code   int            // -1 when a signal ended it
	Signal syscall.Signal // 0 when it exited by itself
}

// plimsollObjects returns what to apply for Plimsoll to run on this machine.
func (l *Lab) plimsollObjects() ([]*unstructured.Unstructured, error) {
	objects, err := kustomize(filepath.Join(l.root, managerInstallation))
	if err != nil {
		return nil, err
	}
	endpoint := manifest.Endpoint{Port: l.endpoints.managerWebhook, CA: l.identities.authority.Cert}
	objects, err = manifest.Localize(objects, endpoint)
	if err != nil {
		return nil, fmt.Errorf("localize Plimsoll's installation: %w", err)
	}
	return objects, nil
}

func (l *Lab) managerProcess() process {
	e := l.endpoints
	args := []string{
		"--namespace=" + managerNamespace,
		"--leader-elect=true",
		// After a SIGKILL the next manager waits for the lease to run out.
		"--leader-elect-lease-duration=8s",
		"--leader-elect-renew-deadline=5s",
		"--leader-elect-retry-period=1s",
		"--webhook-host=127.0.0.1",
		fmt.Sprintf("--webhook-port=%d", e.managerWebhook),
		"--webhook-cert-dir=" + l.state.pki("manager"),
		"--metrics-bind-address=" + loopback(e.managerMetrics),
		"--metrics-cert-dir=" + l.state.pki("manager"),
		"--health-probe-bind-address=" + loopback(e.managerHealth),
		"--kueue-configuration=" + l.state.conf("kueue.yaml"),
	}
	return process{
		args:  append(args, l.options.ManagerArgs...),
		env:   append([]string{"KUBECONFIG=" + l.state.conf(Manager)}, l.options.ManagerEnv...),
		ports: []int{e.managerHealth, e.managerMetrics, e.managerWebhook},
		ready: httpURL(e.managerHealth, "/readyz"),
		tier:  tierClient,
	}
}

// StartManager starts the manager, with further environment variables (KEY=value) for this run only, and waits until it is
// ready. A manager that ends while it starts is an error; whatever it did before that stays.
func (l *Lab) StartManager(ctx context.Context, env ...string) error {
	return l.startAndWait(ctx, Manager, env...)
}

// LaunchManager is StartManager without the wait, for a manager that is expected to die early.
func (l *Lab) LaunchManager(ctx context.Context, env ...string) error {
	return l.start(ctx, Manager, env...)
}

// StopManager ends the manager with SIGTERM, or after its grace with SIGKILL, and waits until it is gone.
func (l *Lab) StopManager(ctx context.Context) error {
	return l.StopComponent(ctx, Manager)
}

// KillManager ends the manager with SIGKILL and waits until it is gone.
func (l *Lab) KillManager(ctx context.Context) error {
	if err := l.supervisor.Signal(ctx, Manager, syscall.SIGKILL); err != nil {
		return err
	}
	_, err := l.WaitManagerExit(ctx)
	return err
}

// ManagerPID returns the manager's process id, and false when it does not run.
func (l *Lab) ManagerPID() (int, bool) { return l.supervisor.Running(Manager) }

// WaitManagerExit waits until the manager that was started last has ended, and says how. It returns at once if that was
// long ago.
func (l *Lab) WaitManagerExit(ctx context.Context) (ManagerExit, error) {
	exit, err := l.supervisor.Wait(ctx, Manager)
	return ManagerExit{Code: exit.Code, Signal: exit.Signal}, err
}

// ManagerLog is the file that the manager's output is appended to, over its restarts.
func (l *Lab) ManagerLog() string { return l.Log(Manager) }

// MetricsURL is where the manager serves its metrics, to those whom the API server knows and lets.
func (l *Lab) MetricsURL() string { return httpsURL(l.endpoints.managerMetrics, "/metrics") }

// ManagerURL is the server of metrics and ledger, as kubectl plimsoll ledger takes it; CAFile has the certificate that its is
// signed with.
func (l *Lab) ManagerURL() string { return httpsURL(l.endpoints.managerMetrics, "") }

// CAFile is the file with the certificate of the lab's authority.
func (l *Lab) CAFile() string { return l.state.pki("ca.crt") }

// ManagerRSS returns the memory that the manager holds resident, in bytes. Linux only.
func (l *Lab) ManagerRSS() (int64, error) {
	pid, ok := l.ManagerPID()
	if !ok {
		return 0, ErrManagerNotRunning
	}
	return residentBytes(pid)
}

func residentBytes(pid int) (int64, error) {
	file, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read memory of process %d: %w", pid, err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 3 && fields[0] == "VmRSS:" {
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read memory of process %d: %w", pid, err)
			}
			return kib * 1024, nil
		}
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("read memory of process %d: %w", pid, err)
	}
	return 0, fmt.Errorf("read memory of process %d: no VmRSS", pid)
}
