package bundle

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"sigs.k8s.io/yaml"
)

// The ConfigMap with the keys. Each of its values is a key, as YAML; see ParseKeys.
const (
	KeysNamespace = "kube-system"
	KeysName      = "edgehub-bundle-keys"
)

// MaxKeysAge is for how long a node goes by keys that it cannot read again: a stolen key that was removed counts no longer on any
// node.
const MaxKeysAge = 180 * 24 * time.Hour

// maxKeys bounds how many are tried.
const maxKeys = 100

// Key is a key that an admin signs bundles with.
type Key struct {
	Name       string
	Public     ed25519.PublicKey
	Namespaces []string  // those that it may sign for; "*" is all
	NotAfter   time.Time // when it ceases to count
}

// ParseKeys reads the data of the ConfigMap. A value is like
//
//	publicKey: |
//	  -----BEGIN PUBLIC KEY-----
//	  …
//	namespaces: [shop]
//	notAfter: 2027-06-30T00:00:00Z
//
// It returns the keys that can be read, by name, also with an error, which has a line for each of the others.
func ParseKeys(data map[string]string) ([]Key, error) {
	var keys []Key
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(data)) {
		key, err := parseKey(name, data[name])
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("key %s of ConfigMap %s/%s does not count: %w", name, KeysNamespace, KeysName, err))
		case len(keys) == maxKeys:
			errs = append(errs, fmt.Errorf("key %s of ConfigMap %s/%s does not count: there are more than %d", name, KeysNamespace, KeysName, maxKeys))
		default:
			keys = append(keys, key)
		}
	}
	return keys, errors.Join(errs...)
}

func parseKey(name, value string) (Key, error) {
	var v struct {
		PublicKey  string    `json:"publicKey"`
		Namespaces []string  `json:"namespaces"`
		NotAfter   time.Time `json:"notAfter"`
	}
	if err := yaml.UnmarshalStrict([]byte(value), &v); err != nil {
		return Key{}, fmt.Errorf("want YAML with publicKey, namespaces and notAfter: %w", err)
	}
	block, _ := pem.Decode([]byte(v.PublicKey))
	if block == nil {
		return Key{}, errors.New("publicKey is not PEM: `openssl pkey -in KEY -pubout` writes it")
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	public, ok := parsed.(ed25519.PublicKey)
	switch {
	case err != nil || !ok:
		return Key{}, errors.New("publicKey is no ed25519 key: `openssl genpkey -algorithm ed25519` makes one")
	case len(v.Namespaces) == 0:
		return Key{}, errors.New(`it names no namespaces: "*" is all`)
	case v.NotAfter.IsZero():
		return Key{}, errors.New("it has no notAfter, such as 2027-06-30T00:00:00Z")
	}
	return Key{name, public, v.Namespaces, v.NotAfter}, nil
}

// MayFor reports whether it may sign for a namespace.
func (k Key) MayFor(namespace string) bool {
	return slices.Contains(k.Namespaces, namespace) || slices.Contains(k.Namespaces, "*")
}

// ReadPrivateKey reads a key from PEM, as `openssl genpkey -algorithm ed25519` writes it.
func ReadPrivateKey(text []byte) (ed25519.PrivateKey, error) {
	const want = "want an ed25519 key that is not encrypted, as `openssl genpkey -algorithm ed25519` writes it"
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("it is not PEM: " + want)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	key, ok := parsed.(ed25519.PrivateKey)
	if err != nil || !ok {
		return nil, errors.New(want)
	}
	return key, nil
}
