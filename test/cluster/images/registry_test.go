package images_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/edgehub-io/edgehub/test/cluster/images"
)

const layerSize = 1 << 20

// fixture is a registry with one image of one layer, and who reads it. That the registry serves images, asks for
// passwords and has a certificate shows where containerd pulls from it: see test/integration/engine.
type fixture struct {
	*images.Registry
	client *http.Client
	digest v1.Hash
	size   int64
}

func newFixture(t *testing.T, serve func(string) (*images.Registry, error)) *fixture {
	t.Helper()
	registry, err := serve("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := registry.Close(); err != nil {
			t.Error(err)
		}
	})
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(registry.CA())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	t.Cleanup(transport.CloseIdleConnections)
	f := &fixture{Registry: registry, client: &http.Client{Transport: transport}}
	layer, err := images.Ballast(1, layerSize)
	if err != nil {
		t.Fatal(err)
	}
	digest, errDigest := layer.Digest()
	size, errSize := layer.Size()
	image, errImage := images.New(images.Platform("amd64"), layer)
	if err := errors.Join(errDigest, errSize, errImage, f.Push(t.Context(), "app", "v1", image)); err != nil {
		t.Fatal(err)
	}
	f.digest, f.size = digest, size
	return f
}

func (f *fixture) blob() string { return "/v2/app/blobs/" + f.digest.String() }

// get returns how many bytes come of an answer, from one on, and how its body ends.
func (f *fixture) get(ctx context.Context, path string, from int64) (n int64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.URL()+path, http.NoBody)
	if err != nil {
		return 0, err
	}
	if from > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
	}
	answer, err := f.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	return io.Copy(io.Discard, answer.Body)
}

func TestWhatIsServedIsCounted(t *testing.T) {
	f := newFixture(t, images.Serve)
	if len(f.Requests()) != 0 || f.Bytes() != 0 {
		t.Fatalf("the push is counted: %v", f.Requests())
	}
	manifest := int64(0)
	for path, from := range map[string]int64{f.blob(): 0, f.blob() + "?": f.size - 100, "/v2/app/manifests/v1": 0, "/v2/app/manifests/none": 0} {
		n, err := f.get(t.Context(), path, from)
		if err != nil {
			t.Fatal(err)
		}
		if path == "/v2/app/manifests/v1" {
			manifest = n
		}
	}
	if got := f.BytesOf(f.digest); got != f.size+100 {
		t.Errorf("BytesOf the layer = %d, want %d", got, f.size+100)
	}
	if f.Bytes() != f.size+100+manifest || manifest == 0 || len(f.Requests()) != 4 {
		t.Errorf("Bytes = %d, want layer and manifest, and no error; of %+v", f.Bytes(), f.Requests())
	}
	for _, r := range f.Requests() {
		if (r.Status == http.StatusNotFound) != (r.Digest == "") || r.Bytes == 0 {
			t.Errorf("got %+v", r)
		}
	}
	f.Forget()
	if len(f.Requests()) != 0 || f.Bytes() != 0 || f.BytesOf(f.digest) != 0 {
		t.Error("Forget leaves something")
	}
}

func TestAnswersAreCut(t *testing.T) {
	const after = layerSize / 2
	for name, serve := range map[string]func(string) (*images.Registry, error){"plain": images.Serve, "over TLS": images.ServeTLS} {
		for end, way := range map[error]images.Cut{syscall.ECONNRESET: images.Reset, io.ErrUnexpectedEOF: images.Finish} {
			t.Run(name+", with "+end.Error(), func(t *testing.T) {
				f := newFixture(t, serve)
				f.CutAfter(f.digest, after, way)
				f.CutAfter(f.digest, 0, images.Finish)
				if n, err := f.get(t.Context(), f.blob(), 0); !errors.Is(err, end) || n != after || f.BytesOf(f.digest) != after {
					t.Errorf("%d bytes came and %d are counted, want %d; the answer ends with %v", n, f.BytesOf(f.digest), after, err)
				}
				if n, err := f.get(t.Context(), f.blob(), after); n > 0 || err == nil {
					t.Errorf("the second answer is not cut at its start: %d, %v", n, err)
				}
				if n, err := f.get(t.Context(), f.blob(), after); err != nil || f.BytesOf(f.digest) != f.size {
					t.Errorf("the third answer is cut, too: %d, %v", n, err)
				}
			})
		}
	}
	t.Run("by hanging", func(t *testing.T) {
		f := newFixture(t, images.Serve)
		f.CutAfter(f.digest, after, images.Hang)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if n, err := f.get(ctx, f.blob(), 0); n != after || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%d bytes came, want %d: %v", n, after, err)
		}
	})
}

func TestDownAndUpAgain(t *testing.T) {
	f := newFixture(t, images.Serve)
	f.SetRate(layerSize)
	ended := make(chan error, 1)
	go func() {
		_, err := f.get(t.Context(), f.blob(), 0)
		ended <- err
	}()
	if err := errors.Join(f.AwaitBytes(t.Context(), f.digest, layerSize/4), f.Down()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("what was under way went on to its end, in spite of the rate")
	}
	if _, err := f.get(t.Context(), f.blob(), 0); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("while it is down: %v, want the connection refused", err)
	}
	f.SetRate(0)
	if err := f.Up(); err != nil {
		t.Fatal(err)
	}
	if n, err := f.get(t.Context(), f.blob(), 0); err != nil || n != f.size {
		t.Errorf("after it is up again: %d bytes, %v", n, err)
	}
}

// A client that stops reading has nearly all bytes that count as served, however large the
// receive buffer is that its kernel gives it.
func TestBytesThatNobodyReadsAreNotServed(t *testing.T) {
	f := newFixture(t, images.Serve)
	response, err := f.client.Get(f.URL() + f.blob())
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	const read = 400_000
	if _, err := io.CopyN(io.Discard, response.Body, read); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond) // in which it could send all of it
	defer cancel()
	const limit = 32<<10 + 4<<10 // in flight, and in net/http's own buffer
	if err := f.AwaitBytes(ctx, f.digest, read+limit+1); err == nil {
		t.Errorf("%d bytes count as served when %d were read; want at most %d more", f.BytesOf(f.digest), read, limit)
	}
	if _, err := io.Copy(io.Discard, response.Body); err != nil || f.BytesOf(f.digest) != f.size {
		t.Errorf("%d bytes count as served of a blob of %d, %v", f.BytesOf(f.digest), f.size, err)
	}
}
