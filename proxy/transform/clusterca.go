package transform

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"slices"
	"strings"

	"github.com/edgehub-io/edgehub/cache/wire"
)

// followCA has the hub's CAs follow each bundle in a Secret or ConfigMap that has the cluster's CA: pods
// with a token of a Secret, and such that have the CA from elsewhere, verify the hub with it.
//
// A bundle has certificates of CAs alone: what begins with another one is a chain that a server shows.
// With a private key in it, the object stays as it is, since its certificates are somebody's own.
func followCA(o *object, secret bool, hub, cluster func() []byte) (result, error) {
	const data = 2
	encoded := secret && o.encoding == wire.JSON
	changed, key := false, false
	bare, err := edit(o.encoding, o.bare, []step{{name: "data", field: data}, {}}, func(v value) value {
		text := v.text
		if encoded {
			raw, err := base64.StdEncoding.DecodeString(text)
			if err != nil {
				return v
			}
			text = string(raw)
		}
		key = key || strings.Contains(text, "PRIVATE KEY-----")
		if !isBundle(text, cluster) {
			return v
		}
		changed = true
		if text = follow(text, hub()); encoded {
			text = base64.StdEncoding.EncodeToString([]byte(text))
		}
		return value{text: text}
	})
	if err != nil || key || !changed {
		return result{bare: o.bare}, err
	}
	return result{bare: bare, changed: true}, nil
}

// isBundle reports whether a text has certificates of CAs, no others, and one of cluster's.
func isBundle(text string, cluster func() []byte) bool {
	if !strings.Contains(text, "-----BEGIN CERTIFICATE-----") { // of nearly all
		return false
	}
	certificates := parse([]byte(text))
	if slices.ContainsFunc(certificates, func(c *x509.Certificate) bool { return !c.IsCA }) {
		return false
	}
	trusted := parse(cluster())
	return slices.ContainsFunc(certificates, func(c *x509.Certificate) bool { return slices.ContainsFunc(trusted, c.Equal) })
}

// parse returns the certificates in PEM. What cannot be parsed is left out, as by those who verify.
func parse(text []byte) (all []*x509.Certificate) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			all = append(all, c)
		}
	}
	return all
}

// follow returns a bundle followed by CAs.
func follow(bundle string, cas []byte) string {
	if bundle != "" && !strings.HasSuffix(bundle, "\n") {
		bundle += "\n"
	}
	return bundle + string(cas)
}
