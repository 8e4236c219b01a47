// Package imagepull pulls the images of a pod's next revision ahead of its upgrade,
// straight through containerd. README.md shows the flow from POST …/imagepull to containerd and back.
//
// Each state has one owner. The queue (queue.go) has the node's pods, as the watch last showed them; the job of each pod,
// which is also a file; and a task for each image that a job wants, with how far it is and whether it is on the node. What
// a pull has fetched, and what keeps images on the node, is in containerd's content, leases and labels. others.go has the
// images that stay for another reason. What the cloud is told of a pod follows from its job (condition.go).
//
// A resumed pull: a request is a file before it is answered, so a restarted hub
// reads it in New, and the queue makes a task of each image that the file does not call ready. A
// worker takes the task, reads the credentials anew (credentials.go), and calls engine.Pull,
// which asks the registry what the name stands for now. Manifests, layers and the image's
// lease are still in containerd from the pull before: the lease has kept them, so layers that
// are complete or unpacked are skipped. The layer that was cut off is an ingest of containerd
// with an offset. Engine fetches it from that offset with a Range request (engine/fetch.go,
// engine/download.go); a registry that ignores Range sends all of it, and the start is
// dropped. Only when the layer is complete can its digest be verified: if it is wrong, it is
// fetched once more from the start. Within one pull a broken connection is resumed the same
// way, at most three times without progress; after that the task fails, keeps what it has,
// and is due again after a backoff, as soon as the cloud or containerd is back, or when it is
// asked for again. When the image is complete it is unpacked and pinned, the job's file says
// so, and the pod's condition becomes True.
package imagepull
