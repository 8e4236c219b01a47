package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Registry is an image registry in memory, over plain HTTP. It ends with Close.
type Registry struct {
	server *http.Server
	addr   string
	done   sync.WaitGroup
}

// Serve starts a registry at addr, "127.0.0.1:PORT".
func Serve(addr string) (*Registry, error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	quiet := log.New(io.Discard, "", 0) // what matters is in the node's own logs
	r := &Registry{
		server: &http.Server{Handler: registry.New(registry.Logger(quiet)), ErrorLog: quiet},
		addr:   listener.Addr().String(),
	}
	r.done.Go(func() { _ = r.server.Serve(listener) })
	return r, nil
}

// Addr is the registry's address, the first part of its images' references.
func (r *Registry) Addr() string { return r.addr }

// Reference names an image in the registry.
func (r *Registry) Reference(repository, tag string) string {
	return r.addr + "/" + repository + ":" + tag
}

// Push puts an image into the registry.
func (r *Registry) Push(ctx context.Context, repository, tag string, image v1.Image) error {
	reference, err := name.ParseReference(r.Reference(repository, tag), name.Insecure)
	if err != nil {
		return fmt.Errorf("push image: %w", err)
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	if err := remote.Write(reference, image, remote.WithContext(ctx), remote.WithTransport(transport)); err != nil {
		return fmt.Errorf("push image %s: %w", reference, err)
	}
	return nil
}

// Close ends the registry and breaks its connections.
func (r *Registry) Close() error {
	err := r.server.Close()
	r.done.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
