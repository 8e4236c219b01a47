// Package kubeconfig reads the node's identity from a kubeconfig: the apiserver, the CAs to
// trust, and the credentials to present.
//
// [Load] reads the file and all files that it refers to. Its errors name the file and never
// contain its secrets. Settings that the hub does not support (credential plugins, passwords,
// impersonation, HTTPS proxies) are errors; they are not ignored. The package keeps no state
// and is safe for concurrent use.
package kubeconfig
