// Package convert turns objects of built-in types from protobuf into JSON and back,
// where what is kept is not in the encoding that a client asks for, and reads and
// writes the bodies of the few requests that are answered without an apiserver.
//
// It decodes, which is what the rest of the cache never does: a pod of some KB costs
// tens of µs and hundreds of allocations. So it is for the case that nothing in the
// right encoding is at hand.
//
// # What is lost
//
// A type is what k8s.io/api of this program's version knows of it. Fields that a newer
// apiserver has added are dropped. Types that it has added, those of alpha and beta
// versions, and custom resources are [ErrUnknownType]. Nothing is defaulted. Only
// [Metadata] needs no type.
//
// There is no state here; everything is safe for concurrent use. Bytes that are handed
// in are not kept, and not changed.
package convert
