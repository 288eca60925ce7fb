// Command kubectl-plimsoll asks Plimsoll about workloads: kubectl finds it on the PATH and runs it as kubectl plimsoll.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/plimsoll-dev/plimsoll/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := cli.Run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}
