// Command lab runs a real control plane with Kueue and Plimsoll on this machine. See package lab.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	os.Exit(run())
}

func run() int {
	root := &cobra.Command{
		Use:           "lab",
		Short:         "A real control plane with Kueue and Plimsoll on this machine's loopback",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newBuild(), newUp(), newDown(), newDemo(), newSupervise())
	// An interrupt cancels the command in front; the supervisor of a lab that it started stops the rest.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		return 1
	}
	return 0
}
