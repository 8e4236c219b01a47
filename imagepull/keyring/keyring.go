// Package keyring finds the credentials for an image in the order in which the kubelet tries them: first
// those of the pod's imagePullSecrets, then the node's own.
//
//	secrets := keyring.New(first, second)          // in the order of imagePullSecrets
//	all := keyring.Union(secrets, keyring.New(node))
//	credentials := all.Lookup("registry.example.com/shop/web:1.2")
//
// It matches like the kubelet's credentialprovider package, including its oddities: it must find each
// credential that works for the kubelet, and none that the kubelet would not send to a registry. There
// are three differences. If one of several secrets cannot be read, the kubelet pulls nothing, and this
// package returns the others. It reads identity tokens, which the kubelet ignores. And it returns equal
// credentials once. It does not use plugins (--image-credential-provider-config).
//
// Keyrings are immutable and safe for concurrent use. They print as a count, whatever the verb: only
// Lookup returns credentials.
package keyring

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"

	"github.com/distribution/reference"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// Keyring finds credentials by image. The zero value has none.
type Keyring struct {
	rings []ring
}

// ring is sorted by pattern in descending order, so that of two patterns of one host the longer path
// comes first. Entries of one pattern are in the order of the sources.
type ring []entry

// New returns a keyring of secrets or files. Of entries with the same pattern, the earlier source's
// comes first.
func New(sources ...Entries) Keyring {
	all := ring(slices.Concat(sources...))
	slices.SortStableFunc(all, func(a, b entry) int { return cmp.Compare(b.pattern, a.pattern) })
	return Keyring{rings: []ring{all}}
}

// Union returns a keyring that finds first all matches of the first keyring, then those of the second,
// and so on.
func Union(keyrings ...Keyring) Keyring {
	var all Keyring
	for _, k := range keyrings {
		all.rings = append(all.rings, k.rings...)
	}
	return all
}

// Lookup returns the credentials to try, in order, for an image reference of a pod, and none for an
// invalid reference. A credential without user, password and token stands for an anonymous attempt.
func (k Keyring) Lookup(image string) []engineapi.Credential {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return nil
	}
	target := parse(named.Name())
	if target == nil {
		return nil
	}
	var found []engineapi.Credential
	for _, r := range k.rings {
		for _, e := range r.match(target) {
			if !slices.ContainsFunc(found, func(c engineapi.Credential) bool { return equal(c, e.credential) }) {
				found = append(found, e.credential)
			}
		}
	}
	return found
}

// match returns the entries that match target. If there are none for Docker Hub, it returns the entries
// of Docker Hub's old name, index.docker.io.
func (r ring) match(target *url.URL) []entry {
	var found []entry
	for _, e := range r {
		if e.matches(target) {
			found = append(found, e)
		}
	}
	if len(found) > 0 || !onHub(target) {
		return found
	}
	for _, e := range r {
		if e.pattern == hubIndex {
			found = append(found, e)
		}
	}
	return found
}

// equal reports whether a registry would receive the same.
func equal(a, b engineapi.Credential) bool {
	a.Source, b.Source = "", ""
	a.Namespace, b.Namespace = "", ""
	return a == b
}

// Format prints no credentials, whatever the verb: fmt does not call Format of unexported fields.
func (k Keyring) Format(f fmt.State, _ rune) {
	n := 0
	for _, r := range k.rings {
		n += len(r)
	}
	fmt.Fprintf(f, "keyring of %d", n)
}
