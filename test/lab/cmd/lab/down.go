package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/plimsoll-dev/plimsoll/test/lab"
)

func newDown() *cobra.Command {
	var state string
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop the lab that up left running",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			stopped, err := lab.Down(cmd.Context(), state)
			if err != nil {
				return err
			}
			if stopped {
				fmt.Fprintf(cmd.OutOrStdout(), "The lab is down (%s).\n", state)
			} else {
				fmt.Fprintf(cmd.OutOrStdout(), "No lab is up (%s).\n", state)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&state, "state", defaultState, "folder of the lab")
	return cmd
}
