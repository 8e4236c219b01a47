package binding

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cache/durable"
)

// Record is what the file has: whose folder this is.
type Record struct {
	Node    string    `json:"node"`              // its name
	Service types.UID `json:"service,omitempty"` // of Service default/kubernetes; empty: not known yet
	UID     types.UID `json:"nodeUID,omitempty"` // of the Node; empty: not known yet
	CAs     []string  `json:"cas,omitempty"`     // SHA-256 of the public keys of the CAs by which the apiserver was known
	Doubted bool      `json:"doubted,omitempty"` // the verdict was Doubtful
	Another bool      `json:"another,omitempty"` // the verdict was Another: all that is in the folder has to go
}

// Seen are the UIDs that a cluster has. An empty one could not be read.
type Seen struct {
	Service, Node types.UID
	NoNode        bool // the apiserver answers that there is no such Node
}

// Verdict is the result of Judge.
type Verdict int

const (
	// Unknown changes nothing.
	Unknown Verdict = iota
	// Same is the cluster of the record, or the first one.
	Same
	// Another is another cluster.
	Another
	// Doubtful is a cluster whose Service is another, and where the node is not registered (yet).
	Doubtful
)

// Judge compares a cluster with the record.
func Judge(known Record, seen Seen) Verdict {
	same := func(a, b types.UID) bool { return a != "" && a == b }
	switch {
	case known.Service == "" && known.UID == "":
		if seen.Service == "" && seen.Node == "" {
			return Unknown
		}
		return Same
	case same(known.Service, seen.Service), same(known.UID, seen.Node):
		return Same
	case known.Service == "" || seen.Service == "":
		return Unknown
	case seen.Node != "":
		return Another
	case seen.NoNode:
		return Doubtful
	default:
		return Unknown
	}
}

// learn returns the record of a cluster that is the same, with what was seen. What was not seen stays.
func (r Record) learn(seen Seen, cas []string) Record {
	if seen.Service != "" {
		r.Service = seen.Service
	}
	if seen.Node != "" {
		r.UID = seen.Node
	}
	r.CAs, r.Doubted, r.Another = cas, false, false
	return r
}

func (r Record) equal(other Record) bool {
	return r.Node == other.Node && r.Service == other.Service && r.UID == other.UID && r.Doubted == other.Doubted && r.Another == other.Another &&
		slices.Equal(r.CAs, other.CAs)
}

// knows reports whether the cluster of the record may have these CAs.
func (r Record) knows(cas []string) bool {
	return ShareCA(r.CAs, cas)
}

// ShareCA reports whether a cluster with some CAs may be the one with others, both as KeysOf returns them: a cluster trusts its old
// CA for a while when it gets a new one. If either has none, the system's CAs are used, and nothing speaks against it.
func ShareCA(a, b []string) bool {
	return len(a) == 0 || len(b) == 0 || slices.ContainsFunc(a, func(ca string) bool { return slices.Contains(b, ca) })
}

// KeysOf returns the SHA-256 of the public key of each CA in a bundle, sorted. What is no certificate is left out.
func KeysOf(bundle []byte) (keys []string) {
	for {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			slices.Sort(keys)
			return slices.Compact(keys)
		}
		if ca, err := x509.ParseCertificate(block.Bytes); err == nil {
			sum := sha256.Sum256(ca.RawSubjectPublicKeyInfo)
			keys = append(keys, hex.EncodeToString(sum[:]))
		}
	}
}

// Load reads the record of a node's folder, and writes one if there is none. why is for people: why everything in the folder
// has to be set aside before anything is opened, or "". Its caller does that, and then calls Begin. A file that is damaged is
// logged, and counts as none.
func Load(file, node string, log *slog.Logger) (r Record, why string, err error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return Begin(file, node, log), "", nil
	}
	if err != nil {
		return Record{}, "", fmt.Errorf("read whose folder this is: %w", err)
	}
	if err := json.Unmarshal(text, &r); err != nil || r.Node == "" {
		log.Warn("it cannot be read of which cluster the hub's data is; it is taken for that of the next one", "file", file, "err", err)
		return Begin(file, node, log), "", nil
	}
	switch {
	case r.Node != node:
		return r, fmt.Sprintf("it is that of node %s, and this is node %s", r.Node, node), nil
	case r.Another:
		return r, "it is that of another cluster than the one that the node belongs to now", nil
	}
	return r, "", nil
}

// CAs returns the SHA-256 of the public keys of the CAs by which the cluster of a record is known; none if there is no record, or
// if it may be of another cluster than the node's.
func CAs(file string) []string {
	var r Record
	if text, err := os.ReadFile(file); err != nil || json.Unmarshal(text, &r) != nil || r.Doubted || r.Another {
		return nil
	}
	return r.CAs
}

// Begin writes the record of a folder that belongs to the next cluster that can be reached. On a disk that is full or read-only
// that is put off until the cluster is known.
func Begin(file, node string, log *slog.Logger) Record {
	r := Record{Node: node}
	if err := r.write(file); err != nil {
		log.Warn("it cannot be written down whose the hub's folder is; that is tried again when the cloud can be reached", "file", file, "err", err)
	}
	return r
}

func (r Record) write(file string) error {
	text, err := json.Marshal(r)
	if err == nil {
		err = durable.Write(file, text)
	}
	return err
}
