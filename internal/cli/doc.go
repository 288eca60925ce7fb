// Package cli is the command line of kubectl plimsoll: flags, the cluster to ask, and how answers are printed.
package cli
