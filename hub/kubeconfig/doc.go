// Package kubeconfig reads the node's identity from a kubeconfig: which apiserver is
// meant, how it is trusted, and the credentials to present to it.
//
// [Load] reads the file and every file that it refers to. Its errors name the file and
// never contain a secret of it. What the hub cannot use (credential plugins, passwords,
// impersonation, HTTPS proxies) is an error rather than ignored. The package keeps no
// state and is safe for concurrent use.
package kubeconfig
