// Package inplace carries out upgrades of pods while the cloud is away, without another pod: kubelet is shown the same pod with
// the new images, and restarts the containers that differ. When the cloud is back, the hub reports it, and the controller gives the pod the images that
// run. So nothing restarts then.
//
// A [Record] is the state of one upgrade, and a value: it has no client, no clock and no disk. A [Journal] has the records of a
// node's pods, each in a file. A transition is a new file in place of the old one (package podfiles), and only then counts, for
// kubelet and everybody else.
//
//	Shown      kubelet is shown the new images
//	Probation  a new container was seen
//	Passed     the pod was Ready for long enough, and the owner's checks have passed
//	Offered    the cloud may know, and may follow
//	Confirmed  the cloud has other images than before: the new ones, or what somebody has set there
//	Undoing    kubelet is shown the cloud's images again
//	Undone     they run
//
// The order is that of the list up to Confirmed. Undoing follows on Shown and Probation, by what kubelet reports or does not
// report, and on Passed, if the owner wants it: after that, only the cloud can go back. A record ends with its pod: the next pod
// of the same name has another UID.
//
// # What kubelet reads
//
// [Journal.Images] is asked for each object of the cloud that kubelet is about to read, with and without the cloud, by UID. An
// object with the images of before is shown with the new ones until Confirmed, and after that if it is older than what has
// confirmed it: apiservers may lag. Any other images are somebody's decision, and pass. Connectivity never decides.
//
// kubelet's watch may stay open for minutes, and its hub may die between a file and the event for it. So each of its watches
// begins with the pods of all records but Confirmed ones ([Journal.Changes]), those that were undone as well.
//
// # Probation
//
// Only what kubelet reports of containers by their IDs decides, as it comes by the hub's watch of the node's pods
// ([Journal.Update]). The time is that which the hub has run: clocks of nodes jump.
//
// A pod that was Ready for long enough is [Record.Due]: the owner's checks run ([Options.OwnersChecks], package hub/checks), and their
// outcome is an input as any other ([Record.Checked]). Nothing of them is on disk before that: a hub that starts has the pod be
// Ready for long enough again, and runs all of them anew.
//
// # After a crash
//
// The file decides, and it is read before the hub serves anybody. Without a file the old version runs, and nobody was told
// otherwise. With a file the new images are shown, again: kubelet starts no container anew for images that it knows. A file that
// is damaged is set aside, and the pod is shown as the cloud has it.
package inplace
