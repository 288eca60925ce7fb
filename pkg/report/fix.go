package report

import "github.com/plimsoll-dev/plimsoll/api/v1alpha1"

// fixes says, by reason, what a person can do about it. Every reason has an entry.
var fixes = map[v1alpha1.Reason]string{
	v1alpha1.ReasonDevicesInUse: "Nothing is wrong: it starts when workloads that hold these devices end. To start sooner, " +
		"ask for fewer devices a pod, or loosen the claim's selectors so that another flavor can serve it.",
	v1alpha1.ReasonDevicesFreeing: "Nothing to do: pods that held these devices are ending. If it stays so for minutes, look for pods " +
		"that hang in Terminating.",
	v1alpha1.ReasonDevicesUnhealthy: "An operator has to mend or replace the devices, or lift their taint " +
		"(kubectl get resourceslices -o yaml shows it; a driver may also publish it as DeviceTaintRule).",
	v1alpha1.ReasonNotEnoughDevices: "No node has that many such devices. Ask for at most what one node has, and use more pods instead " +
		"(parallelism and completions of the Job).",
	v1alpha1.ReasonSelectorMismatch: "Compare the selectors of the claim template and of its DeviceClass with the devices' attributes " +
		"(kubectl get resourceslices -o yaml), and loosen the one that none fulfils.",
	v1alpha1.ReasonConstraintUnsatisfied: "Ask for fewer devices a pod, or take the constraint out of the claim template: the devices " +
		"that would fulfil it together are not free, or not there.",
	v1alpha1.ReasonNodeResources: "Ask for less CPU, memory or other node resources a pod: the devices are there, the rest of the node is " +
		"not. Or wait until pods on these nodes end.",
	v1alpha1.ReasonNodeUnavailable: "An operator has to uncordon the node, make it Ready, or take off its taint; or the Job's owner adds a " +
		"toleration, or loosens the node selector or affinity. Where no node carries the flavor's labels, label one.",
	v1alpha1.ReasonPoolStale: "An operator has to look at the manager's watches and at the driver's pods: nothing was heard of these " +
		"devices for longer than the policy's freshness window.",
	v1alpha1.ReasonPoolIncomplete: "The driver has not published all slices of the pool. Wait some seconds; if it stays, an operator has to " +
		"look at the driver's pod on that node.",
	v1alpha1.ReasonPoolRegressed: "The pool's generation went down while slices of it were left. An operator has to restart the driver on " +
		"that node, or delete the pool's leftover ResourceSlices.",
	v1alpha1.ReasonPoolRebuilding: "Nothing to do: the driver is publishing its devices anew. If it stays, an operator has to look at the " +
		"driver's pod on that node.",
	v1alpha1.ReasonDriverNotServing: "An operator has to make the driver's pod on that node Ready, or correct spec.drivers of the DevicePolicy.",
	v1alpha1.ReasonForeignUse: "Pods that Kueue does not manage hold these devices. Their owner has to end them, or to submit them through a " +
		"LocalQueue.",
	v1alpha1.ReasonGangShort: "Only some of the pods have a place, and all must start together. Ask for fewer pods, or smaller ones; or wait.",
	v1alpha1.ReasonHeld: "Nothing is wrong: what is free is kept for a workload that has waited longer and has a better claim. Setting a " +
		"maximum execution time lets short work go ahead of it.",
	v1alpha1.ReasonClaimTemplateNotFound: "Create the ResourceClaimTemplate in the Job's namespace, or correct its name in the Job. It starts " +
		"by itself then.",
	v1alpha1.ReasonDeviceClassNotFound: "Correct deviceClassName in the claim template (kubectl get deviceclasses lists them), or have an " +
		"operator create the class. It starts by itself then.",
	v1alpha1.ReasonClaimUnsupported: "Change the field that the message names. Most of a suspended Job cannot be changed: delete it and create " +
		"it anew.",
	v1alpha1.ReasonQuotaExhausted: "Wait until workloads of the queue or its cohort end, or ask the queue's administrator for more quota or " +
		"a higher borrowing limit.",
	v1alpha1.ReasonQueueInactive: "The queue's administrator has to make it active: kubectl describe localqueue and clusterqueue say what is " +
		"missing. If the name is wrong, correct the label kueue.x-k8s.io/queue-name of the Job.",
	v1alpha1.ReasonPriorityInverted: "Work of lower priority holds these devices. An administrator can end it, or bring the quota into line " +
		"with the devices that are there, so that Kueue preempts.",
	v1alpha1.ReasonUndecided: "Wait some seconds. If it stays, an operator has to look at the manager (kubectl -n plimsoll-system get pods " +
		"and logs); a search that was cut short is tried again on the next change.",
	v1alpha1.ReasonPolicyNotReady: "An operator has to mend the DevicePolicy: kubectl describe devicepolicy says what is wrong.",
	v1alpha1.ReasonPolicyFrozen:   "Wait until an operator sets spec.mode of the DevicePolicy back to Enforce.",
	v1alpha1.ReasonQuotaMismatch: "Nothing to do: Kueue took a flavor or charge that was just being changed, and it is tried again. If it " +
		"repeats, an operator has to see that the ClusterQueue gives quota for the policy's quotaResource on the policy's flavors.",
	v1alpha1.ReasonChecksPending: "Another admission check of the queue has to turn Ready: the Workload's status.admissionChecks says what it " +
		"waits for.",
	v1alpha1.ReasonBehindQueueHead: "The ClusterQueue is StrictFIFO: its workloads start in their order. What stands before it has to start or leave, or the " +
		"queue's admin sets queueingStrategy to BestEffortFIFO.",
	v1alpha1.ReasonPromiseOverlap: "Nothing to do: two promises named the same device, and this one was withdrawn; it is placed anew. If it repeats, an " +
		"operator has to see that one manager alone runs, and that nobody writes Placements by hand.",
	v1alpha1.ReasonClaimTampered: "Somebody changed the pod's claim or its template. It is placed anew; do not edit objects with the label " +
		"plimsoll.dev/owned.",
	v1alpha1.ReasonPodChanged: "Something (a LimitRange, a webhook, a sidecar) makes the pod ask for more than the Job says. Write it into the " +
		"Job's pod template, or exempt the namespace.",
	v1alpha1.ReasonReleaseTimeout: "It is queued again. If it repeats, look at the pods' events: a gate of another controller, or a node that " +
		"does not take the pod, kept it from starting in time.",
}

// Fix returns what a person can do about a reason, or "" for one that is not known here.
func Fix(r v1alpha1.Reason) string { return fixes[r] }
