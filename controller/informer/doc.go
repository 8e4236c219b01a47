// Package informer watches what a reconcile reads: all DaemonSets, all nodes once a
// rollout needs them, and the pods and ControllerRevisions of each DaemonSet that opted in.
//
// Objects are trimmed before they are kept: memory grows with the pods of the DaemonSets
// that opted in, not with the cluster. Changes that no reconcile reads, such as heartbeats,
// cause no call. What is returned is shared with the informers and must not be changed.
package informer
