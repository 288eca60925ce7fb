package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/plimsoll-dev/plimsoll/internal/explain"
	"github.com/plimsoll-dev/plimsoll/pkg/report"
)

const explainLong = `Say what a workload got, or why it waits and what to do about it.

It reads the Workload, its Placement and what belongs to them with your own rights, and changes nothing. In JSON and
YAML, times are whole seconds since the Workload was created: "submittedAt" is 0s, and null is what has not happened.`

const explainExample = `  kubectl plimsoll explain job/train
  kubectl plimsoll explain pod/train-0-x7k2p -n team-a
  kubectl plimsoll explain workload job-train-1f2e3 -o json`

var formats = []string{"words", "json", "yaml"}

func newExplain(c *cluster, now func() time.Time) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:     "explain (workload|job|pod)/NAME",
		Short:   "Say what a workload got, or why it waits and what to do about it",
		Long:    explainLong,
		Example: explainExample,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(formats, format) {
				return fmt.Errorf("-o %s is not known: use one of %s", format, strings.Join(formats, ", "))
			}
			target, err := explain.ParseTarget(args...)
			if err != nil {
				return err
			}
			reader, namespace, err := c.open()
			if err != nil {
				return err
			}
			target.Namespace = namespace
			subject, err := explain.Gather(cmd.Context(), reader, target, now())
			if err != nil {
				return err
			}
			return printSubject(cmd.OutOrStdout(), subject, format)
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", formats[0], "how to print the answer: "+strings.Join(formats, ", "))
	return cmd
}

func printSubject(out io.Writer, s *explain.Subject, format string) error {
	if format == "words" {
		_, err := io.WriteString(out, explain.Words(s))
		return err
	}
	return printValue(out, report.Workload(s.Input), format)
}
