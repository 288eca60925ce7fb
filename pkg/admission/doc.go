// Package admission decides, for one Workload against one snapshot of the ledger, whether all of its pods can be
// placed on one flavor, where and with which devices, and if not, why not.
//
// Decide is pure: the same snapshot and request give the same decision. It writes nothing, and it neither knows nor
// changes quota, which is Kueue's.
package admission
