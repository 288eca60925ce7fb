package cli

import (
	"context"

	inprocess "github.com/plimsoll-dev/plimsoll/internal/simulate"
	"github.com/plimsoll-dev/plimsoll/internal/simulate/input"
	"github.com/plimsoll-dev/plimsoll/pkg/simulate"
)

// inProcess reads manifests and runs them in this process.
func inProcess(files []manifest, strict bool, set []string) (*simulation, error) {
	named := make([]input.File, len(files))
	for i, f := range files {
		named[i] = input.File{Name: f.name, Data: f.data}
	}
	in, err := input.Read(named, input.Options{Strict: strict, Set: set})
	if err != nil {
		return nil, err
	}
	return &simulation{warnings: in.Warnings, run: func(ctx context.Context, o runOptions) (*simulate.Result, error) {
		inprocess.Relax()
		return inprocess.Run(ctx, in, inprocess.Options{Until: o.until, Progress: o.progress, Warn: o.warn})
	}}, nil
}
