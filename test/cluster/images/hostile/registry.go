// Package hostile is a malicious image registry on a loopback port. It serves any content,
// also where sizes and digests do not match, and can answer any request without an end, a
// byte at a time, with an HTML page, or with a redirect.
//
// An endless answer ends after EndlessBytes, so that a client that is not safe against it
// fails a test, and does not bring down the machine.
package hostile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Media types of what a registry serves.
const (
	Manifest = "application/vnd.oci.image.manifest.v1+json"
	Index    = "application/vnd.oci.image.index.v1+json"
	Config   = "application/vnd.oci.image.config.v1+json"
	Layer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// Descriptor refers to content, truthfully or not.
type Descriptor struct {
	MediaType string   `json:"mediaType"`
	Digest    string   `json:"digest"`
	Size      int64    `json:"size"`
	URLs      []string `json:"urls,omitempty"`
}

// Registry ends with Close. All methods may be called from several goroutines.
type Registry struct {
	server      *httptest.Server
	sent        atomic.Int64
	connections atomic.Int64

	mu       sync.Mutex
	content  map[string][]byte // by digest
	tags     map[string]Descriptor
	answers  []answer
	requests []string
}

// answer is what is answered in place of the truth.
type answer struct {
	part    string // of the path
	handler http.HandlerFunc
}

// Serve starts a registry without any image.
func Serve() *Registry {
	r := &Registry{content: map[string][]byte{}, tags: map[string]Descriptor{}}
	r.server = httptest.NewUnstartedServer(http.HandlerFunc(r.serve))
	r.server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			r.connections.Add(1)
		}
	}
	r.server.Start()
	return r
}

// Close ends the registry, and answers that have no end.
func (r *Registry) Close() {
	r.server.CloseClientConnections()
	r.server.Close()
}

// URL is the registry's address with its scheme.
func (r *Registry) URL() string { return r.server.URL }

// Reference names an image in the registry.
func (r *Registry) Reference(repository, tag string) string {
	return strings.TrimPrefix(r.URL(), "http://") + "/" + repository + ":" + tag
}

// WriteHosts configures, in a folder like containerd's certs.d, that the registry speaks
// plain HTTP.
func (r *Registry) WriteHosts(folder string) error {
	folder = filepath.Join(folder, strings.TrimPrefix(r.URL(), "http://"))
	toml := "server = \"" + r.URL() + "\"\n"
	return errors.Join(os.MkdirAll(folder, 0o755), os.WriteFile(filepath.Join(folder, "hosts.toml"), []byte(toml), 0o644))
}

// Put has the registry serve content under its digest, and describes it truthfully.
func (r *Registry) Put(mediaType string, content []byte) Descriptor {
	sum := sha256.Sum256(content)
	d := Descriptor{MediaType: mediaType, Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: int64(len(content))}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.content[d.Digest] = content
	return d
}

// PutJSON is Put of a value as JSON.
func (r *Registry) PutJSON(mediaType string, value any) Descriptor {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // a mistake in the test: values are maps of strings and numbers
	}
	return r.Put(mediaType, text)
}

// Image puts the manifest and the configuration of an image of those layers, which the
// configuration knows as diffIDs.
func (r *Registry) Image(layers []Descriptor, diffIDs []string) Descriptor {
	config := r.PutJSON(Config, map[string]any{
		"architecture": "amd64", "os": "linux", "rootfs": map[string]any{"type": "layers", "diff_ids": diffIDs},
	})
	return r.Manifest(config, layers)
}

// Manifest puts a manifest with those descriptors.
func (r *Registry) Manifest(config Descriptor, layers []Descriptor) Descriptor {
	return r.PutJSON(Manifest, map[string]any{"schemaVersion": 2, "mediaType": Manifest, "config": config, "layers": layers})
}

// Index puts an index of those manifests, for any platform.
func (r *Registry) Index(manifests ...Descriptor) Descriptor {
	return r.PutJSON(Index, map[string]any{"schemaVersion": 2, "mediaType": Index, "manifests": manifests})
}

// Tag has a tag stand for a manifest or an index, in all repositories.
func (r *Registry) Tag(tag string, d Descriptor) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tags[tag] = d
}

// Answer answers requests whose path has the part in it with a handler. A later Answer
// goes before earlier ones; nil is the truth again.
func (r *Registry) Answer(part string, handler http.HandlerFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers = append([]answer{{part, handler}}, r.answers...)
}

// Sent is how many bytes of bodies have been sent.
func (r *Registry) Sent() int64 { return r.sent.Load() }

// Connections is how many have been made.
func (r *Registry) Connections() int64 { return r.connections.Load() }

// Requests are the methods and paths of all requests so far.
func (r *Registry) Requests() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.requests...)
}

func (r *Registry) serve(w http.ResponseWriter, req *http.Request) {
	w = &counted{ResponseWriter: w, sent: &r.sent}
	r.mu.Lock()
	r.requests = append(r.requests, req.Method+" "+req.URL.Path)
	handler := http.HandlerFunc(r.Truth)
	for _, a := range r.answers {
		if strings.Contains(req.URL.Path, a.part) {
			if a.handler != nil {
				handler = a.handler
			}
			break
		}
	}
	r.mu.Unlock()
	handler(w, req)
}

// Truth serves content and tags as a registry does, with Range.
func (r *Registry) Truth(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	name := path.Base(req.URL.Path)
	d, tagged := r.tags[name]
	if tagged {
		name = d.Digest
	}
	content, found := r.content[name]
	for _, t := range r.tags {
		if t.Digest == name {
			d = t
		}
	}
	r.mu.Unlock()
	if !found {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if d.MediaType != "" {
		w.Header().Set("Content-Type", d.MediaType)
	}
	w.Header().Set("Docker-Content-Digest", name)
	http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(content))
}

// counted is a response whose body is counted.
type counted struct {
	http.ResponseWriter
	sent *atomic.Int64
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.sent.Add(int64(n))
	return n, err
}

// Unwrap is for http.ResponseController.
func (c *counted) Unwrap() http.ResponseWriter { return c.ResponseWriter }
