package images

import (
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"

	"github.com/google/go-containerregistry/pkg/registry"
)

// Registry is an image registry in memory that counts what it serves and fails on
// demand. It ends with Close. All methods may be called from several goroutines; a
// change has taken effect for requests that come after its method has returned.
type Registry struct {
	addr    string
	tls     *tls.Config // nil: plain HTTP
	blobs   blobStore
	content http.Handler // the registry itself: it is always willing

	access  access
	traffic traffic
	faults  faults

	connections atomic.Int64

	mu     sync.Mutex
	server *http.Server // nil while down
	done   sync.WaitGroup
}

// Serve starts a registry at addr, "127.0.0.1:PORT", over plain HTTP.
func Serve(addr string) (*Registry, error) { return serve(addr, nil) }

// ServeTLS starts a registry over TLS, with a certificate that only those accept
// who were given CA.
func ServeTLS(addr string) (*Registry, error) {
	// The certificate of tests that the standard library has is for 127.0.0.1, and
	// it is its own authority.
	borrowed := httptest.NewTLSServer(nil)
	defer borrowed.Close()
	return serve(addr, &tls.Config{Certificates: borrowed.TLS.Certificates, MinVersion: tls.VersionTLS12})
}

func serve(addr string, config *tls.Config) (*Registry, error) {
	blobs := registry.NewInMemoryBlobHandler()
	quiet := registry.Logger(log.New(io.Discard, "", 0)) // Requests has more
	r := &Registry{
		addr:    addr,
		tls:     config,
		blobs:   blobs.(blobStore),
		content: registry.New(quiet, registry.WithBlobHandler(blobs)),
		access:  access{readers: map[string]map[string]string{}},
		traffic: traffic{bytes: map[string]int64{}},
		faults:  newFaults(),
	}
	if err := r.Up(); err != nil {
		return nil, err
	}
	return r, nil
}

// Addr is the registry's address, the first part of its images' references.
func (r *Registry) Addr() string { return r.addr }

// URL is the registry's address with its scheme.
func (r *Registry) URL() string {
	if r.tls != nil {
		return "https://" + r.addr
	}
	return "http://" + r.addr
}

// Reference names an image in the registry.
func (r *Registry) Reference(repository, tag string) string {
	return r.addr + "/" + repository + ":" + tag
}

// CA is the certificate authority of a registry that serves TLS, in PEM; nil
// otherwise.
func (r *Registry) CA() []byte {
	if r.tls == nil {
		return nil
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.tls.Certificates[0].Certificate[0]})
}

// Connections is how many have been made so far.
func (r *Registry) Connections() int64 { return r.connections.Load() }

// Up listens, at the same address as ever, unless it does already.
func (r *Registry) Up() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.server != nil {
		return nil
	}
	listener, err := net.Listen("tcp", r.addr)
	if err != nil {
		return fmt.Errorf("registry: %w", err)
	}
	r.addr = listener.Addr().String()
	listener = limitListener{listener}
	if r.tls != nil {
		listener = tls.NewListener(listener, r.tls)
	}
	server := &http.Server{
		Handler:  http.HandlerFunc(r.serveHTTP),
		ErrorLog: log.New(io.Discard, "", 0), // what matters is in the client's own logs
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				r.connections.Add(1)
			}
		},
		// HTTP/2 has no connection that could be cut for one answer alone.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	r.server = server
	r.done.Go(func() { _ = server.Serve(listener) })
	return nil
}

// Down breaks all connections and refuses new ones, like a registry that is being
// restarted. What it holds stays.
func (r *Registry) Down() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.server == nil {
		return nil
	}
	err := r.server.Close()
	r.server = nil
	r.done.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Close ends the registry and breaks its connections.
func (r *Registry) Close() error { return r.Down() }

func (r *Registry) serveHTTP(w http.ResponseWriter, req *http.Request) {
	out := &answer{ResponseWriter: w, registry: r, request: req, entry: r.traffic.begin(req)}
	switch handler := r.faults.answer(req.URL.Path); {
	case handler != nil:
		handler(out, req)
	case req.URL.Path == tokenPath:
		r.access.serveToken(out, req)
	case r.permit(out, req):
		r.Respond(out, req)
	}
}
