// Package keyring finds the credentials that a registry is asked with for an
// image, in the order in which kubelet tries them: those of the pod's
// imagePullSecrets first, then those that the node itself has.
//
//	secrets := keyring.New(first, second)          // in the order of imagePullSecrets
//	all := keyring.Union(secrets, keyring.New(node))
//	credentials := all.Lookup("registry.example.com/shop/web:1.2")
//
// It matches as kubelet's credentialprovider package does, down to its oddities:
// a credential that works for kubelet must work here, and one that kubelet would
// not send to a registry must not be sent. There are three differences. Where
// kubelet pulls nothing because one secret of several cannot be read, the others
// are used. An identity token is read, which kubelet passes over. And of equal
// credentials one is tried. Plugins (--image-credential-provider-config) are not
// asked.
//
// Keyrings do not change and are safe for concurrent use. They print as a count,
// whatever the verb: what they hold is in the result of Lookup only.
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

// ring is sorted by pattern, backwards, so that of two patterns of one host that
// with the longer path comes first; a pattern's entries are in the order in which
// they were given.
type ring []entry

// New returns a keyring of what the secrets or files contain. Of those that match an
// image in the same words, the first given comes first.
func New(sources ...Entries) Keyring {
	all := ring(slices.Concat(sources...))
	slices.SortStableFunc(all, func(a, b entry) int { return cmp.Compare(b.pattern, a.pattern) })
	return Keyring{rings: []ring{all}}
}

// Union returns a keyring that finds what all of keyrings find, one after the
// other: a match in the first, however vague, comes before any in the second.
func Union(keyrings ...Keyring) Keyring {
	var all Keyring
	for _, k := range keyrings {
		all.rings = append(all.rings, k.rings...)
	}
	return all
}

// Lookup returns the credentials for image, a reference as it stands in a pod, in
// the order in which they are to be tried. None are found for what is no reference.
// A credential without user, password and token means: ask without.
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

// match falls back to what is known of Docker Hub by its first name, which no
// image has any more. What is known of docker.io takes precedence, and replaces it.
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

// equal reports whether a registry would see no difference.
func equal(a, b engineapi.Credential) bool {
	a.Source, b.Source = "", ""
	a.Namespace, b.Namespace = "", ""
	return a == b
}

// Format keeps credentials out of every verb: fmt does not ask the fields of a
// struct how they want to be printed, unless they are exported.
func (k Keyring) Format(f fmt.State, _ rune) {
	n := 0
	for _, r := range k.rings {
		n += len(r)
	}
	fmt.Fprintf(f, "keyring of %d", n)
}
