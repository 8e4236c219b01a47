// Package patch works out what a PUT or a PATCH makes of an object, as an apiserver
// would, for the few that are answered while there is none: strategic merge patches,
// JSON merge patches and JSON patches, of built-in types.
//
// It does what protects one writer from another (names, UIDs, resourceVersions) and what
// keeps an object readable. Validation, admission, defaults and field managers are the
// apiserver's alone: the client sends what it has to say again when the cloud is back,
// and hears then what is wrong with it. Server-side apply is not supported for this
// reason: it is nothing without field managers.
//
// There is no state here; everything is safe for concurrent use.
package patch
