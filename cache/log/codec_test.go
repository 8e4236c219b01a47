package log

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"
)

// From the specification, c2sp.org/XAES-256-GCM.
func TestXAES(t *testing.T) {
	for _, tt := range []struct {
		name string
		key  byte
		aad  string
		want string
	}{
		{"the top bit of the subkey is clear", 1, "", "ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271"},
		{"the top bit of the subkey is set", 3, "c2sp.org/XAES-256-GCM", "986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x := newXAES([32]byte(bytes.Repeat([]byte{tt.key}, 32)))
			nonce := []byte("ABCDEFGHIJKLMNOPQRSTUVWX")
			sealed := x.sealNonce(nil, nonce, []byte("XAES-256-GCM"), []byte(tt.aad))
			if got := hex.EncodeToString(sealed); got != tt.want {
				t.Fatalf("got %s, want %s", got, tt.want)
			}
			plain, err := x.open(append(nonce, sealed...), []byte(tt.aad))
			if err != nil || string(plain) != "XAES-256-GCM" {
				t.Fatalf("got %q, %v", plain, err)
			}
		})
	}
}

func TestRecordIsGoodInItsPlaceOnly(t *testing.T) {
	encrypted, err := newCodec(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]codec{"plain": {}, "encrypted": encrypted} {
		t.Run(name, func(t *testing.T) {
			where := []byte("b: this body")
			record := c.Append([]byte("before"), where, []byte("value"))[len("before"):]
			if len(record) != c.Size(len("value")) {
				t.Errorf("it has %d bytes, and Size is %d", len(record), c.Size(len("value")))
			}
			if value, err := c.Open(where, record); err != nil || string(value) != "value" {
				t.Fatalf("%s: got %q, %v", name, value, err)
			}
			if _, err := c.Open([]byte("b: another one"), record); !errors.Is(err, ErrCorrupt) {
				t.Errorf("a record of another place is taken: %v", err)
			}
			for i := range record {
				record[i] ^= 4
				if _, err := c.Open(where, record); !errors.Is(err, ErrCorrupt) {
					t.Errorf("a flipped bit in byte %d is not seen: %v", i, err)
				}
				record[i] ^= 4
				if _, err := c.Open(where, record[:i]); !errors.Is(err, ErrCorrupt) {
					t.Errorf("a record cut at %d is taken: %v", i, err)
				}
			}
		})
	}
}
