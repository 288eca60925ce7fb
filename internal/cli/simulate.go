package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/plimsoll-dev/plimsoll/pkg/report"
	"github.com/plimsoll-dev/plimsoll/pkg/simulate"
)

const simulateLong = `Say what would happen to the workloads of a cluster that is described in files.

It reads Kubernetes manifests, hand-written or dumped from a cluster with kubectl get -o yaml, and runs Kueue's and
Plimsoll's own code over them in this process, on a clock that jumps from one event to the next. It asks no cluster and
changes nothing. Times in the output count from the start of the run.

Annotations in the input say when things happen: simulate.plimsoll.dev/at and delete-at on any object, duration on a Job
or Workload, grace on a Job or Pod. Of a folder it reads all files below it that end in .yaml, .yml or .json; - is stdin.

What is wrong with the input is said a line each, and the exit status is 2.`

const simulateExample = `  kubectl plimsoll simulate -f cluster.yaml -f jobs/
  kubectl plimsoll simulate -f cluster.yaml --until 2h -o json
  kubectl plimsoll simulate -f cluster.yaml --set clusterqueue/team-b.spec.fairSharing.weight=2 --compare`

var simulateFormats = []string{"table", "json"}

// simulator reads manifests; what it returns runs them. Its error says a fault a line.
type simulator func(files []manifest, strict bool, set []string) (*simulation, error)

// simulation is an input that was read.
type simulation struct {
	warnings []string
	run      func(ctx context.Context, o runOptions) (*simulate.Result, error)
}

type runOptions struct {
	// until is when the run ends; nil when nothing changes any more.
	until *time.Duration
	// progress is told of how far the run has come.
	progress func(at time.Duration, done, total int)
	// warn is told what a person should know of the run, a sentence each.
	warn func(string)
}

// badInput is all that is wrong with what was given, a fault each.
type badInput []string

func (b badInput) Error() string { return strings.Join(b, "\n") }

// badUsage makes a fault of a sentence.
func badUsage(format string, args ...any) error { return badInput{fmt.Sprintf(format, args...)} }

// errInterrupted is returned where the context ended before the command did.
var errInterrupted = errors.New("interrupted")

// simulateFlags are the flags of the command.
type simulateFlags struct {
	files   []string
	set     []string
	until   time.Duration
	strict  bool
	compare bool
	format  string
}

func newSimulate(sim simulator, now func() time.Time) *cobra.Command {
	var f simulateFlags
	cmd := &cobra.Command{
		Use:     "simulate -f FILE|FOLDER...",
		Short:   "Say what would happen to the workloads of a cluster that is described in files",
		Long:    simulateLong,
		Example: simulateExample,
		RunE: func(cmd *cobra.Command, args []string) error {
			f.files = append(f.files, args...)
			if err := f.check(cmd.Flags().Changed("until")); err != nil {
				return err
			}
			p := newProgress(cmd.ErrOrStderr(), now)
			answer, err := atOnce(cmd.Context(), func(ctx context.Context) (simulated, error) {
				return f.simulate(ctx, sim, cmd.InOrStdin(), p)
			})
			p.end()
			printWarnings(cmd.ErrOrStderr(), answer.warnings)
			if err != nil {
				return err
			}
			if _, err := cmd.OutOrStdout().Write(answer.page); err != nil {
				return fmt.Errorf("print the result: %w", err)
			}
			return nil
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return badInput{err.Error()} })
	flags := cmd.Flags()
	flags.StringArrayVarP(&f.files, "filename", "f", nil, "file or folder to read, - for stdin; may be given more than once")
	flags.StringArrayVar(&f.set, "set", nil, "field to set before the run, as kind/[namespace/]name.path=value; may be given more than once")
	flags.DurationVar(&f.until, "until", 0, "end the run at this time, such as 1h; without it, when nothing changes any more")
	flags.BoolVar(&f.strict, "strict", false, "refuse what is a warning otherwise")
	flags.BoolVar(&f.compare, "compare", false, "run without and with --set, and print what is different")
	flags.StringVarP(&f.format, "output", "o", simulateFormats[0], "how to print the answer: "+strings.Join(simulateFormats, ", "))
	return cmd
}

// check finds what is wrong with the flags alone.
func (f *simulateFlags) check(bounded bool) error {
	switch {
	case !slices.Contains(simulateFormats, f.format):
		return badUsage("-o %s is not known: use one of %s", f.format, strings.Join(simulateFormats, ", "))
	case len(f.files) == 0:
		return badUsage("say what to simulate: -f with a file, a folder, or - for stdin")
	case bounded && f.until <= 0:
		return badUsage("--until %s: the run cannot end before it starts: give a time above 0", f.until)
	case f.compare && len(f.set) == 0:
		return badUsage("--compare runs the input without and with --set: say with --set what is different")
	}
	return nil
}

// shownWarnings is how many warnings are printed.
const shownWarnings = 50

func printWarnings(stderr io.Writer, warnings []string) {
	more := len(warnings) - shownWarnings
	if more > 0 {
		warnings = warnings[:shownWarnings]
	}
	for _, w := range warnings {
		fmt.Fprintln(stderr, "Warning: "+report.Printable(w))
	}
	if more > 0 {
		fmt.Fprintf(stderr, "Warning: and %d more like these\n", more)
	}
}

// simulated is what the command has to say.
type simulated struct {
	warnings []string
	page     []byte
}

// simulate reads everything before it runs anything.
func (f *simulateFlags) simulate(ctx context.Context, sim simulator, stdin io.Reader, p *progress) (out simulated, err error) {
	files, err := readManifests(f.files, stdin)
	if err != nil {
		return out, err
	}
	sets := [][]string{f.set}
	if f.compare {
		sets = [][]string{nil, f.set}
	}
	said := map[string]bool{}
	warn := func(w string) {
		if !said[w] {
			said[w] = true
			out.warnings = append(out.warnings, w)
		}
	}
	var runs []*simulation
	for _, set := range sets {
		s, err := sim(files, f.strict, set)
		if err != nil {
			return out, badInput(strings.Split(err.Error(), "\n"))
		}
		for _, w := range s.warnings {
			warn(w)
		}
		runs = append(runs, s)
	}

	o := runOptions{progress: p.tell, warn: warn}
	if f.until > 0 {
		o.until = &f.until
	}
	var results []*simulate.Result
	for i, s := range runs {
		if f.compare {
			p.name = []string{"before: ", "after: "}[i]
		}
		r, err := s.run(ctx, o)
		if err != nil {
			return out, fmt.Errorf("simulate: %w", err)
		}
		results = append(results, r)
	}
	out.page, err = f.print(results)
	return out, err
}

// print writes one result, or two beside each other.
func (f *simulateFlags) print(results []*simulate.Result) ([]byte, error) {
	var what interface {
		JSON() []byte
		Table(w io.Writer) error
	} = results[0]
	if f.compare {
		what = simulate.Compare(results[0], results[1])
	}
	if f.format == "json" {
		return what.JSON(), nil
	}
	var b bytes.Buffer
	err := what.Table(&b)
	return b.Bytes(), err
}

// atOnce calls work and returns what it does, or errInterrupted as soon as the context ends, whatever work is at: it
// may be reading from a terminal. The program is about to exit then. A panic in work is an error: a person who asks has
// no use for a stack.
func atOnce[T any](ctx context.Context, work func(context.Context) (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() {
			if p := recover(); p != nil {
				o.err = fmt.Errorf("this is a mistake in the program, please report it: %v", p)
			}
			done <- o
		}()
		o.value, o.err = work(ctx)
	}()
	select {
	case o := <-done:
		if errors.Is(o.err, context.Canceled) && ctx.Err() != nil {
			return o.value, errInterrupted
		}
		return o.value, o.err
	case <-ctx.Done():
		var none T
		return none, errInterrupted
	}
}
