package lab

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/test/lab/internal/supervise"
)

const (
	// heartbeat is how often a build that takes long says that it goes on.
	heartbeat = 30 * time.Second
	// lockPoll is how often a build that waits for another one looks again.
	lockPoll = 500 * time.Millisecond
)

// component is what one go build makes.
type component struct {
	name     string
	module   string   // folder of the module, relative to the repository
	packages []string // what to build
	binaries []string // what comes out, in bin/
	folder   string   // of bin/, where it comes out; bin/ itself when empty
	flags    []string
	// render makes the file rendered in bin/ from the module's sources; may be nil.
	render   func(ctx context.Context, module, file string) error
	rendered string
}

// kubernetesFlags have binaries say which release they are. Built from a module they would call themselves v0.0.0, and clients
// look at the server's version.
func kubernetesFlags(major, minor, patch string) []string {
	const version = " -X k8s.io/component-base/version."
	return []string{"-trimpath", "-ldflags", "-s -w" +
		version + "gitVersion=v" + major + "." + minor + "." + patch + version + "gitMajor=" + major + version + "gitMinor=" + minor}
}

// pinned components change only with their module files, so that a stamp tells whether they are up to date.
var pinned = []component{
	{
		name:     "etcd",
		module:   "test/lab/components/etcd",
		packages: []string{"go.etcd.io/etcd/server/v3"},
		binaries: []string{"etcd"},
	},
	{
		name:   "kubernetes",
		module: "test/lab/components/kubernetes",
		packages: []string{
			"k8s.io/kubernetes/cmd/kube-apiserver",
			"k8s.io/kubernetes/cmd/kube-scheduler",
			"k8s.io/kubernetes/cmd/kube-controller-manager",
			"k8s.io/kubernetes/cmd/kubectl",
		},
		binaries: []string{"kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubectl"},
		flags:    kubernetesFlags("1", "36", "3"),
	},
	{
		name:     "kueue",
		module:   "test/lab/components/kueue",
		packages: []string{"sigs.k8s.io/kueue/cmd/kueue"},
		binaries: []string{"kueue"},
		render:   renderKueue,
		rendered: kueueManifests,
	},
	{
		name:     "kwok",
		module:   "test/lab/components/kwok",
		packages: []string{"sigs.k8s.io/kwok/cmd/kwok"},
		binaries: []string{"kwok"},
	},
}

// nextKubernetes is the control plane of the release after the one that Plimsoll is built for. It is pinned as well, and built
// only where it is asked for.
var nextKubernetes = component{
	name:   "kubernetes-next",
	module: "test/lab/components/kubernetes-next",
	packages: []string{
		"k8s.io/kubernetes/cmd/kube-apiserver",
		"k8s.io/kubernetes/cmd/kube-scheduler",
		"k8s.io/kubernetes/cmd/kube-controller-manager",
	},
	binaries: []string{"kube-apiserver", "kube-scheduler", "kube-controller-manager"},
	folder:   "next",
	flags:    kubernetesFlags("1", "37", "2"),
}

// own components follow this repository's code, so go's build cache decides.
var own = []component{
	{name: "lab", packages: []string{"./test/lab/cmd/lab"}, binaries: []string{"lab"}},
	{
		name:     "plimsoll",
		packages: []string{"./cmd/plimsoll"},
		binaries: []string{"plimsoll"},
		flags:    []string{"-tags", "faultpoints"},
	},
	{name: "kubectl-plimsoll", packages: []string{"./cmd/kubectl-plimsoll"}, binaries: []string{"kubectl-plimsoll"}},
}

// Build puts every binary of the lab into the bin folder of the repository at root (found from the working folder when
// empty), and says on out what it does. Components from other projects are built only when missing or when their pinned
// version changed: cold, that takes over ten minutes on two cores. Builds wait for each other, across processes.
func Build(ctx context.Context, root string, out io.Writer) error {
	return BuildRelease(ctx, root, "", out)
}

// BuildRelease is Build, and puts the control plane of a release there too. Cold, that of Next takes as long again.
func BuildRelease(ctx context.Context, root string, release Release, out io.Writer) error {
	if out == nil {
		out = io.Discard
	}
	root, err := resolveRoot(root)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(root, "bin", ".stamps"), 0o755); err != nil {
		return fmt.Errorf("make bin folder: %w", err)
	}
	unlock, err := lockBuild(ctx, root, out)
	if err != nil {
		return err
	}
	defer unlock()

	toolchain, err := goOutput(ctx, root, "env", "GOVERSION")
	if err != nil {
		return err
	}
	wanted, err := release.pinned()
	if err != nil {
		return err
	}
	cold := false
	for _, c := range wanted {
		stamp, err := c.stamp(root, toolchain)
		if err != nil {
			return fmt.Errorf("stamp %s: %w", c.name, err)
		}
		if c.upToDate(root, stamp) {
			fmt.Fprintf(out, "%-18s up to date\n", c.name)
			continue
		}
		if !cold {
			fmt.Fprintln(out, "Building the control plane from source; from nothing this takes over ten minutes.")
			cold = true
		}
		if err := c.build(ctx, root, filepath.Join(root, "bin", c.folder), out); err != nil {
			return err
		}
		if err := os.WriteFile(c.stampFile(root), []byte(stamp), 0o644); err != nil {
			return fmt.Errorf("stamp %s: %w", c.name, err)
		}
	}
	for _, c := range own {
		if err := c.build(ctx, root, filepath.Join(root, "bin"), out); err != nil {
			return err
		}
	}
	return nil
}

// BuildReplaced puts the manager and the kubectl plugin into a folder that is there, under the names that they have in bin/,
// built from the repository at root (found from the working folder when empty) as if some of its source files were others:
// what stands in those files, by their paths within the repository. The repository stays as it is.
func BuildReplaced(ctx context.Context, root, folder string, replaced map[string][]byte, out io.Writer) error {
	if out == nil {
		out = io.Discard
	}
	root, err := resolveRoot(root)
	if err != nil {
		return err
	}
	sources, err := os.MkdirTemp(folder, "replaced-")
	if err != nil {
		return fmt.Errorf("make folder of replaced sources: %w", err)
	}
	overlay := struct{ Replace map[string]string }{Replace: map[string]string{}}
	for name, data := range replaced {
		path := filepath.Join(sources, fmt.Sprintf("%d.go", len(overlay.Replace)))
		if err := os.WriteFile(path, data, 0o600); err != nil {
			return fmt.Errorf("replace %s: %w", name, err)
		}
		overlay.Replace[filepath.Join(root, name)] = path
	}
	data, err := json.Marshal(overlay)
	if err != nil {
		return fmt.Errorf("write overlay: %w", err)
	}
	file := filepath.Join(sources, "overlay.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return fmt.Errorf("write overlay: %w", err)
	}
	for _, c := range own {
		if c.name == "lab" {
			continue
		}
		c.flags = append(slices.Clone(c.flags), "-overlay", file, "-ldflags=-s -w") // nobody debugs these, and they link in half the time
		if err := c.build(ctx, root, folder, out); err != nil {
			return err
		}
	}
	return nil
}

func lockBuild(ctx context.Context, root string, out io.Writer) (unlock func(), err error) {
	path := filepath.Join(root, "bin", ".lock")
	for waited := false; ; waited = true {
		file, err := supervise.Lock(path)
		if err == nil {
			return func() { file.Close() }, nil
		}
		if !errors.Is(err, supervise.ErrInUse) {
			return nil, fmt.Errorf("lock builds: %w", err)
		}
		if !waited {
			fmt.Fprintln(out, "Another build is running; waiting for it.")
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for another build: %w", ctx.Err())
		case <-time.After(lockPoll):
		}
	}
}

// build runs go build, whose binaries go into a folder, and reports how long it took.
func (c component) build(ctx context.Context, root, folder string, out io.Writer) error {
	start := time.Now()
	target := folder + string(filepath.Separator)
	if len(c.packages) == 1 {
		target += c.binaries[0] // a package's folder may have another name than its binary
	}
	args := append([]string{"build", "-o", target}, c.flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, c.packages...)...)
	cmd.Dir = filepath.Join(root, c.module)
	cmd.Env = append(os.Environ(), "GOWORK=off")
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("build %s: %w", c.name, err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-beat.C:
			fmt.Fprintf(out, "%-18s still building after %s (%s)\n", c.name,
				time.Since(start).Round(time.Second), strings.Join(c.binaries, ", "))
			continue
		case err := <-done:
			if err != nil {
				return fmt.Errorf("build %s: %w\n%s", c.name, err, output.Bytes())
			}
		}
		break
	}
	if c.render != nil {
		err := c.render(ctx, filepath.Join(root, c.module), filepath.Join(folder, c.rendered))
		if err != nil {
			return fmt.Errorf("build %s: %w", c.name, err)
		}
	}
	fmt.Fprintf(out, "%-18s built in %.1f s (%s)\n", c.name, time.Since(start).Seconds(), strings.Join(c.binaries, ", "))
	return nil
}

// stamp sums up all that a pinned component's binaries depend on.
func (c component) stamp(root, toolchain string) (string, error) {
	sum := sha256.New()
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(root, c.module, name))
		if err != nil {
			return "", err
		}
		sum.Write(data)
	}
	fmt.Fprintln(sum, toolchain, c.packages, c.binaries, c.rendered, c.flags)
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func (c component) stampFile(root string) string {
	return filepath.Join(root, "bin", ".stamps", c.name)
}

func (c component) upToDate(root, stamp string) bool {
	files := slices.Clone(c.binaries)
	if c.rendered != "" {
		files = append(files, c.rendered)
	}
	for _, file := range files {
		if _, err := os.Stat(filepath.Join(root, "bin", c.folder, file)); err != nil {
			return false
		}
	}
	written, err := os.ReadFile(c.stampFile(root))
	return err == nil && string(written) == stamp
}

// goOutput runs the go command in dir and returns what it prints, trimmed.
func goOutput(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
		}
		return "", fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
