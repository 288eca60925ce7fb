package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/internal/explain"
	"github.com/plimsoll-dev/plimsoll/test/lab/internal/expect"
	"github.com/plimsoll-dev/plimsoll/test/lab/internal/manifest"
)

const (
	// DemoCluster is the sample cluster, relative to the repository.
	DemoCluster = "examples"
	// expectations, in a demo's folder, says what its Jobs come to.
	expectations = "expected.yaml"

	demoPoll = 200 * time.Millisecond
	// queuesTimeout bounds how long the demo waits for queues that are not active.
	queuesTimeout = 30 * time.Second
)

// ErrDemoDiffers says that a demo's Jobs did not come to what was expected of them.
var ErrDemoDiffers = errors.New("the demo did not come out as expected")

// DemoOptions say what to show. The zero value shows the sample cluster to nobody.
type DemoOptions struct {
	// Root and StateDir are those of Options.
	Root, StateDir string
	// Cluster is a folder of manifests. Its file expected.yaml, if there is one, says what the Jobs come to and in which
	// order they are submitted. Empty means the sample cluster.
	Cluster string
	// Limit bounds the wait for the Jobs. Zero means one minute.
	Limit time.Duration
	Out   io.Writer
	// Release is that of Options.
	Release Release
}

// Demo brings a lab up, submits the Jobs of a folder, waits until each has come to what is expected of it, or to its end,
// prints what each came to and stops the lab. Without expectations it waits until all Jobs have finished. Where anything
// differs from what was expected, it says what and returns ErrDemoDiffers.
func Demo(ctx context.Context, o DemoOptions) (err error) {
	if o.Out == nil {
		o.Out = io.Discard
	}
	if o.Limit == 0 {
		o.Limit = time.Minute
	}
	d := &demo{options: o, began: time.Now()}
	if err := d.load(); err != nil {
		return err
	}
	d.lab, err = Start(ctx, Options{Root: o.Root, StateDir: o.StateDir, Out: o.Out, Release: o.Release, Manager: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.lab.Stop()) }()
	if err := d.prepare(ctx); err != nil {
		return err
	}
	if err := d.watch(ctx); err != nil {
		return err
	}
	return d.show()
}

// demo is one demonstration on its way.
type demo struct {
	options  DemoOptions
	began    time.Time
	lab      *Lab
	reader   client.Reader
	scene    []*unstructured.Unstructured // what is there before the Jobs
	jobs     []*demoJob
	expected []expect.Job
	compared bool // there are expectations
}

// load reads the folder, so that a mistake in it shows before anything is started.
func (d *demo) load() error {
	folder := d.options.Cluster
	if folder == "" {
		root, err := resolveRoot(d.options.Root)
		if err != nil {
			return err
		}
		folder = filepath.Join(root, DemoCluster)
	}
	if path := filepath.Join(folder, expectations); exists(path) {
		var err error
		if d.expected, err = expect.Load(path); err != nil {
			return err
		}
		d.compared = true
	}
	objects, err := manifest.Load(folder)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if object.GetKind() == "Job" {
			d.jobs = append(d.jobs, newDemoJob(object, d.expected))
		} else {
			d.scene = append(d.scene, object)
		}
	}
	slices.SortFunc(d.jobs, func(a, b *demoJob) int { return strings.Compare(a.name(), b.name()) })
	if len(d.jobs) == 0 {
		return fmt.Errorf("%s has no Job to show", folder)
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// prepare makes the cluster that the Jobs come into, and a reader that follows it.
func (d *demo) prepare(ctx context.Context) error {
	if err := d.lab.ApplyObjects(ctx, d.scene...); err != nil {
		return err
	}
	scheme, err := explain.Scheme()
	if err != nil {
		return err
	}
	follower, err := cache.New(d.lab.Admin(), cache.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("follow the cluster: %w", err)
	}
	go follower.Start(ctx) //nolint:errcheck // it ends with the context, and what it cannot read the reader reports
	if !follower.WaitForCacheSync(ctx) {
		return fmt.Errorf("follow the cluster: %w", ctx.Err())
	}
	d.reader = follower
	d.lab.timeline.step("Cluster applied")
	return d.awaitQueues(ctx)
}

// awaitQueues waits until the ClusterQueues are active, so that the Jobs' waiting times are their own. One that stays
// inactive is shown, and its Jobs will say the rest.
func (d *demo) awaitQueues(ctx context.Context) error {
	deadline := time.Now().Add(queuesTimeout)
	for {
		list := &kueue.ClusterQueueList{}
		if err := d.reader.List(ctx, list); err != nil {
			return fmt.Errorf("read the ClusterQueues: %w", err)
		}
		inactive := inactiveQueues(list.Items)
		if len(list.Items) > 0 && len(inactive) == 0 {
			d.lab.timeline.step("Queues active")
			return nil
		}
		if time.Now().After(deadline) {
			for _, line := range inactive {
				fmt.Fprintln(d.options.Out, explain.Printable(line))
			}
			return nil
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

func inactiveQueues(queues []kueue.ClusterQueue) []string {
	var lines []string
	for i := range queues {
		message := "it has no condition yet"
		for _, c := range queues[i].Status.Conditions {
			if c.Type == kueue.ClusterQueueActive {
				message = c.Message
				if c.Status == "True" {
					message = ""
				}
			}
		}
		if message != "" {
			lines = append(lines, fmt.Sprintf("ClusterQueue %s is not active: %s", queues[i].Name, message))
		}
	}
	return lines
}

// watch submits the Jobs in their order and looks at them until all are over, or the limit has passed.
func (d *demo) watch(ctx context.Context) error {
	deadline := time.Now().Add(d.options.Limit)
	for {
		for _, j := range d.jobs {
			if !j.submitted && d.admitted(j.expected.After) {
				if err := d.lab.ApplyObjects(ctx, j.object); err != nil {
					return err
				}
				j.submitted = true
			}
			j.look(ctx, d)
		}
		if !slices.ContainsFunc(d.jobs, func(j *demoJob) bool { return !j.expected.Over(j.result) }) {
			d.lab.timeline.step("Jobs over")
			return nil
		}
		if time.Now().After(deadline) {
			fmt.Fprintf(d.options.Out, "Not all Jobs were over after %s.\n", d.options.Limit)
			return nil
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

// admitted says whether a Job (namespace/name) was admitted once; no Job always was.
func (d *demo) admitted(name string) bool {
	for _, j := range d.jobs {
		if j.name() == name {
			return j.result.Entry.AdmittedAt != nil
		}
	}
	return true
}

func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(demoPoll):
		return nil
	}
}
