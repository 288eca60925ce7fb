// Package inspect looks at the ledger from outside: it fetches the live book from a manager, or fills one from the API
// server by the manager's own observations; counts what is in it; and holds the two against each other. It changes nothing.
package inspect
