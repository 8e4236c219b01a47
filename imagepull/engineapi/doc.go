// Package engineapi is what those who want an image and the engine that pulls it say to
// each other: what to pull and with which credentials, how far it is, what is on the node
// then, or why it is not. It depends on no client of containerd.
package engineapi
