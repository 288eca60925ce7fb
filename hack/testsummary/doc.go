// Command testsummary reads the output of `go test -json`, tells a person what is going on, and counts.
//
//	go test -json ./... | testsummary -suite unit -counts counts/unit.json
//	testsummary -total counts/*.json
//
// While tests run it prints one line a finished package (with -each, one a finished test) and, when nothing has
// finished for a while, what is still running. A failed test's output is printed together, when its package ends.
// Counts are of tests that have no subtests, since their parents only repeat them; a parent that fails on its own
// counts too, as does a package that fails without a failed test (it did not build, panicked or ran out of time).
// A Ginkgo suite, one Go test, counts as its specs.
//
// The exit status is 1 if anything failed or nothing ran, and 2 if the input cannot be read. It never runs tests
// itself.
package main
