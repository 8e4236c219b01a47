// Package wire reads and writes the bytes that Kubernetes clients and apiservers
// exchange, without decoding objects: lists are split into items and put together
// again, watch streams are cut into frames, and of an object only its metadata is
// looked at. It serves built-in types and custom resources alike, protobuf and JSON.
//
// # Forms of an object
//
// An object is self-describing where it stands alone, in the body of a GET or in a
// watch event, and bare in a list of a built-in type:
//
//	          self-describing                           bare
//	protobuf  k8s\0 + runtime.Unknown{typeMeta, raw}    raw
//	JSON      {"kind":…,"apiVersion":…,"metadata":…}    {"metadata":…}
//
// [AppendBare] makes the one form from the other and [AppendObject] goes back. Custom
// resources are written from maps with sorted keys: they carry apiVersion and kind in
// lists too, and their bare form is the form that came.
//
// # What is trusted
//
// Nothing. What two readers could understand differently (keys that occur twice) is
// refused with an error, as is what could not be written again, what is cut short, nested
// too deep or too long. Refusing is harmless: the bytes pass on to the client, and are not
// kept.
//
// The contents of a protobuf object cannot be checked without its type; a bare message
// is checked at its top level and in its ObjectMeta. JSON is checked throughout, but for
// UTF-8: clients replace what is not, and so it is done with what is read here.
//
// # Parts
//
// Package jsonscan finds values in JSON and knows nothing of Kubernetes. Lists, frames and
// objects stay together here, because each of them reads the metadata of objects, in both
// encodings: packages of their own would have to export how that is done. Which
// representation a client takes is for package negotiation.
//
// # Memory and concurrency
//
// Nothing holds more than one item or one frame, up to a limit. Byte slices that are
// handed out point into the bytes that came: how long they hold is said where they are
// handed out. Values of this package are for one goroutine at a time; there is no state
// beside them. Compressed bodies are for the caller to undo.
package wire
