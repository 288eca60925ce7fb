// Package lab runs a real control plane on this machine's loopback: etcd, kube-apiserver, kube-controller-manager,
// kube-scheduler, KWOK for nodes and pods, the Kueue manager and Plimsoll, all built from pinned Go modules. Nothing needs
// root, a container runtime or a downloaded binary, and several labs can run side by side.
//
//	if err := lab.Build(ctx, "", os.Stdout); err != nil { … }
//	l, err := lab.Start(ctx, lab.Options{Out: os.Stdout, Manager: true})
//	if err != nil { … }
//	defer l.Stop()
//	err = l.Apply(ctx, "config/samples")
//
// The processes are children of a supervisor, bin/lab, which ends them when the process that called Start is gone, in
// whatever way it went. Nothing restarts by itself. Kueue and Plimsoll run as their own service accounts, never as an
// administrator.
//
// Nodes are KWOK's: no container runs. A pod becomes ready as soon as it is bound; what else it does is said by its
// annotations (see RunSecondsAnnotation and those next to it).
package lab

// Annotations by which a pod tells the lab's KWOK how it runs.
const (
	// RunSecondsAnnotation ends a pod this many seconds after its start. Without it a pod runs until it is deleted. Set
	// on a pod that runs already, it counts from then.
	RunSecondsAnnotation = "lab.plimsoll.dev/run-seconds"
	// ExitAnnotation with the value "fail" makes such a pod end as Failed rather than Succeeded.
	ExitAnnotation = "lab.plimsoll.dev/exit"
	// GraceSecondsAnnotation is how long a deleted pod keeps terminating, at least, and a second longer at most. Without
	// it a deleted pod goes at once.
	GraceSecondsAnnotation = "lab.plimsoll.dev/grace-seconds"
	// LostAnnotation with the value "true" on a node makes it NotReady until the annotation goes.
	LostAnnotation = "lab.plimsoll.dev/lost"
)
