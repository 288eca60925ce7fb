// Package observe turns what informers deliver into observations of the ledger. It is the only gatherer: nothing else
// feeds the book.
package observe
