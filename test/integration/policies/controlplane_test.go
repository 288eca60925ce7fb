package policies

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

const (
	startTimeout = 3 * time.Minute
	// patience is for what a controller or an informer does by itself.
	patience = 60 * time.Second
	interval = 20 * time.Millisecond
)

const featureGates = "DRANodeAllocatableResources=true,DRADeviceTaintRules=true,DRADeviceTaints=true," +
	"DRAPartitionableDevices=true,DRAConsumableCapacity=true,DRAExtendedResource=true,DRAPrioritizedList=true," +
	"DRAListTypeAttributes=true"

const runtimeConfig = "resource.k8s.io/v1=true,resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true," +
	"resource.k8s.io/v1alpha3=true"

// controlPlane is an API server with Plimsoll's installation in it, and a controller manager.
type controlPlane struct {
	root        string
	environment *envtest.Environment
	config      *rest.Config
	admin       client.Client
	typed       kubernetes.Interface
	webhooks    *recorder

	controllers     *exec.Cmd
	stopControllers context.CancelFunc
	files           string
}

// startControlPlane returns what it started even if it fails half way, to be stopped.
func startControlPlane(ctx context.Context) (*controlPlane, error) {
	c := &controlPlane{}
	var err error
	if c.root, err = findRoot(); err != nil {
		return c, err
	}
	binaries := os.Getenv("KUBEBUILDER_ASSETS")
	if binaries == "" {
		binaries = filepath.Join(c.root, "bin")
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager"} {
		if _, err := os.Stat(filepath.Join(binaries, name)); err != nil {
			return c, fmt.Errorf("%w; make build builds it", err)
		}
	}
	if c.files, err = os.MkdirTemp("", "plimsoll-policies-"); err != nil {
		return c, err
	}
	environment := &envtest.Environment{
		BinaryAssetsDirectory:    binaries,
		ControlPlaneStartTimeout: time.Minute,
		ControlPlaneStopTimeout:  2 * time.Minute, // the API server lets open watches end first
	}
	environment.ControlPlane.GetAPIServer().Configure().
		Set("feature-gates", featureGates).
		Set("runtime-config", runtimeConfig)
	if c.config, err = environment.Start(); err != nil {
		return c, fmt.Errorf("start API server: %w", err)
	}
	c.environment = environment
	c.config.QPS = -1
	if c.admin, err = client.New(c.config, client.Options{}); err != nil {
		return c, err
	}
	if c.typed, err = kubernetes.NewForConfig(c.config); err != nil {
		return c, err
	}
	c.webhooks = startRecorder()
	if err := c.install(ctx); err != nil {
		return c, err
	}
	if err := c.startControllerManager(filepath.Join(binaries, "kube-controller-manager")); err != nil {
		return c, err
	}
	return c, c.waitForRoles(ctx)
}

func (c *controlPlane) stop() error {
	var errs []error
	if c.controllers != nil {
		c.stopControllers()
		_ = c.controllers.Wait() // it was killed, which is an error
	}
	if c.webhooks != nil {
		c.webhooks.server.Close()
	}
	if c.environment != nil {
		errs = append(errs, c.environment.Stop())
	}
	return errors.Join(append(errs, os.RemoveAll(c.files))...)
}

// startControllerManager runs the control plane's controllers under their own service accounts, as kubeadm does.
func (c *controlPlane) startControllerManager(binary string) error {
	kubeconfig := filepath.Join(c.files, "kubeconfig")
	if err := os.WriteFile(kubeconfig, c.environment.KubeConfig, 0o600); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(c.files, "kube-controller-manager.log"))
	if err != nil {
		return err
	}
	defer log.Close() // the process has a copy
	ctx, cancel := context.WithCancel(context.Background())
	c.stopControllers = cancel
	command := exec.CommandContext(ctx, binary,
		"--kubeconfig="+kubeconfig,
		"--authentication-kubeconfig="+kubeconfig,
		"--authorization-kubeconfig="+kubeconfig,
		"--authentication-skip-lookup=true",
		"--secure-port=0",
		"--leader-elect=false",
		"--use-service-account-credentials=true",
		"--kube-api-qps=200",
		"--kube-api-burst=400",
		"--feature-gates="+featureGates,
	)
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		cancel()
		return fmt.Errorf("start controller manager: %w", err)
	}
	c.controllers = command
	return nil
}

// poll waits until check is true, or fails with its last error.
func poll(ctx context.Context, within time.Duration, check func(context.Context) (bool, error)) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, interval, within, true, func(ctx context.Context) (bool, error) {
		var done bool
		done, last = check(ctx)
		return done && last == nil, nil
	})
	if err != nil && last != nil {
		return fmt.Errorf("%w: %w", err, last)
	}
	return err
}
