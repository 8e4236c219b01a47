package page

import (
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
)

// bundleTimeout is how long a caller may take to receive a bundle: some MiB over a slow link.
const bundleTimeout = 5 * time.Minute

// bundle answers with a support bundle. If that fails on the way, it breaks the connection, since the caller
// would take a part for the whole.
func (p *Page) bundle(w http.ResponseWriter, r *http.Request) {
	select {
	case p.bundles <- struct{}{}:
		defer func() { <-p.bundles }()
	default:
		http.Error(w, "a support bundle is being sent to somebody else: try again in a minute", http.StatusServiceUnavailable)
		return
	}
	// A caller that reads nothing would keep others from theirs.
	control := http.NewResponseController(w)
	if err := control.SetWriteDeadline(time.Now().Add(bundleTimeout)); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer func() { _ = control.SetWriteDeadline(time.Time{}) }() // the connection may go on
	name := "edgehub-" + p.NodeName + "-" + time.Now().UTC().Format("20060102T150405Z") + ".tar.gz"
	w.Header().Set("Content-Type", "application/gzip")
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
	w.Header().Set("Cache-Control", "no-store")
	body := &counted{Writer: w}
	err := p.Bundle(r.Context(), body)
	if err == nil {
		return
	}
	p.Logger.Warn("a support bundle was not sent whole", "err", err)
	if body.n > 0 {
		panic(http.ErrAbortHandler)
	}
	w.Header().Del("Content-Disposition")
	http.Error(w, "write a support bundle: "+strings.Join(strings.Fields(err.Error()), " "), http.StatusInternalServerError)
}

// counted counts the bytes that were written.
type counted struct {
	io.Writer
	n int64
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.n += int64(n)
	return n, err
}
