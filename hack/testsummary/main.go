package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// quiet is how long nothing may be printed before a line says what is still running.
const quiet = 30 * time.Second

type options struct {
	suite  string
	counts string
	trim   string
	each   bool
}

func main() {
	var o options
	flag.StringVar(&o.suite, "suite", "", "name of the suite, kept with the counts")
	flag.StringVar(&o.counts, "counts", "", "file to write the counts to, as JSON")
	flag.StringVar(&o.trim, "trim", "", "import path prefix to leave out of what is printed")
	flag.BoolVar(&o.each, "each", false, "print every finished test, not only every package")
	total := flag.Bool("total", false, "read no tests; add up the count files given as arguments and print the closing line")
	flag.Parse()

	var n counts
	var err error
	if *total {
		n, err = readTotal(flag.Args())
		if err == nil {
			fmt.Println(n)
		}
	} else {
		n, err = run(os.Stdin, os.Stdout, o)
	}
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "testsummary:", err)
		os.Exit(2)
	case !n.good():
		os.Exit(1)
	}
}

// run reads events until the input ends and writes the counts.
func run(in io.Reader, out io.Writer, o options) (counts, error) {
	s := newSummary(out)
	s.each, s.trim = o.each, o.trim
	s.total.Suite = o.suite

	lines, failure := readLines(in)
	ticker := time.NewTicker(quiet)
	defer ticker.Stop()
	for open := true; open; {
		select {
		case line, more := <-lines:
			if open = more; !more {
				break
			}
			e, ok := parseEvent(line)
			if !ok {
				fmt.Fprintf(out, "%s\n", line)
				break
			}
			before := s.said
			s.add(e)
			if s.said != before {
				ticker.Reset(quiet)
			}
		case now := <-ticker.C:
			if names := s.running(now); names != "" {
				fmt.Fprintf(out, "...  %s\n", names)
			}
		}
	}
	n := s.finish()
	if err := *failure; err != nil {
		return n, fmt.Errorf("read events: %w", err)
	}
	if n.ran() == 0 {
		fmt.Fprintf(out, "FAIL no test ran in suite %q\n", o.suite)
	}
	if o.counts == "" {
		return n, nil
	}
	return n, writeCounts(o.counts, n)
}

// readLines sends each line and closes the channel at the end; the error may be read once it is closed.
func readLines(in io.Reader) (<-chan []byte, *error) {
	lines := make(chan []byte)
	failure := new(error)
	go func() {
		defer close(lines)
		reader := bufio.NewReader(in)
		for {
			line, err := reader.ReadBytes('\n')
			if n := len(line); n > 0 && line[n-1] == '\n' {
				line = line[:n-1]
			}
			if len(line) > 0 {
				lines <- line
			}
			if err == io.EOF {
				return
			}
			if err != nil {
				*failure = err
				return
			}
		}
	}()
	return lines, failure
}

func writeCounts(name string, n counts) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return fmt.Errorf("write counts: %w", err)
	}
	data, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("write counts: %w", err)
	}
	if err := os.WriteFile(name, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write counts: %w", err)
	}
	return nil
}

func readTotal(names []string) (counts, error) {
	var total counts
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			return counts{}, fmt.Errorf("read counts: %w", err)
		}
		var n counts
		if err := json.Unmarshal(data, &n); err != nil {
			return counts{}, fmt.Errorf("read counts in %s: %w", name, err)
		}
		total.add(n)
	}
	return total, nil
}
