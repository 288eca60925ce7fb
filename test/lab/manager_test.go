package lab

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// Variables of the manager's stand-in: this test binary, put in the manager's place.
const (
	standInVariable = "PLIMSOLL_LAB_TEST_STAND_IN"
	crashVariable   = "PLIMSOLL_LAB_TEST_CRASH"
)

// standIn takes the manager's flags, says who it is to the API server, is ready, and ends on SIGTERM with code 0.
func standIn() {
	health := flag.String("health-probe-bind-address", "", "")
	for _, name := range []string{"metrics-cert-dir", "namespace", "leader-elect", "leader-elect-lease-duration", "leader-elect-renew-deadline",
		"leader-elect-retry-period", "webhook-host", "webhook-port", "webhook-cert-dir", "metrics-bind-address", "kueue-configuration"} {
		flag.String(name, "", "")
	}
	flag.Parse()
	if os.Getenv(crashVariable) != "" {
		fmt.Println("crashed")
		os.Exit(7)
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		panic(err)
	}
	review, err := kubernetes.NewForConfigOrDie(config).AuthenticationV1().SelfSubjectReviews().Create(
		context.Background(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		panic(err)
	}
	fmt.Println("I am", review.Status.UserInfo.Username, review.Status.UserInfo.Groups)
	terminate := make(chan os.Signal, 1)
	signal.Notify(terminate, syscall.SIGTERM)
	http.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {})
	go func() { panic(http.ListenAndServe(*health, nil)) }()
	<-terminate
	os.Exit(0)
}

// standInRoot is a repository whose manager is the stand-in and whose installation is one namespace.
func standInRoot(t *testing.T) string {
	t.Helper()
	repository, err := FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	for _, dir := range []string{"bin", managerInstallation} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"lab", Etcd, APIServer, ControllerManager, Scheduler, KWOK, Kueue, kueueManifests} {
		if err := os.Symlink(filepath.Join(repository, "bin", name), filepath.Join(root, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(root, "bin", Manager)); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"kustomization.yaml": "resources: [namespace.yaml]",
		"namespace.yaml":     "{apiVersion: v1, kind: Namespace, metadata: {name: plimsoll-system}}",
	} {
		if err := os.WriteFile(filepath.Join(root, managerInstallation, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestManagerStopsAndStartsWhenToldOnly(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	l, err := Start(ctx, Options{
		Root: standInRoot(t), Out: os.Stderr, Manager: true, ManagerEnv: []string{standInVariable + "=1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Stop(); err != nil {
			t.Error(err)
		}
	}()
	namespaces := clientFor(t, l.Admin()).CoreV1().Namespaces()
	if _, err := namespaces.Get(ctx, managerNamespace, metav1.GetOptions{}); err != nil {
		t.Errorf("the installation was not applied: %v", err)
	}

	first, running := l.ManagerPID()
	if !running || !runs(first) {
		t.Fatalf("the manager does not run: %d, %v", first, running)
	}
	if bytes, err := l.ManagerRSS(); err != nil || bytes < 1<<20 {
		t.Errorf("the manager holds %d bytes, %v", bytes, err)
	}
	want := "I am system:serviceaccount:plimsoll-system:plimsoll-manager " +
		"[system:serviceaccounts system:serviceaccounts:plimsoll-system system:authenticated]"
	if log := readLog(t, l); log != want {
		t.Errorf("the manager says %q, want %q", log, want)
	}

	if err := l.KillManager(ctx); err != nil {
		t.Fatal(err)
	}
	if exit, err := l.WaitManagerExit(ctx); err != nil || exit.Signal != syscall.SIGKILL {
		t.Errorf("after the kill: %+v, %v", exit, err)
	}
	if pid, running := l.ManagerPID(); running || runs(first) {
		t.Errorf("a killed manager runs as %d", pid)
	}

	if err := l.StartManager(ctx, crashVariable+"=1"); err == nil || !strings.Contains(err.Error(), "exit code 7") {
		t.Errorf("start of a manager that crashes: %v, want its exit code", err)
	}
	if err := l.LaunchManager(ctx, crashVariable+"=1"); err != nil {
		t.Fatal(err)
	}
	if exit, err := l.WaitManagerExit(ctx); err != nil || exit.Code != 7 {
		t.Errorf("after a crash: %+v, %v; want code 7", exit, err)
	}

	if err := l.StartManager(ctx); err != nil {
		t.Fatal(err)
	}
	if second, _ := l.ManagerPID(); second == first {
		t.Error("the second manager has the first one's process id")
	}
	if err := l.StopManager(ctx); err != nil {
		t.Fatal(err)
	}
	if exit, err := l.WaitManagerExit(ctx); err != nil || exit != (ManagerExit{}) {
		t.Errorf("after a stop: %+v, %v; want code 0", exit, err)
	}
	if log := readLog(t, l); strings.Count(log, "I am") != 2 || strings.Count(log, "crashed") != 2 {
		t.Errorf("the log does not span all runs:\n%s", log)
	}
}

func readLog(t *testing.T, l *Lab) string {
	t.Helper()
	data, err := os.ReadFile(l.ManagerLog())
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}
