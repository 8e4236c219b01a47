// Package imagepull pulls the images of a pod's next revision ahead of its
// upgrade, straight through containerd. See README.md for how it is built.
package imagepull
