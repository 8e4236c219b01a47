package images

import (
	"io"
	"net/http"
	"path"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func isBlobRead(req *http.Request) bool {
	return (req.Method == http.MethodGet || req.Method == http.MethodHead) && path.Base(path.Dir(req.URL.Path)) == "blobs"
}

// serveBlob serves a blob, or the range of it that was asked for. The registry
// underneath does not know ranges without an end, which is what containerd asks for
// when it goes on where it was.
func (r *Registry) serveBlob(w *answer, req *http.Request) {
	digest, err := v1.NewHash(path.Base(req.URL.Path))
	if err != nil {
		refuse(w, http.StatusBadRequest, nil)
		return
	}
	content, err := r.blobs.Get(req.Context(), repositoryOf(req), digest)
	if err != nil {
		refuse(w, http.StatusNotFound, nil)
		return
	}
	defer content.Close()
	if r.trouble.ignoresRanges() {
		req.Header.Del("Range")
	}
	if req.Method == http.MethodGet {
		w.cut = r.trouble.nextCut(digest.String())
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Docker-Content-Digest", digest.String())
	http.ServeContent(w, req, "", time.Time{}, content.(io.ReadSeeker))
}

// repositoryOf is the NAME in /v2/NAME/blobs/… and the like, or "".
func repositoryOf(req *http.Request) string {
	rest, ok := strings.CutPrefix(req.URL.Path, "/v2/")
	if !ok {
		return ""
	}
	for _, part := range []string{"/blobs/", "/manifests/", "/tags/", "/referrers/"} {
		if name, _, ok := strings.Cut(rest, part); ok {
			return name
		}
	}
	return ""
}
