// Package arch holds the architecture of this repository as a test: which package may import which, what the decision
// core may not do, and what no file may contain.
//
// The table of imports is in table.go; a new package under pkg/ needs a row there. The checks read the source, not
// what one build of it would compile, so that files behind build tags and for other systems count too. They decide
// nothing about style: that is golangci-lint's part.
package arch
