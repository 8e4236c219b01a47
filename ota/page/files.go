package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"fmt"
	"net/http"
	"path"
	"time"

	"github.com/edgehub-io/edgehub/ota/api"
)

//go:embed files
var embedded embed.FS

// index is the file of api.Page.
const index = "index.html"

// contentTypes are those of the page's files. The mime package would read the node's.
var contentTypes = map[string]string{
	".css":  "text/css; charset=utf-8",
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// file is one of the page.
type file struct {
	name        string
	contentType string
	etag        string
}

// files returns the files of the page by their path in the API. What is embedded has no errors but those of
// a wrong build, which each test would find.
func files() map[string]file {
	entries, err := embedded.ReadDir("files")
	if err != nil {
		panic(err)
	}
	all := map[string]file{}
	for _, entry := range entries {
		content, err := embedded.ReadFile("files/" + entry.Name())
		if err != nil {
			panic(err)
		}
		f := file{entry.Name(), contentTypes[path.Ext(entry.Name())], fmt.Sprintf(`"%x"`, sha256.Sum256(content))}
		all[api.PageFiles+f.name] = f
		if f.name == index {
			all[api.Page] = f
		}
	}
	return all
}

// ServeHTTP answers 304 to a browser that has the file. It asks each time: after an upgrade of the hub no
// page has files of two versions.
func (f file) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	content, err := embedded.ReadFile("files/" + f.name)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", f.contentType)
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("ETag", f.etag)
	http.ServeContent(w, r, f.name, time.Time{}, bytes.NewReader(content))
}
