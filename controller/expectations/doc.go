// Package expectations remembers the deletions of pods that have been sent, until the
// watch shows them, as the controllers of Kubernetes do. Without it, a reconcile that runs
// before the watch catches up would delete the same pod again, or one too many.
package expectations
