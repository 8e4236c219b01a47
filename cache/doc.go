// Package cache is the place for what a node reads while it is online, so that
// it can read the same while the cloud is away.
//
// Nothing is kept yet: while no apiserver can be reached, the hub answers 503
// with Retry-After. Nothing may import this package but package hub and the
// packages that hub is made of.
package cache
