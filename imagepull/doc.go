// Package imagepull is the place for pulling the images of a pod's next revision
// ahead of its upgrade, straight through containerd.
//
// Nothing is pulled yet. Package ota honours the condition PodImageReady of a
// pod where something else sets it.
package imagepull
