// Package relist has views follow the apiservers where no watch can: it lists a view again
// that its watches have got ahead of, or that could not be kept, and works out which events
// stand for what the list has changed.
//
// # A list
//
// A view is listed once, whoever needs it: the first asks upstream in the background, with
// the credentials of a request whose sender may read the view, and the others wait for the
// same [Call]. While a view is listed, events that it cannot take yet wait in it. What the
// list has changed becomes events for watches that the apiservers have forgotten: first what
// is gone, at the version of before, then what is there, in the order of versions. Open
// watches do not have a view listed at once that was evicted, or could not be kept.
//
// # A store that was restored
//
// Where an apiserver's newest state is older than what clients have seen, its store was
// restored from a backup. Versions name other objects then, so all views of that store are
// dropped, and what is known of single objects with them.
//
// # Concurrency
//
// A [Lister] and [Outages] are safe for concurrent use. The lock of what is known of one
// view's lists is taken after no other lock but that of evictions, and nothing waits for an
// apiserver under it.
package relist
