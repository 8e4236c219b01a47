// Package config is the hub's command line: its flags, their defaults, and what they mean
// together.
//
// [Options] are the flags as they were given, [Options.Config] checks them all at once, and
// [Config] is what the hub runs with. Nothing here reads a file or opens a port, so that
// edgehub install can check the flags of a hub that it is about to start.
package config
