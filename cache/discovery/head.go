package discovery

import (
	"cmp"
	"net/http"
)

// head is the part of an answer's header that is stored.
type head struct {
	ContentType  string `json:"contentType,omitempty"` // empty if the body is unknown
	ETag         string `json:"etag,omitempty"`
	Vary         string `json:"vary,omitempty"`
	CacheControl string `json:"cacheControl,omitempty"`
	// Confirmed is the ETag that a later 304 has confirmed.
	Confirmed string `json:"confirmed,omitempty"`
}

func newHead(h http.Header) head {
	return head{
		ContentType:  cmp.Or(h.Get("Content-Type"), "application/octet-stream"),
		ETag:         h.Get("ETag"),
		Vary:         h.Get("Vary"),
		CacheControl: h.Get("Cache-Control"),
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
