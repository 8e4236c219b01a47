// Package secretscan looks for secrets that a test has planted, in clear and as base64
// has them, in whatever the product has written or answered.
package secretscan

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
)

// Found returns what of secret a text has: the secret itself, or the middle of it as
// base64 has it, in each of the three ways in which it may lie there, so that what
// stands around it does not matter, or as hexadecimal. A secret has to have eight
// bytes or more.
func Found(text, secret string) []string {
	var out []string
	if strings.Contains(text, secret) {
		out = append(out, secret)
	}
	standard := strings.NewReplacer("-", "+", "_", "/").Replace(text) // for use in URLs
	for offset := range 3 {
		encoded := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("x", offset) + secret))
		// The first four characters and the last two have something of what is around it.
		if middle := encoded[4 : len(encoded)-2]; strings.Contains(standard, middle) {
			out = append(out, middle)
		}
	}
	if encoded := hex.EncodeToString([]byte(secret)); strings.Contains(strings.ToLower(text), encoded) {
		out = append(out, encoded)
	}
	return out
}
