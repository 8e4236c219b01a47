// Package wire reads and writes the bytes that Kubernetes clients and apiservers exchange,
// without decoding objects: it splits lists into items and writes lists from items, cuts watch
// streams into frames, and reads only the metadata of objects. It handles built-in types and
// custom resources alike, in protobuf and JSON. It also finds the [Representation] that a client
// accepts, and that of an answer, by the rules of an apiserver: Accept, Content-Type, and their
// parameter "as" for metadata or a Table.
//
// # Forms of an object
//
// An object is self-describing in the body of a GET and in a watch event, and bare in a list
// of a built-in type:
//
//	          self-describing                           bare
//	protobuf  k8s\0 + runtime.Unknown{typeMeta, raw}    raw
//	JSON      {"kind":…,"apiVersion":…,"metadata":…}    {"metadata":…}
//
// [AppendBare] makes a bare object of a self-describing one, and [AppendObject] does the
// reverse. Apiservers write custom resources from maps with sorted keys, with apiVersion and
// kind also in lists: their bare form is what the apiserver sent.
//
// # Validation
//
// Input is untrusted. An error refuses what is cut short, too large or nested too deep, what two
// readers could understand differently (keys that occur twice), and what could not be written
// again. Refusing is harmless: the client gets the bytes, and the cache does not keep them.
//
// A protobuf object cannot be checked without its type: only its top level and its ObjectMeta
// are. JSON is checked throughout, except for UTF-8: like clients, this package replaces
// invalid UTF-8 in what it reads.
//
// # Memory and concurrency
//
// A reader holds at most one item or frame, up to a limit. Returned byte slices point into the
// input; each function documents how long they are valid. A value of this package is for one
// goroutine at a time; there is no other state. Callers decompress bodies.
package wire
