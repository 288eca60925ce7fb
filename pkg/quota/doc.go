// Package quota asks Kueue what it would do with a Workload: fit, borrow, preempt, wait or refuse, and on which flavors.
//
// It decides nothing itself. It keeps a copy of Kueue's scheduler cache, fed from watches, and runs Kueue's own flavor
// assigner and preemptor over snapshots of it. It never writes: the client that Kueue's code is given can read namespaces,
// limit ranges and runtime classes out of the book, and everything else about it is nil.
//
// Use: feed a [Book] with every object as it comes, in any order; take a [Snapshot] a round; ask about one Workload after
// the other, and take what is decided, so that the next sees it.
//
// What it does not say:
//   - Topology. Flavors are asked about as if they had no topology, and podsets as if they asked for none.
//   - The order of victims within a queue under admission fair sharing, which depends on the memory of Kueue's queue manager.
//     That feature is left out, as are workload slices.
//   - Which of several: among victims in sibling cohorts of equal share Kueue itself picks at random (kueue#10131). Record
//     the answer, and do not expect the same victims when it is asked again. Everything else is determined.
//
// Kueue's feature gates are global to the process: see [Gates].
package quota
