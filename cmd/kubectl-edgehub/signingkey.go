package main

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/ota/bundle"
)

// keysMap is the ConfigMap with the keys, for people.
const keysMap = "ConfigMap " + bundle.KeysNamespace + "/" + bundle.KeysName

// keyFor returns the name that nodes know a key by, "" if the admin may not read the ConfigMap. It fails if nodes would refuse what the
// key signs, and prints what the ConfigMap needs.
func (c *call) keyFor(ctx context.Context, to *cluster, public ed25519.PublicKey, b *bundle.Bundle) (string, error) {
	const edit = "as above (kubectl edit configmap -n " + bundle.KeysNamespace + " " + bundle.KeysName + "); nodes read it while they are online"
	inAYear := b.Issued.AddDate(1, 0, 0).Truncate(24 * time.Hour)
	fresh := bundle.Key{Name: keyName(c.signing.key), Public: public, Namespaces: []string{b.Namespace}, NotAfter: inAYear}
	m, err := to.client.CoreV1().ConfigMaps(bundle.KeysNamespace).Get(ctx, bundle.KeysName, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		fmt.Fprintf(c.err, "warning: it is not known whether nodes take this key: %v\n", err)
		return "", nil
	case apierrors.IsNotFound(err):
		fmt.Fprintf(c.err, "kubectl apply -f - <<'EOF'\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  namespace: %s\n  name: %s\ndata:\n%sEOF\n", bundle.KeysNamespace, bundle.KeysName, entry(fresh))
		return "", fmt.Errorf("there is no %s, so nodes take no bundle: create it as above; nodes read it while they are online", keysMap)
	case err != nil:
		return "", err
	}
	keys, problems := bundle.ParseKeys(m.Data)
	at := slices.IndexFunc(keys, func(k bundle.Key) bool { return k.Public.Equal(public) })
	if at < 0 {
		fmt.Fprint(c.err, entry(fresh))
		err = fmt.Errorf("%s does not have this key: add it to the data %s", keysMap, edit)
		return "", errors.Join(err, problems)
	}
	key := keys[at]
	until, left := key.NotAfter.UTC().Format(time.RFC3339), key.NotAfter.Sub(b.Issued).Truncate(time.Minute)
	switch {
	case !key.MayFor(b.Namespace):
		key.Namespaces = append(slices.Clone(key.Namespaces), b.Namespace)
		fmt.Fprint(c.err, entry(key))
		return "", fmt.Errorf("key %s may not sign for namespace %s: change it in %s %s", key.Name, b.Namespace, keysMap, edit)
	case left <= 0:
		key.NotAfter = inAYear
		fmt.Fprint(c.err, entry(key))
		return "", fmt.Errorf("key %s counted until %s: sign with another one, or change it in %s %s", key.Name, until, keysMap, edit)
	case key.NotAfter.Before(b.Expires):
		return "", fmt.Errorf("key %s counts until %s only, before the bundle expires: give --valid-for=%v at most, or the key a later notAfter in %s", key.Name, until, left, keysMap)
	}
	return key.Name, nil
}

// keyName is the name of a key by that of its file, as a ConfigMap permits it.
func keyName(path string) string {
	base := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	base = strings.Map(func(r rune) rune {
		if strings.ContainsRune("-._", r) || r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return r
		}
		return '-'
	}, base)
	return cmp.Or(strings.Trim(base, "."), "key")
}

// entry is a key as it stands in the data of the ConfigMap.
func entry(k bundle.Key) string {
	der, err := x509.MarshalPKIXPublicKey(k.Public)
	if err != nil {
		panic("encode public key: " + err.Error()) // an ed25519 key is what it takes
	}
	namespaces, err := json.Marshal(k.Namespaces)
	if err != nil {
		panic("encode namespaces: " + err.Error()) // they are strings
	}
	text := strings.TrimSpace(string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})))
	return fmt.Sprintf("  %s: |\n    publicKey: |\n      %s\n    namespaces: %s\n    notAfter: %s\n",
		k.Name, strings.ReplaceAll(text, "\n", "\n      "), namespaces, k.NotAfter.UTC().Format(time.RFC3339))
}
