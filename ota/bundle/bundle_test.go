package bundle

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/edgehub-io/edgehub/ota/api"
)

// newKey returns the same key for the same letter.
func newKey(letter byte) ed25519.PrivateKey {
	seed := make([]byte, ed25519.SeedSize)
	seed[0] = letter
	return ed25519.NewKeyFromSeed(seed)
}

// entry is a value of the ConfigMap.
func entry(t *testing.T, key ed25519.PrivateKey, namespaces, notAfter string) string {
	t.Helper()
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})
	return "publicKey: |\n  " + strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n  ") + "\nnamespaces: " + namespaces + "\nnotAfter: " + notAfter + "\n"
}

// issued is when the bundles of these tests are: the beginning of time in a synctest bubble is a day before.
var issued = time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC)

// newBundle brings revision 7 of DaemonSet shop/web, v2, to pods of v1.
func newBundle() Bundle {
	return Bundle{
		Kind: "DaemonSet", Namespace: "shop", Name: "web", UID: "w",
		Target: api.Target{Revision: "v2", Number: 7, Containers: []api.TargetImage{{Name: "app", Image: "app:v2"}, {Name: "log", Image: "log:v1"}}},
		Bases:  map[string][]api.ImageChange{"v1": {{Name: "app", From: "app:v1", To: "app:v2"}}},
		Images: map[string]digest.Digest{"app:v2": digest.FromString("app:v2")},
		Issued: issued, Expires: issued.Add(30 * 24 * time.Hour),
	}
}

func sign(t *testing.T, b Bundle, key ed25519.PrivateKey) []byte {
	t.Helper()
	envelope, err := b.Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	return envelope
}

// signAny signs what Sign would not.
func signAny(t *testing.T, payloadType, payload string, key ed25519.PrivateKey) []byte {
	t.Helper()
	signer, err := dsse.NewEnvelopeSigner(ed25519Key{private: key})
	if err != nil {
		t.Fatal(err)
	}
	e, err := signer.SignPayload(t.Context(), payloadType, []byte(payload))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestWhatIsNoUpgradeIsNeitherSignedNorOpened(t *testing.T) {
	key := newKey('a')
	keys, err := ParseKeys(map[string]string{"alice": entry(t, key, "[shop]", "2001-01-01T00:00:00Z")})
	if err != nil || len(keys) != 1 {
		t.Fatal(keys, err)
	}
	if b, by, err := Open(sign(t, newBundle(), key), keys); err != nil || by.Name != "alice" || b.Target.Revision != "v2" {
		t.Fatal(b, by, err)
	}
	for name, change := range map[string]func(*Bundle){
		"no UID":       func(b *Bundle) { b.UID = "" },
		"another kind": func(b *Bundle) { b.Kind = "Deployment" },
		"no number":    func(b *Bundle) { b.Target.Number = 0 },
		"no container": func(b *Bundle) { b.Target.Containers = nil },
		"more images than a pod has": func(b *Bundle) {
			for range 100 {
				b.Target.Volumes = append(b.Target.Volumes, api.TargetImage{Name: "v", Image: "v:1"})
			}
		},
		"no base":                 func(b *Bundle) { b.Bases = nil },
		"a base without a change": func(b *Bundle) { b.Bases["v0"] = nil },
		"a change to another":     func(b *Bundle) { b.Bases["v1"][0].To = "app:v3" },
		"a change of nothing":     func(b *Bundle) { b.Bases["v1"][0].From = "app:v2" },
		"a digest of another":     func(b *Bundle) { b.Images["other"] = digest.FromString("other") },
		"another digest than named": func(b *Bundle) {
			image := "app@" + digest.FromString("a").String()
			b.Target.Containers[0].Image, b.Bases["v1"][0].To = image, image
			b.Images = map[string]digest.Digest{image: digest.FromString("b")}
		},
		"a digest that is none":     func(b *Bundle) { b.Images["app:v2"] = "sha256:../../etc" },
		"ends before it begins":     func(b *Bundle) { b.Expires = b.Issued.Add(-time.Second) },
		"counts for too long":       func(b *Bundle) { b.Expires = b.Issued.Add(MaxValidity + time.Second) },
		"has no time when it began": func(b *Bundle) { b.Issued = time.Time{} },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBundle()
			change(&b)
			if _, err := b.Sign(key); err == nil {
				t.Error("it was signed")
			}
			payload, err := json.Marshal(b)
			if err != nil {
				t.Fatal(err)
			}
			_, _, err = Open(signAny(t, PayloadType, string(payload), key), keys)
			if _, ok := errors.AsType[*RefusedError](err); !ok || !strings.Contains(err.Error(), "what key alice has signed is no upgrade") {
				t.Error(err)
			}
		})
	}
}

func TestABundleThatNoNodeReadsIsNotSigned(t *testing.T) {
	b := newBundle()
	for i := range 3000 {
		b.Bases[strings.Repeat("x", 100)+strconv.Itoa(i)] = b.Bases["v1"]
	}
	if _, err := b.Sign(newKey('a')); err == nil || !strings.Contains(err.Error(), "may have") {
		t.Error(err)
	}
}

// Whatever is changed of an envelope, nobody has signed that.
func TestAChangedEnvelopeIsRefused(t *testing.T) {
	key := newKey('a')
	keys, _ := ParseKeys(map[string]string{"alice": entry(t, key, `["*"]`, "2001-01-01T00:00:00Z")})
	var e dsse.Envelope
	if err := json.Unmarshal(sign(t, newBundle(), key), &e); err != nil {
		t.Fatal(err)
	}
	payload, err := e.DecodeB64Payload()
	if err != nil {
		t.Fatal(err)
	}
	for i := range payload {
		changed := e
		other := append([]byte(nil), payload...)
		other[i] ^= 1
		changed.Payload = base64.StdEncoding.EncodeToString(other)
		text, _ := json.Marshal(changed)
		if _, _, err := Open(text, keys); err == nil || !strings.Contains(err.Error(), "none of the keys") {
			t.Fatalf("byte %d is another: %v", i, err)
		}
	}
	many := e
	for range maxSignatures {
		many.Signatures = append(many.Signatures, e.Signatures[0])
	}
	signatures, _ := json.Marshal(many)
	for name, tt := range map[string]struct {
		envelope []byte
		keys     []Key
		says     string
	}{
		"not JSON":                  {[]byte("{"), keys, "no signed bundle"},
		"no signature":              {[]byte(`{"payloadType":"` + PayloadType + `","payload":"e30=","signatures":[]}`), keys, "no signed bundle"},
		"a signature that is none":  {[]byte(`{"payloadType":"` + PayloadType + `","payload":"e30=","signatures":[{"sig":"!"}]}`), keys, "none of the keys"},
		"signed again and again":    {signatures, keys, "5 signatures, and may have 4"},
		"longer than any":           {append(sign(t, newBundle(), key), strings.Repeat(" ", api.MaxUpgradeBundle)...), keys, "no signed bundle"},
		"something else is signed":  {signAny(t, "text/plain", "{}", key), keys, "of type"},
		"what is signed is no JSON": {signAny(t, PayloadType, "{", key), keys, "cannot be read"},
		"another key":               {sign(t, newBundle(), newKey('b')), keys, "none of the keys"},
		"no keys":                   {sign(t, newBundle(), key), nil, "knows no key"},
	} {
		if _, _, err := Open(tt.envelope, tt.keys); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAKeyMayBeNamedTwice(t *testing.T) {
	key := newKey('a')
	keys, err := ParseKeys(map[string]string{
		"a-factory": entry(t, key, "[factory]", "2003-01-01T00:00:00Z"), "b-shop": entry(t, key, "[shop]", "2001-01-01T00:00:00Z"),
		"c-shop": entry(t, key, "[shop]", "2002-01-01T00:00:00Z"), "d-shop": entry(t, key, "[shop]", "2001-01-01T00:00:00Z"), "e-other": entry(t, newKey('b'), "[shop]", "2004-01-01T00:00:00Z"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, by, err := Open(sign(t, newBundle(), key), keys); err != nil || by.Name != "c-shop" {
		t.Errorf("it counts as signed by %q, %v", by.Name, err)
	}
}

func TestKeysThatCannotBeReadDoNotCount(t *testing.T) {
	key := newKey('a')
	good := entry(t, key, "[shop, factory]", `"2001-01-01T00:00:00Z"`)
	keys, err := ParseKeys(map[string]string{
		"alice": good, "b-none": "", "b-yaml": "{", "b-field": good + "more: 1\n", "b-namespaces": entry(t, key, "[]", "2001-01-01T00:00:00Z"),
		"b-time": strings.Replace(good, "notAfter", "#", 1), "b-pem": "publicKey: abc\nnamespaces: [shop]\nnotAfter: 2001-01-01T00:00:00Z",
		"b-kind": "publicKey: |\n  -----BEGIN PUBLIC KEY-----\n  AAAA\n  -----END PUBLIC KEY-----\nnamespaces: [shop]\nnotAfter: 2001-01-01T00:00:00Z",
	})
	if len(keys) != 1 || keys[0].Name != "alice" || !keys[0].MayFor("factory") || keys[0].MayFor("other") || keys[0].NotAfter.Year() != 2001 {
		t.Errorf("%+v", keys)
	}
	if err == nil || strings.Count(err.Error(), "does not count") != 7 {
		t.Error(err)
	}
	many := map[string]string{}
	for i := range maxKeys + 1 {
		many[string(rune('a'+i/26))+string(rune('a'+i%26))] = good
	}
	if keys, err := ParseKeys(many); len(keys) != maxKeys || err == nil {
		t.Error(len(keys), err)
	}
}

func TestAPrivateKeyIsReadAsOpenSSLWritesIt(t *testing.T) {
	der, err := x509.MarshalPKCS8PrivateKey(newKey('a'))
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	if key, err := ReadPrivateKey(text); err != nil || !key.Equal(newKey('a')) {
		t.Error(err)
	}
	for _, text := range []string{"", "abc", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"} {
		if _, err := ReadPrivateKey([]byte(text)); err == nil || !strings.Contains(err.Error(), "openssl genpkey") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
