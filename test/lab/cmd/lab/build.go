package main

import (
	"github.com/spf13/cobra"

	"github.com/plimsoll-dev/plimsoll/test/lab"
)

func newBuild() *cobra.Command {
	return &cobra.Command{
		Use:   "build",
		Short: "Build the control plane, Kueue, KWOK and Plimsoll from source into bin/",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return lab.Build(cmd.Context(), "", cmd.OutOrStdout())
		},
	}
}
