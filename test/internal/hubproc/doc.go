// Package hubproc runs hubs for tests: each is a process of its own, seen over HTTP
// only, with a link between it and the apiserver that fails on demand.
//
// A Hub is for one goroutine at a time, and ends with its test.
package hubproc
