package imagepull

import (
	"context"
	"hash/fnv"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/cluster/images"
	"github.com/edgehub-io/edgehub/test/internal/hubproc"
	"github.com/edgehub-io/edgehub/test/internal/poll"
	"github.com/edgehub-io/edgehub/test/internal/pulltest"
)

// rig is one node with its hub, containerd and registry, and a namespace with pods on the node. Each hub
// has its own containerd, because it releases all images that it does not want.
type rig struct {
	*testing.T
	hub        *hubproc.Hub
	node       string
	namespace  string
	containerd *cluster.Containerd
	registry   *images.Registry
	spool      string // TMPDIR of imports; empty: one of each
}

// newRig returns a node with containerd, whose hub the test starts; test/integration/engine tests each version of
// containerd. args are additional flags of the hub.
func newRig(t *testing.T, args ...string) *rig {
	t.Helper()
	return newRigIn(t, "", args...)
}

// newRigIn is newRig with a folder for what containerd stores.
func newRigIn(t *testing.T, dir string, args ...string) *rig {
	t.Helper()
	cluster.NeedRoot(t)
	containerd, registry := pulltest.StartContainerd(t, cluster.ContainerdOptions{Version: cluster.Containerd2, Dir: dir}), pulltest.ServeRegistry(t)
	if err := containerd.Trust(registry); err != nil {
		t.Fatal(err)
	}
	// The tests must also pass on a machine with a full disk.
	args = append([]string{
		"--container-runtime-endpoint=unix://" + containerd.Socket(), "--registry-config-dir=" + containerd.HostsDir(),
		"--image-pull-min-free=0", "--kubelet-root-dir=" + t.TempDir(),
	}, args...)
	hub := hubproc.New(t, hubproc.Options{Binary: env.hubBin, Server: env.cluster.ServerURL(), Args: args})
	hub.IdentifyAs(env.cluster, "system:nodes")
	r := &rig{T: t, hub: hub, node: hub.Name, containerd: containerd, registry: registry}
	r.must(env.fleet.AddNode(t.Context(), r.node, map[string]string{corev1.LabelHostname: r.node}))
	t.Cleanup(func() {
		if err := env.fleet.RemoveNode(context.WithoutCancel(t.Context()), r.node); err != nil {
			t.Error(err)
		}
	})
	ns, err := env.admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "pull-"}}, metav1.CreateOptions{})
	r.must(err)
	r.namespace = ns.Name
	r.eventually("the namespace has a service account", func() bool {
		_, err := env.admin.CoreV1().ServiceAccounts(r.namespace).Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	})
	t.Cleanup(r.expectNoSecret) // whatever else the test is about
	return r
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) eventually(what string, done func() bool) {
	r.Helper()
	poll.Eventually(r.T, what, done)
}

// layer returns a layer of random bytes that no other test has.
func (r *rig) layer(seed uint64, size int64) v1.Layer {
	r.Helper()
	own := fnv.New64a()
	_, _ = own.Write([]byte(r.Name())) // never fails
	layer, err := images.Ballast(own.Sum64()+seed, size)
	r.must(err)
	return layer
}

// push pushes an image of layers, and returns its reference.
func (r *rig) push(repository, tag string, layers ...v1.Layer) (reference string, image v1.Image) {
	r.Helper()
	return pulltest.Push(r.T, r.registry, repository, tag, layers...)
}

// atMost compares the bytes of a layer that the registry has sent with the layer's size. If a process is
// killed meanwhile, the layer must be much larger than lostToKill.
func (r *rig) atMost(times float64, layer v1.Layer) {
	r.Helper()
	digest, err := layer.Digest()
	r.must(err)
	size, err := layer.Size()
	r.must(err)
	served := r.registry.BytesOf(digest)
	r.Logf("the registry has sent %d bytes of a layer of %d: %.4f", served, size, float64(served)/float64(size))
	if float64(served) > times*float64(size) || served < size {
		r.Errorf("the registry has sent %d bytes of a layer of %d, want all of it and at most %.2f times as much", served, size, times)
	}
}

// awaitBytes returns when the registry has sent n bytes of a layer.
func (r *rig) awaitBytes(layer v1.Layer, n int64) {
	r.Helper()
	digest, err := layer.Digest()
	r.must(err)
	ctx, cancel := context.WithTimeout(r.Context(), poll.Patience)
	defer cancel()
	r.must(r.registry.AwaitBytes(ctx, digest, n))
}
