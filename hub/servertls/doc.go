// Package servertls has the TLS of the ports that offer it: the serving certificate
// ([Certificate]), which is self-signed unless one is named, and the CAs of the client
// certificates that may use the node's HTTP API ([ClientCAs]).
//
// Both follow changes of their files. A file that cannot be read leaves the last good
// contents in use, and is logged once. Both are safe for concurrent use.
package servertls
