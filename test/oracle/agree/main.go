// Command agree holds what is predicted of pods, and what gangs are promised, against the real kube-scheduler, on the worlds of
// seeds. It exits with 1 where they disagree. It is run in the folder of its module.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/test/oracle"
)

func main() {
	var seeds oracle.Seeds
	flag.Uint64Var(&seeds.First, "seed", 1, "the first seed")
	flag.Uint64Var(&seeds.Count, "cases", 5000, "how many worlds")
	flag.BoolVar(&seeds.Stop, "stop", false, "stop at the first disagreement")
	only := flag.String("only", "", "pods or gangs; both unless told")
	flag.Parse()
	os.Exit(max(run("gangs", *only, seeds, oracle.AgreeGangs), run("pods", *only, seeds, oracle.Agree)))
}

// run makes one of the comparisons, unless another alone is wanted, and returns the exit status.
func run[S fmt.Stringer](name, only string, seeds oracle.Seeds, agree func(context.Context, io.Writer, oracle.Seeds) (S, error)) int {
	if only != "" && only != name {
		return 0
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	began := time.Now()
	s, err := agree(ctx, os.Stdout, seeds)
	fmt.Printf("%s; %.1fs\n", s, time.Since(began).Seconds())
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "agree:", err)
		return 2
	case !strings.HasSuffix(s.String(), " 0 disagreements"):
		return 1
	}
	return 0
}
