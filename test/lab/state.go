package lab

import (
	"fmt"
	"os"
	"path/filepath"
)

// stateDir is a lab's own folder.
//
//	lab.lock         held by the supervisor, with its process id
//	supervisor.log   what the supervisor had to say
//	kubeconfig       the administrator's
//	pki/ conf/       certificates, and the components' configuration and kubeconfigs
//	etcd/ log/       etcd's data; a log a component, and the audit log
type stateDir string

func (d stateDir) path(elements ...string) string {
	return filepath.Join(append([]string{string(d)}, elements...)...)
}

func (d stateDir) lock() string          { return d.path("lab.lock") }
func (d stateDir) supervisorLog() string { return d.path("supervisor.log") }
func (d stateDir) kubeconfig() string    { return d.path("kubeconfig") }
func (d stateDir) audit() string         { return d.path("log", "audit.log") }

func (d stateDir) log(component string) string { return d.path("log", component+".log") }

func (d stateDir) conf(name string) string { return d.path("conf", name) }

func (d stateDir) pki(name string) string { return d.path("pki", name) }

// reset removes what an earlier lab left in the folder and makes the sub-folders anew. It touches nothing else in it.
func (d stateDir) reset() error {
	if err := os.Remove(d.kubeconfig()); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("reset state: %w", err)
	}
	for _, name := range []string{"pki", "conf", "etcd", "log"} {
		if err := os.RemoveAll(d.path(name)); err != nil {
			return fmt.Errorf("reset state: %w", err)
		}
		if err := os.MkdirAll(d.path(name), 0o700); err != nil {
			return fmt.Errorf("reset state: %w", err)
		}
	}
	return nil
}

// write makes a file that only the owner reads.
func (d stateDir) write(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	return nil
}
