package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/edgehub-io/edgehub/imagepull/engine"
	"github.com/edgehub-io/edgehub/imagepull/engineapi"
	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/cluster/images"
	"github.com/edgehub-io/edgehub/test/internal/poll"
	"github.com/edgehub-io/edgehub/test/internal/pulltest"
)

// secret is part of every password of these tests, and must not be logged.
const secret = "hunter2"

// rig is the engine and the registry of one test.
type rig struct {
	*testing.T
	containerd *cluster.Containerd
	version    string
	registry   *images.Registry
	hosts      string // folder like certs.d
	seed       uint64 // of layers, so that no other test on this daemon has them
	engine     *engine.Engine
	log        *lockedBuffer
	cri        cri.ImageServiceClient
}

// each runs a test with each version of containerd. Parallel tests share the daemon; their images differ,
// because each test's registry has its own port.
func each(t *testing.T, test func(*rig)) {
	t.Helper()
	cluster.NeedRoot(t)
	for version, d := range daemons {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			containerd, err := d.get()
			if err != nil {
				t.Fatal(err)
			}
			test(newRig(t, version, containerd))
		})
	}
}

// once runs a test with the installed containerd only: what it is about is between the engine and the registry.
func once(t *testing.T, test func(*rig)) {
	t.Helper()
	cluster.NeedRoot(t)
	t.Parallel()
	containerd, err := daemons[installed].get()
	if err != nil {
		t.Fatal(err)
	}
	test(newRig(t, installed, containerd))
}

// eachAlone is like each, with a containerd that no other test uses.
func eachAlone(t *testing.T, test func(*rig)) {
	t.Helper()
	cluster.NeedRoot(t)
	for version, d := range daemons {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			test(newRig(t, version, pulltest.StartContainerd(t, cluster.ContainerdOptions{Version: d.version})))
		})
	}
}

func newRig(t *testing.T, version string, containerd *cluster.Containerd) *rig {
	t.Helper()
	registry := pulltest.ServeRegistry(t)
	r := &rig{T: t, containerd: containerd, version: version, registry: registry, hosts: t.TempDir(), seed: rand.Uint64(), log: &lockedBuffer{}}
	r.must(registry.WriteHosts(r.hosts, registry.Addr()))
	conn, err := grpc.NewClient("unix://"+containerd.Socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	r.must(err)
	t.Cleanup(func() { _ = conn.Close() })
	r.cri = cri.NewImageServiceClient(conn)
	r.eventually(func() error { // containerd's CRI starts after containerd does
		_, err := r.cri.ImageFsInfo(t.Context(), &cri.ImageFsInfoRequest{})
		return err
	})
	r.engine = r.newEngine(nil)
	t.Cleanup(func() {
		if strings.Contains(r.log.String(), secret) {
			t.Errorf("a password is in the log:\n%s", r.log)
		}
	})
	return r
}

// newEngine returns another engine, which to containerd looks like another process.
func (r *rig) newEngine(change func(*engine.Options)) *engine.Engine {
	r.Helper()
	o := engine.Options{
		Address:  r.containerd.Socket(),
		HostsDir: r.hosts,
		Logger:   slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&o)
	}
	e, err := engine.New(o)
	r.must(err)
	r.Cleanup(func() { r.must(e.Close()) })
	return e
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// pull pulls with the rig's engine, which must succeed.
func (r *rig) pull(image string, credentials ...engineapi.Credential) engineapi.Image {
	r.Helper()
	got, err := r.engine.Pull(r.Context(), engineapi.Request{Image: image, Credentials: credentials})
	r.must(err)
	return got
}

// pullOnceBack pulls with a containerd that has just been started.
func (r *rig) pullOnceBack(e *engine.Engine, image string) {
	r.Helper()
	r.eventually(func() error {
		_, err := e.Pull(r.Context(), engineapi.Request{Image: image})
		if failure, ok := errors.AsType[*engineapi.Error](err); ok && failure.Reason != engineapi.RuntimeUnavailable {
			r.Fatal(err)
		}
		return err
	})
}

// eventually tries until do works.
func (r *rig) eventually(do func() error) {
	r.Helper()
	poll.Check(r.Context(), r.T, "it succeeds", func(context.Context) error { return do() })
}

// refused pulls, which must fail with the reason, and returns the failure.
func (r *rig) refused(e *engine.Engine, reason engineapi.Reason, request engineapi.Request) engineapi.Error {
	r.Helper()
	_, err := e.Pull(r.Context(), request)
	return r.reason(err, reason)
}

func (r *rig) reason(err error, reason engineapi.Reason) engineapi.Error {
	r.Helper()
	failure, ok := errors.AsType[*engineapi.Error](err)
	if !ok || failure.Reason != reason {
		r.Fatalf("got %#v (%v), want the reason %s", err, err, reason)
	}
	text := failure.Error()
	if strings.Contains(text, secret) || strings.Contains(text, "\n") {
		r.Errorf("not one line without a password: %q", text)
	}
	r.Logf("%s: %s", reason, text)
	return *failure
}

// says fails the test unless the failure has all of the words.
func (r *rig) says(failure engineapi.Error, words ...string) {
	r.Helper()
	for _, w := range words {
		if text := failure.Error(); !strings.Contains(text, w) {
			r.Errorf("%q does not say %q", text, w)
		}
	}
}

// ballast returns layers of the given sizes that no other test has.
func (r *rig) ballast(seed uint64, sizes ...int64) []v1.Layer {
	r.Helper()
	var layers []v1.Layer
	for i, size := range sizes {
		layer, err := images.Ballast(r.seed+seed<<8+uint64(i), size)
		r.must(err)
		layers = append(layers, layer)
	}
	return layers
}

// push pushes an image of layers, and returns its reference.
func (r *rig) push(repository, tag string, layers ...v1.Layer) (reference string, image v1.Image) {
	r.Helper()
	return pulltest.Push(r.T, r.registry, repository, tag, layers...)
}

// seen returns the image as CRI shows it to the kubelet, or nil.
func (r *rig) seen(reference string) *cri.Image {
	r.Helper()
	answer, err := r.cri.ImageStatus(r.Context(), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: reference}})
	r.must(err)
	return answer.Image
}

// shows waits until CRI, which follows events of containerd, shows the image as expected.
func (r *rig) shows(reference, what string, holds func(*cri.Image) bool) *cri.Image {
	r.Helper()
	var seen *cri.Image
	r.eventually(func() error {
		if seen = r.seen(reference); holds(seen) {
			return nil
		}
		return fmt.Errorf("CRI shows %s as %v, and not %s", reference, seen, what)
	})
	return seen
}

func (r *rig) showsPinned(reference string, pinned bool) {
	r.Helper()
	what := "not pinned"
	if pinned {
		what = "pinned"
	}
	r.shows(reference, what, func(i *cri.Image) bool {
		return i != nil && i.Pinned == (pinned && r.knowsPins())
	})
}

// knowsPins reports whether this version of CRI supports pinning.
func (r *rig) knowsPins() bool { return r.version != installed }

// remove removes an image like the kubelet's garbage collection.
func (r *rig) remove(id string) {
	r.Helper()
	_, err := r.cri.RemoveImage(r.Context(), &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: id}})
	r.must(err)
}

// blobBytes returns how many bytes of the layers the registry has sent.
func (r *rig) blobBytes(layers ...v1.Layer) int64 {
	r.Helper()
	sum := int64(0)
	for _, l := range layers {
		sum += r.registry.BytesOf(r.digest(l))
	}
	return sum
}

func (r *rig) digest(l v1.Layer) v1.Hash {
	r.Helper()
	d, err := l.Digest()
	r.must(err)
	return d
}

func (r *rig) size(layers ...v1.Layer) int64 {
	r.Helper()
	sum := int64(0)
	for _, l := range layers {
		n, err := l.Size()
		r.must(err)
		sum += n
	}
	return sum
}

// pullUntil starts a pull, and returns when the registry has sent n bytes of the layer. The
// channel receives the error of the pull.
func (r *rig) pullUntil(ctx context.Context, e *engine.Engine, reference string, layer v1.Layer, n int64) <-chan error {
	r.Helper()
	done := make(chan error, 1) // has room for the error, for when the test has failed
	go func() {
		_, err := e.Pull(ctx, engineapi.Request{Image: reference})
		done <- err
	}()
	waiting, stop := context.WithTimeout(ctx, patience)
	defer stop()
	r.must(r.registry.AwaitBytes(waiting, r.digest(layer), n))
	return done
}

// cutShort pulls until the registry has sent n bytes of the layer, and then ends like a process
// that is killed.
func (r *rig) cutShort(reference string, layer v1.Layer, n int64) {
	r.Helper()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	done := r.pullUntil(ctx, r.newEngine(nil), reference, layer, n)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		r.Fatalf("a pull that was cancelled ended with %v", err)
	}
}

// lockedBuffer stores a log.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
