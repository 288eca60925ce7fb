// Package report says what became of one Workload as a value, in the form that "kubectl plimsoll explain -o json" and
// "kubectl plimsoll simulate -o json" share. It reads objects that somebody else fetched and decides nothing: reasons
// and standings are those of the decision record, quota is what Kueue says.
package report
