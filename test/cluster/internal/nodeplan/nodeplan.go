// Package nodeplan is what the cluster passes to the first process of a node.
package nodeplan

// Ready is the file, in the node's own /run, that appears when the node's
// mounts are in place.
const Ready = "/run/node-ready"

// Plan describes what the node sees differently from the host. Empty comes first,
// then Binds in their order, then Keep.
type Plan struct {
	Empty []string // folders that are empty, in memory
	Binds []Bind
	Keep  []string // folders that must stay visible at their path
}

// Bind makes Source, a path of the host's, appear at Target.
type Bind struct {
	Source string
	Target string
}
