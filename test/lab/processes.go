package lab

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/test/lab/internal/supervise"
)

// Names of the components, as StopComponent and StartComponent take them.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	KWOK              = "kwok"
	Kueue             = "kueue"
	Manager           = "plimsoll"
)

// Tiers of an orderly stop: a component outlives those that talk to it.
const (
	tierStore = iota
	tierAPI
	tierClient
)

const (
	// readyTimeout bounds the wait for a started component, each.
	readyTimeout = 90 * time.Second
	readyPoll    = 50 * time.Millisecond
	// stopGrace is what a component gets between SIGTERM and SIGKILL.
	stopGrace = 5 * time.Second
	// logTail is how much of a component's log goes into an error about it.
	logTail = 2048
)

// process is how a component is run.
type process struct {
	args  []string
	env   []string
	ports []int
	ready string // URL that answers 200 once the component is up
	tier  int
}

// passedOn are the variables that components inherit. Everything else stays out, a KUBECONFIG above all.
var passedOn = []string{"PATH", "TMPDIR", "GOMAXPROCS", "GOMEMLIMIT", "GOGC", "GOTRACEBACK", "GOCOVERDIR"}

// thrift is what components of other projects get of what they do not inherit: collecting garbage less often saves a tenth of
// their processor time, and a limit keeps the memory for that within bounds. The manager runs as it is delivered.
var thrift = []string{"GOGC=200", "GOMEMLIMIT=640MiB"}

func (l *Lab) environment(more ...string) []string {
	env := []string{"HOME=" + string(l.state)}
	for _, name := range passedOn {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return append(env, more...)
}

func defaults(name string) []string {
	if name == Manager {
		return nil
	}
	return thrift
}

// start runs a component without waiting for it.
func (l *Lab) start(ctx context.Context, name string, moreEnv ...string) error {
	p, ok := l.components[name]
	if !ok {
		return fmt.Errorf("start %s: no such component", name)
	}
	l.ports.release(p.ports...)
	_, err := l.supervisor.Start(ctx, supervise.Spec{
		Name:  name,
		Path:  l.binary(name),
		Args:  p.args,
		Env:   slices.Concat(defaults(name), l.environment(p.env...), moreEnv), // the last one of a name counts
		Dir:   string(l.state),
		Log:   l.state.log(name),
		Tier:  p.tier,
		Grace: stopGrace,
	})
	return err
}

func (l *Lab) startAndWait(ctx context.Context, name string, moreEnv ...string) error {
	if err := l.start(ctx, name, moreEnv...); err != nil {
		return err
	}
	return l.waitReady(ctx, name)
}

// healthClient asks components for their health. It does not look at their certificates: some make their own.
var healthClient = &http.Client{
	Timeout: 2 * time.Second,
	Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // loopback, and nothing secret is sent
		DisableKeepAlives: true,
	},
}

// waitReady waits until a running component says that it is up. It gives up when the component exits.
func (l *Lab) waitReady(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	exited := make(chan supervise.Exit, 1)
	go func() {
		if exit, err := l.supervisor.Wait(ctx, name); err == nil {
			exited <- exit
		}
	}()
	ticker := time.NewTicker(readyPoll)
	defer ticker.Stop()
	var last string
	for {
		status, err := health(ctx, l.components[name].ready)
		switch {
		case err != nil:
			last = err.Error()
		case status == http.StatusOK:
			l.timeline.step("%s ready", name)
			return nil
		default:
			last = http.StatusText(status)
		}
		select {
		case exit := <-exited:
			return fmt.Errorf("%s ended before it was ready: %v\n%s", name, exit, l.tail(name))
		case <-ctx.Done():
			return fmt.Errorf("%s did not get ready (%s): %w\n%s", name, last, ctx.Err(), l.tail(name))
		case <-ticker.C:
		}
	}
}

func health(ctx context.Context, url string) (status int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	response, err := healthClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode, nil
}

// tail returns the end of a component's log.
func (l *Lab) tail(name string) string {
	data, err := os.ReadFile(l.state.log(name))
	if err != nil {
		return ""
	}
	if len(data) > logTail {
		data = data[len(data)-logTail:]
	}
	return strings.TrimSpace(string(data))
}

// StopComponent ends a component, with SIGTERM and in bounded time, and waits until it is gone.
func (l *Lab) StopComponent(ctx context.Context, name string) error {
	_, err := l.supervisor.Stop(ctx, name)
	return err
}

// StartComponent starts a component that was stopped or has ended, and waits until it is ready.
func (l *Lab) StartComponent(ctx context.Context, name string) error {
	return l.startAndWait(ctx, name)
}

// Log is the file that a component's output is appended to, over its restarts.
func (l *Lab) Log(component string) string { return l.state.log(component) }
