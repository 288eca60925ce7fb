//go:build !faultpoints

package faultpoint

import "github.com/go-logr/logr"

// Reach marks that a named point was reached.
func Reach(logr.Logger, string) {}
