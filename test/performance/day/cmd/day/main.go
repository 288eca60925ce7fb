// Command day runs a busy day through simulate, as the command line does, and prints what that took and a digest of what it
// said; with -check it does so again on one and on two threads and with the input's objects in other orders, each in a
// process of its own, and fails where the bytes differ.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/plimsoll-dev/plimsoll/internal/simulate"
	"github.com/plimsoll-dev/plimsoll/internal/simulate/input"
	"github.com/plimsoll-dev/plimsoll/pkg/report"
	"github.com/plimsoll-dev/plimsoll/test/performance/day"
)

// figures are what one run took, and what it said.
type figures struct {
	Read, Run, CPU time.Duration
	Peak           int64 // bytes
	Outcomes       map[report.Outcome]int
	Admissions     int
	MostWaiting    int
	Digest         string
}

func main() {
	world := day.Full
	flag.Uint64Var(&world.Seed, "seed", world.Seed, "what the day is made from")
	flag.IntVar(&world.Nodes, "nodes", world.Nodes, "nodes of 8 devices")
	flag.IntVar(&world.Jobs, "jobs", world.Jobs, "Jobs")
	flag.IntVar(&world.Hours, "hours", world.Hours, "hours in which they arrive")
	flag.Float64Var(&world.Load, "load", world.Load, "what they ask for, as a part of what there is")
	var (
		check   = flag.Bool("check", false, "run again in other ways, and compare")
		limit   = flag.Duration("limit", time.Hour, "how long to wait")
		asJSON  = flag.Bool("json", false, "print the figures as JSON")
		shuffle = flag.Uint64("shuffle", 0, "order of the objects; 0 for that in which they are made")
		cpu     = flag.String("cpuprofile", "", "file to write a CPU profile to")
		heap    = flag.String("heapprofile", "", "file to write a heap profile to")
		out     = flag.String("o", "", "file to write the result to")
		files   = flag.String("manifests", "", "file to write the manifests to; nothing is run then")
	)
	flag.Parse()
	if *files != "" {
		exit(os.WriteFile(*files, world.Files(*shuffle)[0].Data, 0o644))
	}
	if *check {
		exit(compare(os.Args[1:]))
	}
	exit(func() error {
		stop, err := profile(*cpu)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), *limit)
		defer cancel()
		f, err := measure(ctx, world, *shuffle, *out)
		stop()
		if err != nil {
			return err
		}
		if *heap != "" {
			w, err := os.Create(*heap)
			if err != nil {
				return err
			}
			if err := pprof.WriteHeapProfile(w); err != nil {
				return err
			}
		}
		if *asJSON {
			return json.NewEncoder(os.Stdout).Encode(f)
		}
		fmt.Printf("%+v\n", world)
		f.print("")
		return nil
	}())
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "day:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func profile(file string) (stop func(), err error) {
	if file == "" {
		return func() {}, nil
	}
	w, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	return pprof.StopCPUProfile, pprof.StartCPUProfile(w)
}

// measure runs a world once.
func measure(ctx context.Context, w day.World, shuffle uint64, file string) (*figures, error) {
	simulate.Relax()
	manifests := w.Files(shuffle)
	f := &figures{Outcomes: map[report.Outcome]int{}}
	begin := time.Now()
	in, err := input.Read(manifests, input.Options{Strict: true})
	if err != nil {
		return nil, err
	}
	f.Read = time.Since(begin)
	begin = time.Now()
	result, err := simulate.Run(ctx, in, simulate.Options{Progress: told(), Warn: func(s string) { fmt.Fprintln(os.Stderr, "Warning:", s) }})
	if err != nil {
		return nil, err
	}
	bytes := result.JSON()
	f.Run = time.Since(begin)
	for i := range result.Workloads {
		f.Outcomes[result.Workloads[i].Outcome]++
		f.Admissions += len(result.Workloads[i].Admissions)
	}
	sum := sha256.Sum256(bytes)
	f.Digest = fmt.Sprintf("sha256:%x", sum[:8])
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return nil, err
	}
	f.CPU, f.Peak = time.Duration(usage.Utime.Nano()+usage.Stime.Nano()), usage.Maxrss*1024
	if file != "" {
		err = os.WriteFile(file, bytes, 0o644)
	}
	return f, err
}

// told says on stderr, every few seconds, how far a run is.
func told() func(at time.Duration, finished, all int) {
	last := time.Now()
	return func(at time.Duration, finished, all int) {
		if time.Since(last) > 5*time.Second {
			last = time.Now()
			fmt.Fprintf(os.Stderr, "at %s: %d of %d Jobs have finished\n", at, finished, all)
		}
	}
}

func (f *figures) print(how string) {
	fmt.Printf("%-28s read %.1fs, run %.1fs, CPU %.1fs, peak %d MiB, %v, %d admissions, %s\n",
		how, f.Read.Seconds(), f.Run.Seconds(), f.CPU.Seconds(), f.Peak>>20, f.Outcomes, f.Admissions, f.Digest)
}

// compare runs a world in processes of its own, each in another way.
func compare(arguments []string) error {
	var own []string
	for _, a := range arguments {
		if strings.TrimLeft(a, "-") != "check" {
			own = append(own, a)
		}
	}
	fmt.Printf("day of %v on %d cores\n", own, runtime.NumCPU())
	var first *figures
	for _, way := range []struct {
		name    string
		threads int
		shuffle uint64
	}{{"two threads", 2, 0}, {"again", 2, 0}, {"one thread", 1, 0}, {"shuffled with seed 1", 2, 1}, {"shuffled with seed 2", 2, 2}} {
		cmd := exec.Command(os.Args[0], append(own, "-json", "-shuffle", strconv.FormatUint(way.shuffle, 10))...)
		cmd.Env = append(os.Environ(), "GOMAXPROCS="+strconv.Itoa(way.threads))
		cmd.Stderr = os.Stderr
		text, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
		f := &figures{}
		if err := json.Unmarshal(text, f); err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
		f.print(way.name)
		if first == nil {
			first = f
		}
		if f.Digest != first.Digest {
			return fmt.Errorf("%s gives other bytes than the first run", way.name)
		}
	}
	return nil
}
