// Package podclient patches and deletes many pods at once, and finds out what became of
// each: done, gone already, a conflict that goes away by looking again, refused, or unknown.
// One pod's failure does not end a batch.
package podclient
