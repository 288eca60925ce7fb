// Package simulate says what a simulated run came to: its result as the JSON and the table that "kubectl plimsoll
// simulate" prints, and two results beside each other. It runs nothing and decides nothing: whoever ran the cluster
// fills in a Result, and every figure here is counted from what is in it.
package simulate
