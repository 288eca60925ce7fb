// Package oracle holds what the ledger and admission say of a pod and a node against what the real kube-scheduler does with
// them: does the pod fit, which devices are its claims given, and what do those take of the node's own resources.
//
// Worlds are made from seeds by package world. Command kubescheduler, a process of its own, lets kube-scheduler 1.36 look at
// each; Predict feeds the same objects to a ledger.Book through internal/observe and asks admission.Decider.Predict. There may
// be no disagreement, and each that was found is a case by itself in quirks_test.go.
//
// This is a module of its own because of k8s.io/kubernetes: with its replace directives `go install` of the commands would be
// refused.
//
//	make oracle                    5,000 worlds
//	make oracle CASES=20000        more of them
//	make oracle SEED=17 CASES=1    one of them, as it was; its objects are printed where it disagrees
package oracle
