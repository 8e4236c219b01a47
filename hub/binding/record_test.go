package binding

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestJudge(t *testing.T) {
	known := Record{Node: "n1", Service: "s1", UID: "n1"}
	tests := map[string]struct {
		known Record
		seen  Seen
		want  Verdict
	}{
		"both are equal":                                   {known, Seen{Service: "s1", Node: "n1"}, Same},
		"the Node was made anew":                           {known, Seen{Service: "s1", Node: "n2"}, Same},
		"the Node was deleted":                             {known, Seen{Service: "s1", NoNode: true}, Same},
		"the Node cannot be read":                          {known, Seen{Service: "s1"}, Same},
		"the Service was made anew":                        {known, Seen{Service: "s2", Node: "n1"}, Same},
		"the Service cannot be read":                       {known, Seen{Node: "n1"}, Same},
		"both are others":                                  {known, Seen{Service: "s2", Node: "n2"}, Another},
		"another Service, and no Node":                     {known, Seen{Service: "s2", NoNode: true}, Doubtful},
		"another Service, and the Node cannot be read":     {known, Seen{Service: "s2"}, Unknown},
		"another Node, and the Service cannot be read":     {known, Seen{Node: "n2"}, Unknown},
		"no Node, and the Service cannot be read":          {known, Seen{NoNode: true}, Unknown},
		"nothing can be read":                              {known, Seen{}, Unknown},
		"the first cluster":                                {Record{Node: "n1"}, Seen{Service: "s1", Node: "n1"}, Same},
		"the first cluster, before kubelet has registered": {Record{Node: "n1"}, Seen{Service: "s1", NoNode: true}, Same},
		"the first cluster, of which nothing can be read":  {Record{Node: "n1"}, Seen{NoNode: true}, Unknown},
		"no Node was known, and the Service is another":    {Record{Node: "n1", Service: "s1"}, Seen{Service: "s2", Node: "n2"}, Another},
		"no Service was known, and the Node is another":    {Record{Node: "n1", UID: "n1"}, Seen{Service: "s2", Node: "n2"}, Unknown},
		"no Service was known, and the Node is equal":      {Record{Node: "n1", UID: "n1"}, Seen{Service: "s2", Node: "n1"}, Same},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Judge(tt.known, tt.seen); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

// newCA returns a certificate of a key of its own, and another one of the same key.
func newCA(t *testing.T) (first, renewed []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	sign := func(serial int64) []byte {
		template := &x509.Certificate{SerialNumber: big.NewInt(serial), IsCA: true, BasicConstraintsValid: true}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	return sign(1), sign(2)
}

func TestWhichCAsAreKnown(t *testing.T) {
	a, renewed := newCA(t)
	b, _ := newCA(t)
	tests := map[string]struct {
		recorded, now []byte
		want          bool
	}{
		"the same":                        {a, a, true},
		"renewed with the same key":       {a, renewed, true},
		"rotated, and the old one stays":  {a, bytes.Join([][]byte{b, a}, nil), true},
		"rotated, and it stands first":    {a, bytes.Join([][]byte{a, b}, nil), true},
		"rotated, and the new one stayed": {bytes.Join([][]byte{a, b}, nil), b, true},
		"another":                         {a, b, false},
		"the system's now":                {a, nil, true},
		"the system's before":             {nil, b, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := (Record{CAs: KeysOf(tt.recorded)}).knows(KeysOf(tt.now)); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestLoad(t *testing.T) {
	tests := map[string]struct {
		file string // empty: there is none
		why  string // contains
		logs bool
		want string // the file afterwards
	}{
		"none":            {"", "", false, `{"node":"n1"}`},
		"ours":            {`{"node":"n1","service":"s"}`, "", false, `{"node":"n1","service":"s"}`},
		"another node's":  {`{"node":"n2","service":"s"}`, "it is that of node n2, and this is node n1", false, `{"node":"n2","service":"s"}`},
		"another cluster": {`{"node":"n1","another":true}`, "another cluster", false, `{"node":"n1","another":true}`},
		"damaged":         {`{"node":"n1`, "", true, `{"node":"n1"}`},
		"nobody's":        {`{}`, "", true, `{"node":"n1"}`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "cluster.json")
			if tt.file != "" {
				if err := os.WriteFile(file, []byte(tt.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var log bytes.Buffer
			_, why, err := Load(file, "n1", slog.New(slog.NewTextHandler(&log, nil)))
			if err != nil || (why == "") != (tt.why == "") || !strings.Contains(why, tt.why) || (log.Len() > 0) != tt.logs {
				t.Errorf("%v, why %q, log %q", err, why, log.String())
			}
			if text, err := os.ReadFile(file); err != nil || string(text) != tt.want {
				t.Errorf("the file is %s, want %s: %v", text, tt.want, err)
			}
		})
	}
}
