package main

import (
	"github.com/spf13/cobra"

	"github.com/plimsoll-dev/plimsoll/test/lab"
)

func newBuild() *cobra.Command {
	var release string
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build the control plane, Kueue, KWOK and Plimsoll from source into bin/",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return lab.BuildRelease(cmd.Context(), "", lab.Release(release), cmd.OutOrStdout())
		},
	}
	releaseFlag(cmd, &release)
	return cmd
}

func releaseFlag(cmd *cobra.Command, release *string) {
	cmd.Flags().StringVar(release, "release", string(lab.Current), "the release of Kubernetes: nothing for 1.36, next for 1.37, whose first build takes long")
}
