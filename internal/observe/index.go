package observe

// WorkloadByOwner indexes Workloads by the uid of their controller.
const WorkloadByOwner = "plimsoll.dev/owner-uid"

// PodByController indexes pods by the uid of their controller.
const PodByController = "plimsoll.dev/controller-uid"
