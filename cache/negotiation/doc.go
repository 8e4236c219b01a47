// Package negotiation finds the representations that a client accepts, and that of an answer, by
// the rules of an apiserver: Accept, Content-Type, and their parameter "as" for metadata or a
// Table. Everything is safe for concurrent use.
package negotiation
