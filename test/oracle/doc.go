// Package oracle holds what the ledger and admission say of a pod and a node against what the real kube-scheduler does with
// them: does the pod fit, which devices are its claims given, and what do those take of the node's own resources.
//
// Worlds are made from seeds by package world. Command kubescheduler, a process of its own, lets kube-scheduler 1.36 look at
// each, with all of its plugins and a fake API server behind it; Predictor feeds the same objects, in any order, to a
// ledger.Book through internal/observe and asks admission.Decider.Predict. There may be no disagreement, and each that was
// found is a small world with a name in quirks_test.go. Where kube-scheduler itself comes to this or that by chance the
// prediction has to know it, and may say no.
//
// What decides is held against kube-scheduler itself: in each world admission.Decider.Decide places a gang with claims made from
// templates, its pods are released as the manager releases them, each pinned to its node and with its claims cut to the devices of
// its slot, and one kube-scheduler binds them one after another. Each has to be bound to its node, with its devices, which take of
// the node what was foreseen. What was found so is in TestAgreed of pkg/admission.
//
// This is a module of its own because of k8s.io/kubernetes: with its replace directives `go install` of the commands would be
// refused. Every run of the tests compares 500 pods and 200 gangs; from the repository's folder,
//
//	make oracle                    compares 5,000 of each,
//	make oracle CASES=20000        more of them,
//	make oracle SEED=17 CASES=1    one, and prints all of it with both answers.
package oracle
