package images

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// blobStore is where the registry keeps its blobs.
type blobStore interface {
	registry.BlobHandler
	registry.BlobPutHandler
}

// Push puts an image into the registry. It goes past whatever has been set to
// fail, to be slow or to be refused, and is not counted.
func (r *Registry) Push(ctx context.Context, repository, tag string, image v1.Image) error {
	if err := r.push(ctx, repository, tag, image); err != nil {
		return fmt.Errorf("push image %s: %w", r.Reference(repository, tag), err)
	}
	return nil
}

func (r *Registry) push(ctx context.Context, repository, tag string, image v1.Image) error {
	layers, err := image.Layers()
	if err != nil {
		return err
	}
	config, err := partial.ConfigLayer(image)
	if err != nil {
		return err
	}
	for _, layer := range append(layers, config) {
		digest, err := layer.Digest()
		if err != nil {
			return err
		}
		content, err := layer.Compressed()
		if err != nil {
			return err
		}
		if err := r.blobs.Put(ctx, repository, digest, content); err != nil { // closes content
			return err
		}
	}
	manifest, err := image.RawManifest()
	if err != nil {
		return err
	}
	mediaType, err := image.MediaType()
	if err != nil {
		return err
	}
	return r.PutManifest(repository, tag, mediaType, manifest)
}

// PutManifest puts a manifest or an index alone, also one that is wrong, as Push does.
func (r *Registry) PutManifest(repository, tag string, mediaType types.MediaType, content []byte) error {
	req := httptest.NewRequestWithContext(context.Background(), http.MethodPut, "/v2/"+repository+"/manifests/"+tag, bytes.NewReader(content))
	req.Header.Set("Content-Type", string(mediaType))
	reply := httptest.NewRecorder()
	r.content.ServeHTTP(reply, req)
	if reply.Code != http.StatusCreated {
		return fmt.Errorf("the registry answers %d: %s", reply.Code, reply.Body)
	}
	return nil
}

// Respond answers a request as a registry does that is always willing. Blobs are not
// served by the registry underneath: it does not know ranges without an end, which is
// what containerd asks for when it goes on where it was.
func (r *Registry) Respond(w http.ResponseWriter, req *http.Request) {
	if path.Base(path.Dir(req.URL.Path)) != "blobs" || req.Method != http.MethodGet && req.Method != http.MethodHead {
		r.content.ServeHTTP(w, req)
		return
	}
	var content io.ReadCloser
	digest, err := v1.NewHash(path.Base(req.URL.Path))
	if err == nil {
		content, err = r.blobs.Get(req.Context(), "", digest)
	}
	if err != nil {
		http.NotFound(w, req)
		return
	}
	defer content.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Docker-Content-Digest", digest.String())
	http.ServeContent(w, req, "", time.Time{}, content.(io.ReadSeeker))
}

// repositoryOf is the NAME in /v2/NAME/blobs/… and the like, or "".
func repositoryOf(req *http.Request) string {
	rest, _ := strings.CutPrefix(req.URL.Path, "/v2/")
	for _, part := range []string{"/blobs/", "/manifests/", "/tags/", "/referrers/"} {
		if name, _, ok := strings.Cut(rest, part); ok {
			return name
		}
	}
	return ""
}

// WriteHosts has containerd ask this registry for images of a host, "name:port",
// that is, for those whose reference begins with it: the registry's own Addr, or
// another that it is a mirror of. folder is what containerd's config_path names. It
// takes effect at once.
func (r *Registry) WriteHosts(folder, host string) error {
	folder = filepath.Join(folder, host)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("write how to reach %s: %w", host, err)
	}
	text := fmt.Sprintf("server = %[1]q\n[host.%[1]q]\n  capabilities = [\"pull\", \"resolve\"]\n", r.URL())
	if ca := r.CA(); ca != nil {
		file := filepath.Join(folder, "ca.crt")
		text += fmt.Sprintf("  ca = %q\n", file)
		if err := os.WriteFile(file, ca, 0o644); err != nil {
			return fmt.Errorf("write how to reach %s: %w", host, err)
		}
	}
	return os.WriteFile(filepath.Join(folder, "hosts.toml"), []byte(text), 0o644)
}
