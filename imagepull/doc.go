// Package imagepull pulls the images of a pod's next revision ahead of its upgrade,
// straight through containerd. A Puller takes requests, reconciles its jobs with the node's
// pods, and runs the workers; which image is next, which images stay on the node, and what
// pods report are its packages queue, retention and condition. README.md describes how they
// work together.
//
// A resumed pull: a request is a file (job.Store) before it is answered, so a restarted hub
// reads it in New, and queue makes a task of each image that the file does not call ready. A
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
