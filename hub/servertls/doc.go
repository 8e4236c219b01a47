// Package servertls configures the ports with TLS: with the serving certificate
// ([Certificate]), which is self-signed by default, with another one for the secret name by which
// kubelet asks, and with the CAs of the client certificates that may use the node's HTTP API
// ([ClientCAs]).
//
// Both follow changes of their files. If a file cannot be read, the last good contents stay in
// use, and the failure is logged once. Both are safe for concurrent use.
package servertls
