// Package convert converts objects of built-in types between protobuf and JSON, for clients that
// ask for another encoding than the cached one. It also reads and writes the bodies of the few
// requests that are answered without an apiserver.
//
// Unlike the rest of the cache, it decodes objects: a pod of some KB costs tens of µs and hundreds
// of allocations. So it is used only if no object in the right encoding is cached.
//
// # What is lost
//
// Types are those of this program's version of k8s.io/api. Fields that a newer apiserver has added
// are dropped. Newer types, those of alpha and beta versions, and custom resources are
// [ErrUnknownType]. Nothing is defaulted. Only [Metadata] needs no type.
//
// The package has no state: everything is safe for concurrent use. It neither keeps nor changes
// the bytes that it gets.
package convert
