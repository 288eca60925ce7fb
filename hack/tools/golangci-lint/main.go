// Command golangci-lint is golangci-lint with the Kubernetes API linter compiled in.
//
// golangci-lint knows module plugins only when they are linked into its binary, and its own way to do that clones
// its repository. Importing both here gives the same binary from versions that this module's go.mod pins, through
// the module proxy alone.
package main

import (
	"os"
	"runtime/debug"
	"strings"

	"github.com/golangci/golangci-lint/v2/pkg/commands"
	"github.com/golangci/golangci-lint/v2/pkg/exitcodes"
	_ "sigs.k8s.io/kube-api-linter" // registers the linter "kubeapilinter"
)

const linterModule = "github.com/golangci/golangci-lint/v2"

func main() {
	if err := commands.Execute(buildInfo()); err != nil {
		os.Exit(exitcodes.Failure) // it has printed the error
	}
}

// buildInfo names the linter's version, which is that of a dependency here and not of the main module.
func buildInfo() commands.BuildInfo {
	result := commands.BuildInfo{Version: "unknown", Commit: "none"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return result
	}
	result.GoVersion = info.GoVersion
	for _, dependency := range info.Deps {
		if dependency.Path == linterModule {
			result.Version = strings.TrimPrefix(dependency.Version, "v")
		}
	}
	return result
}
