// Package config has the hub's flags, their defaults, and the configuration that results.
//
// [Options] are the flags as given, [Options.Config] validates all of them at once, and
// [Config] is the configuration that the hub runs with. Nothing here reads a file or opens a
// port, so that edgehub install can check the flags of a hub that it is about to start.
package config
