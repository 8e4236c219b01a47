package engine

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var snapshotter = regexp.MustCompile(`(?m)^ *snapshotter = "(.*)"$`)

// unpacked fails the test unless containerd has all of the image, unpacked, and CRI
// pulls it without fetching anything.
func (r *rig) unpacked(reference string) {
	r.Helper()
	config, err := os.ReadFile(filepath.Join(r.containerd.Dir(), "containerd.toml"))
	r.must(err)
	text := r.ctr("images", "check", "--snapshotter", string(snapshotter.FindSubmatch(config)[1]), "name=="+reference)
	if !strings.Contains(text, " complete ") || !strings.Contains(text, " true") {
		r.Errorf("containerd has not all of %s:\n%s", reference, text)
	}
	before := r.registry.Bytes()
	r.pullByCRI(reference)
	if more := r.registry.Bytes() - before; more > 0 {
		r.Errorf("CRI has fetched %d bytes of %s", more, reference)
	}
}

// labeledWithSource fails the test unless each blob has the label of the registry's host that CRI's pulls set.
func (r *rig) labeledWithSource(blobs ...string) {
	r.Helper()
	out := r.ctr("content", "list", "--quiet", `labels."containerd.io/distribution.source.127.0.0.1"==app`)
	for _, blob := range blobs {
		if !strings.Contains(out, blob) {
			r.Errorf("%s has no label that says where it came from; those that have:\n%s", blob, out)
		}
	}
}

// pullByCRI has CRI pull an image, as kubelet does.
func (r *rig) pullByCRI(reference string) {
	r.Helper()
	r.must(r.registry.WriteHosts(r.containerd.HostsDir(), r.registry.Addr()))
	_, err := r.cri.PullImage(r.Context(), &cri.PullImageRequest{Image: &cri.ImageSpec{Image: reference}})
	r.must(err)
}
