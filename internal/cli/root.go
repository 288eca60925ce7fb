package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/plimsoll-dev/plimsoll/pkg/report"
)

// The exit statuses besides 0.
const (
	exitFailed      = 1
	exitBadInput    = 2
	exitUnknown     = 2
	exitInterrupted = 130 // 128 and SIGINT, as a shell counts
)

// Run runs the command with arguments (without the program's name) and returns its exit status: 0; 1 after one sentence
// on stderr; 2 after a line on stderr for every fault in what simulate was given, or one on why ledger verify found out
// neither way; 130 where ctx ended first.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	ctrllog.SetLogger(logr.Discard()) // the client library would complain that nobody had chosen a logger
	root := newRoot(inProcess)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return execute(ctx, root)
}

func execute(ctx context.Context, root *cobra.Command) int {
	err := root.ExecuteContext(ctx)
	var bad badInput
	switch {
	case err == nil:
		return 0
	case errors.As(err, &bad):
		for _, fault := range bad {
			fmt.Fprintln(root.ErrOrStderr(), "Error: "+report.Printable(fault))
		}
		return exitBadInput
	}
	fmt.Fprintln(root.ErrOrStderr(), "Error: "+report.Printable(err.Error()))
	var unknown cannotTell
	switch {
	case errors.Is(err, errInterrupted):
		return exitInterrupted
	case errors.As(err, &unknown):
		return exitUnknown
	}
	return exitFailed
}

func newRoot(sim simulator) *cobra.Command {
	root := &cobra.Command{
		Use:           "kubectl-plimsoll",
		Short:         "Ask Plimsoll why a workload waits, what it got, or what would happen",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl plimsoll"},
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	var c cluster
	c.addFlags(root.PersistentFlags())
	root.AddCommand(newExplain(&c, time.Now), newSimulate(sim, time.Now), newLedger(&c, time.Now))
	return root
}
