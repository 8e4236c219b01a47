package discovery

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"net/http"
	"time"
)

// record is what lies on disk of one answer: a version, the length of the head as a
// varint, the head as JSON, and the body.
type record struct {
	head
	// User is whom it was given to. Answers that were kept by versions of the hub without
	// quotas name nobody, and share one quota until they are read again.
	User string    `json:"user,omitempty"`
	Read time.Time `json:"read"`
	body []byte
}

// head is what matters of the header.
type head struct {
	ContentType  string `json:"contentType,omitempty"` // empty where no body was seen
	ETag         string `json:"etag,omitempty"`
	Vary         string `json:"vary,omitempty"`
	CacheControl string `json:"cacheControl,omitempty"`
	// Confirmed is the ETag that an apiserver has called the current one since.
	Confirmed string `json:"confirmed,omitempty"`
}

const recordVersion = 1

var errRecord = errors.New("not a kept answer")

func newRecord(user string, h http.Header, body []byte) record {
	contentType := h.Get("Content-Type")
	if contentType == "" {
		contentType = "application/octet-stream"
	}
	return record{User: user, body: body, head: head{
		ContentType:  contentType,
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

// parse copies the body.
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

func (r *record) entry(group string, size int) *entry {
	return &entry{group: group, user: r.User, head: r.head, size: int64(size), sum: sha256.Sum256(r.body), read: r.Read, written: r.Read}
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

// notModified is the header of a 304.
func (h *head) notModified(tag string) http.Header {
	out := h.header()
	out.Del("Content-Type")
	out.Set("Etag", tag)
	return out
}

func (h *head) equal(o *head) bool { return *h == *o }
