package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/plimsoll-dev/plimsoll/internal/explain"
)

// Run runs the command with arguments (without the program's name) and returns its exit status: 0, or 1 after one
// sentence on stderr.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	ctrllog.SetLogger(logr.Discard()) // the client library would complain that nobody had chosen a logger
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(stderr, "Error: "+explain.Printable(err.Error()))
		return 1
	}
	return 0
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "kubectl-plimsoll",
		Short:         "Ask Plimsoll why a workload waits, or what it got",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl plimsoll"},
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	var c cluster
	c.addFlags(root.PersistentFlags())
	root.AddCommand(newExplain(&c, time.Now))
	return root
}
