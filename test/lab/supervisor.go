package lab

import (
	"errors"
	"fmt"
	"os"

	"github.com/plimsoll-dev/plimsoll/test/lab/internal/supervise"
)

// Supervise is what "lab supervise" runs: the supervisor of one lab, which holds the state folder's lock while anything
// runs. Call it from the main goroutine; it speaks its protocol on standard input and output.
func Supervise(lock string) (err error) {
	file, err := supervise.Lock(lock)
	if err != nil {
		return fmt.Errorf("supervise: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return supervise.Serve(os.Stdin, os.Stdout)
}
