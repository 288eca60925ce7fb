package main

import (
	"github.com/spf13/cobra"

	"github.com/plimsoll-dev/plimsoll/test/lab"
)

// newSupervise is for package lab alone, which runs it as the parent of a lab's processes.
func newSupervise() *cobra.Command {
	return &cobra.Command{
		Use:    "supervise LOCK",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return lab.Supervise(args[0])
		},
	}
}
