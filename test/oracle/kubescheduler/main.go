// Command kubescheduler lets the real kube-scheduler 1.36, with all of its default plugins and the lab's feature gates, look at
// worlds: one a line of JSON on standard input, each with an answer as a line on standard output. Every world has a scheduler
// of its own, so that none knows of another.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/plimsoll-dev/plimsoll/test/oracle/world"
)

func main() {
	if err := serve(context.Background(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "kubescheduler:", err)
		os.Exit(1)
	}
}

// serve answers until there are no more worlds.
func serve(ctx context.Context, in io.Reader, out io.Writer) error {
	if err := setGates(); err != nil {
		return err
	}
	decoder, buffered := json.NewDecoder(in), bufio.NewWriter(out)
	encoder := json.NewEncoder(buffered)
	for {
		var w world.World
		if err := decoder.Decode(&w); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read world: %w", err)
		}
		answer, err := schedule(ctx, &w)
		if err != nil {
			answer.Error = err.Error()
		}
		if err := encoder.Encode(answer); err != nil {
			return fmt.Errorf("write answer: %w", err)
		}
		if err := buffered.Flush(); err != nil {
			return fmt.Errorf("write answer: %w", err)
		}
	}
}
