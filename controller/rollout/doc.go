// Package rollout decides what AdvancedRollingUpdate does next with one
// DaemonSet. It has no client and no clock: NewPlan is given what is known now and
// what was seen before, and returns which pods to delete, why the others are left
// alone, and when to call it again though nothing happened.
//
// # Which nodes count
//
// R are the Ready nodes that should run the daemon, by the scheduling rules of
// Kubernetes itself. The maximum is a number or a percentage of R. A node of R is
// unavailable while it has no pod, a terminating one, more than one, or one that is
// not available. Nodes that are not Ready are neither touched nor counted. An old pod
// that is not Ready serves nobody, so it is replaced regardless of the maximum, on
// condition that it is still as it was seen; an available one is replaced only while
// the count is below the maximum.
//
// # Pods that may not be deleted
//
// Input.Refused records which deletions failed, and until when they must not be
// retried. Such a pod counts as what it is, available or not, and comes after all others.
// The caller removes failed deletions from a plan with Revert, so that the plan's states
// of the nodes are still correct after it was carried out.
//
// A pod that is not scheduled belongs to the node that it was created for; see NodeOf.
//
// # Held by their owners
//
// The owner of a node may hold a pod, with api.HoldAnnotation, for as long as the policy
// permits. A held pod is not deleted, even if it is not Ready. It counts as what it is,
// available or not, and takes the turn of no other. The maximum counts from the first hold
// that was seen, for each pod, and not from what later ones say; see nextHold.
//
// # Rolled back by their owners
//
// A pod whose owner went back to an earlier revision stays until there is another target, whether it is
// Ready or not. It counts as what it is: while kubelet restarts its containers, as unavailable.
//
// # Images first
//
// With api.PrepullAnnotation, the pods in Plan.Pulls ask their nodes to pull the
// images of the target. A Ready pod is deleted once its node reports that the images are
// there, or has had Options.PrepullTimeout to pull them: from the request, or from when
// the node was Ready again, whichever is later. The pod records all of that, except when
// the node was Ready again. Pods that wait count as what they are, available, and come
// last.
//
// # Clocks
//
// A node's clock may be wrong by years. What a kubelet writes as the time of a
// transition is compared only with itself, to detect that there was one, and to sort
// pods. How long a pod or a node has been Ready is counted from when
// Observations first saw it so. Times that the control plane writes, such as
// creationTimestamp, are compared with Input.Now, and the two clocks should be right to
// some seconds, as Kubernetes asks for anyway. The node's own time is used only for how
// long a node has had to pull, if it was Ready at the first look: a wrong clock makes
// that no longer than from the first look, and no shorter than from the request.
//
// # After a restart
//
// Nothing has been seen for long then, and every doubt is resolved so that the
// maximum holds:
//
//   - A pod that is Ready counts as unavailable until it has been seen Ready for
//     minReadySeconds, however old it is. It is still replaced only within the maximum,
//     since only a pod that is not Ready is replaced regardless of it.
//   - A node is left alone until it has been seen Ready for NodeSettle.
//   - Deletions that the last process sent are in what is listed, provided that
//     the list is not served from a stale cache: the caller ensures that.
//   - A hold counts since when it says that it began.
//   - The exception: a pod that an owner has just rolled back counts as its Ready condition is, since
//     Input.Restarting is not known any more. NodeSettle is longer than most restarts.
//   - A circuit breaker that was open stays so, from the condition on the
//     DaemonSet; one that was about to open finds the nodes by the times that the
//     control plane wrote, and counts a node in doubt.
//
// # Circuit breaker
//
// Leaving NotReady nodes out of the count must not let a bad image take down the
// whole fleet. A node is lost when it goes NotReady while its pod of the target
// revision has not started yet or has run for less than BreakerWindow. When the
// lost nodes are at least two, at least the maximum, and more than half of the
// nodes with the target revision, the breaker opens and nothing is deleted until
// every one of them is Ready again, the target changes, or api.ContinueAnnotation names
// the target.
//
// Everything but Observations is a value, and safe for concurrent use as such.
package rollout
