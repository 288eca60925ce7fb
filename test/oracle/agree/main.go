// Command agree holds what is predicted of pods against the real kube-scheduler, on the worlds of seeds. It exits with 1 where
// they disagree. It is run in the folder of its module.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/plimsoll-dev/plimsoll/test/oracle"
)

func main() {
	var seeds oracle.Seeds
	flag.Uint64Var(&seeds.First, "seed", 1, "the first seed")
	flag.Uint64Var(&seeds.Count, "cases", 5000, "how many worlds")
	flag.BoolVar(&seeds.Stop, "stop", false, "stop at the first disagreement")
	flag.Parse()
	os.Exit(run(seeds))
}

// run returns the exit status.
func run(seeds oracle.Seeds) int {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	began := time.Now()
	s, err := oracle.Agree(ctx, os.Stdout, seeds)
	fmt.Printf("%s; %.1fs\n", s, time.Since(began).Seconds())
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "agree:", err)
		return 2
	case s.Disagreements > 0:
		return 1
	}
	return 0
}
