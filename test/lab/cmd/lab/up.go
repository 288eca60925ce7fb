package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/plimsoll-dev/plimsoll/test/lab"
)

const defaultState = ".lab"

func newUp() *cobra.Command {
	var state, cluster, release string
	var bare bool
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Bring a lab up and leave it running",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			if up, err := lab.Running(state); err != nil {
				return err
			} else if up {
				fmt.Fprintf(out, "The lab is already up (%s).\n", state)
				printNextSteps(out, state)
				return nil
			}
			if err := lab.BuildRelease(cmd.Context(), "", lab.Release(release), out); err != nil {
				return err
			}
			l, err := lab.Start(cmd.Context(), lab.Options{StateDir: state, Out: out, Release: lab.Release(release), Manager: !bare})
			if err != nil {
				return err
			}
			if cluster != "" {
				if err := l.Apply(cmd.Context(), cluster); err != nil {
					return stopAfter(l, err)
				}
			}
			if err := l.Detach(cmd.Context()); err != nil {
				return stopAfter(l, err)
			}
			printNextSteps(out, state)
			return nil
		},
	}
	cmd.Flags().StringVar(&state, "state", defaultState, "folder for the lab's kubeconfig, logs and data")
	cmd.Flags().StringVar(&cluster, "cluster", "", "folder of manifests to apply once the lab is up")
	cmd.Flags().BoolVar(&bare, "without-plimsoll", false, "bring up the control plane and Kueue only")
	releaseFlag(cmd, &release)
	return cmd
}

// stopAfter takes a lab down again after a failure.
func stopAfter(l *lab.Lab, err error) error { return errors.Join(err, l.Stop()) }

func printNextSteps(out io.Writer, state string) {
	if abs, err := filepath.Abs(state); err == nil {
		state = abs
	}
	kubeconfig := lab.Kubeconfig(state)
	fmt.Fprintf(out, `
The lab is up. From the repository's folder, try
  bin/kubectl --kubeconfig %[1]s get nodes
  bin/kubectl --kubeconfig %[1]s get clusterqueues,localqueues -A
  PATH=$PWD/bin:$PATH bin/kubectl --kubeconfig %[1]s plimsoll explain job/NAME
Logs are in %[2]s. Stop it with
  bin/lab down --state %[3]s
`, shorten(kubeconfig), shorten(filepath.Join(state, "log")), shorten(state))
}

// shorten returns a path as seen from the working folder, where that is below it.
func shorten(path string) string {
	dir, err := os.Getwd()
	if err != nil {
		return path
	}
	if relative, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(relative) {
		return relative
	}
	return path
}
