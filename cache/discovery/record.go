package discovery

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"net/http"
	"time"
)

// record is an answer on disk: a version, the length of the head as a varint, the head as JSON,
// and the body.
type record struct {
	head
	// User is the user key of the reader. It is empty in records of early builds of the hub,
	// which share one quota until they are read again.
	User string    `json:"user,omitempty"`
	Read time.Time `json:"read"`
	body []byte
}

// head is the part of the header that is stored.
type head struct {
	ContentType  string `json:"contentType,omitempty"` // empty if the body is unknown
	ETag         string `json:"etag,omitempty"`
	Vary         string `json:"vary,omitempty"`
	CacheControl string `json:"cacheControl,omitempty"`
	// Confirmed is the ETag that a later 304 has confirmed.
	Confirmed string `json:"confirmed,omitempty"`
}

const recordVersion = 1

var errRecord = errors.New("not a kept answer")

func newRecord(user string, h http.Header, body []byte) record {
	return record{User: user, body: body, head: head{
		ContentType:  cmp.Or(h.Get("Content-Type"), "application/octet-stream"),
		ETag:         h.Get("ETag"),
		Vary:         h.Get("Vary"),
		CacheControl: h.Get("Cache-Control"),
	}}
}

func (r *record) bytes(now time.Time) ([]byte, error) {
	r.Read = now
	head, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	b := binary.AppendUvarint([]byte{recordVersion}, uint64(len(head)))
	return append(append(b, head...), r.body...), nil
}

// parse decodes a record. It copies the body.
func parse(b []byte) (r record, err error) {
	if len(b) == 0 || b[0] != recordVersion {
		return record{}, errRecord
	}
	length, n := binary.Uvarint(b[1:])
	if n <= 0 || length > uint64(len(b)-1-n) {
		return record{}, errRecord
	}
	start := 1 + n
	end := start + int(length)
	if err := json.Unmarshal(b[start:end], &r); err != nil {
		return record{}, err
	}
	r.body = bytes.Clone(b[end:])
	return r, nil
}

// entry is an answer in memory, without its body.
type entry struct {
	head
	user      string
	mediaType string // of ContentType, without its charset
	size      int64
	sum       [sha256.Size]byte // of the body
	read      time.Time         // when it was last read from an apiserver
	written   time.Time         // read, as stored
}

func (r *record) entry(size int) *entry {
	return &entry{
		head: r.head, user: r.User, mediaType: mediaType(r.ContentType), size: int64(size),
		sum: sha256.Sum256(r.body), read: r.Read, written: r.Read,
	}
}

func (h *head) header() http.Header {
	out := make(http.Header)
	for name, value := range map[string]string{
		"Content-Type": h.ContentType, "Etag": h.ETag, "Vary": h.Vary, "Cache-Control": h.CacheControl,
	} {
		if value != "" {
			out.Set(name, value)
		}
	}
	return out
}

// notModified returns the header of a 304.
func (h *head) notModified(tag string) http.Header {
	out := h.header()
	out.Del("Content-Type")
	out.Set("Etag", tag)
	return out
}
