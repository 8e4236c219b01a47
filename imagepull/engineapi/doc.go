// Package engineapi has the types of requests to the engine and of its answers: what to pull
// and with which credentials, how far it is, what is on the node then, or why it is not. It
// depends on no client of containerd.
package engineapi
