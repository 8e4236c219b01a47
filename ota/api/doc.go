// Package api is the contract of the cloud, a node and their clients, none of which imports another: the annotations and
// conditions that an admin, the controller and the hub exchange through DaemonSets, StatefulSets, Nodes
// and pods; the paths of the node's HTTP API, and the types of its JSON answers. The packages below it are rules that
// several of them apply: where a pod is placed, whether a node has room for it, and why it does not run.
//
// Everything here except Prepulls is a pure function, and safe for concurrent use.
package api
