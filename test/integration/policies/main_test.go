// Package policies tries every write that config/ is about on a real API server, as the user who would try it: what the
// manager, tenants, administrators and the control plane's own controllers may do, and what each of them is told instead.
//
// The server has RBAC, Kueue's CRDs and roles, and everything in config/default but what needs containers or add-ons. A real
// kube-controller-manager runs beside it, so that garbage collection, claims from templates, the end of namespaces and
// aggregated roles are the real ones. There is no scheduler, no Kueue and no manager: their writes are tried under their names.
package policies

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// server is the API server that all tests share. Each test has a namespace of its own in it.
var server *controlPlane

func TestMain(m *testing.M) {
	if run := os.Getenv(guardVariable); run != "" {
		guardRun(run)
		os.Exit(0)
	}
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	log.SetLogger(logr.Discard()) // warnings of the API server about the tests' objects
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	err := startGuard()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	server, err = startControlPlane(ctx)
	defer func() {
		if err := server.stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
