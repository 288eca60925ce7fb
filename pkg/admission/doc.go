// Package admission decides, for one Workload against one snapshot of the ledger, whether all of its pods can be
// placed on one flavor, where and with which devices, and if not, why not.
//
// Decide is pure: the same snapshot and request give the same decision. It writes nothing, and it neither knows nor
// changes quota, which is Kueue's.
//
// Where to look: decide.go is the way in, choose.go that for those that wait for quota; try.go and stage.go go over flavors and nodes,
// node.go is one node for one podset, most.go how many pods it takes and why not more, together.go several podsets on one node.
// What devices a pod gets is worked out in allocate.go, share.go, flow.go, counters.go, wide.go, mapped.go and extended.go, and
// fails.go says where kube-scheduler would not come to them. slots.go deals a promise out to pods, hold.go and replace.go look at one
// that is made. predict.go and the files that begin so say what kube-scheduler says of one pod on one node: test/oracle holds
// them, and what is decided, against it. takes.go is what both count by: what a pod takes of a node is counted nowhere else. memory.go
// and alike.go remember; a new input of a decision belongs into their keys. record.go, reasons.go and state.go are for people.
package admission
