package main

import (
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/plimsoll-dev/plimsoll/test/lab"
)

func newDemo() *cobra.Command {
	var options lab.DemoOptions
	var release string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run sample Jobs on a lab, show what became of each, and compare with what is expected",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctrllog.SetLogger(logr.Discard()) // the client library would complain that nobody had chosen a logger
			options.Release = lab.Release(release)
			if err := lab.BuildRelease(cmd.Context(), "", options.Release, cmd.OutOrStdout()); err != nil {
				return err
			}
			options.Out = cmd.OutOrStdout()
			return lab.Demo(cmd.Context(), options)
		},
	}
	cmd.Flags().StringVar(&options.Cluster, "cluster", "", "folder of manifests, with expected.yaml beside them (default the repository's "+lab.DemoCluster+")")
	cmd.Flags().StringVar(&options.StateDir, "state", "", "folder that keeps the lab's logs and data (default a temporary one)")
	cmd.Flags().DurationVar(&options.Limit, "limit", time.Minute, "how long to wait for the Jobs")
	releaseFlag(cmd, &release)
	return cmd
}
