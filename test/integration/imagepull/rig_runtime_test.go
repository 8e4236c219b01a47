package imagepull

import (
	"os/exec"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// criImages returns all images that the kubelet would see, by their tags.
func (r *rig) criImages() map[string]*cri.Image {
	r.Helper()
	conn, err := grpc.NewClient("unix://"+r.containerd.Socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	r.must(err)
	defer func() { _ = conn.Close() }()
	answer, err := cri.NewImageServiceClient(conn).ListImages(r.Context(), &cri.ListImagesRequest{})
	r.must(err)
	out := map[string]*cri.Image{}
	for _, image := range answer.Images {
		for _, tag := range image.RepoTags {
			out[tag] = image
		}
	}
	return out
}

// awaitImage waits until the kubelet would see the image, which must be pinned.
func (r *rig) awaitImage(reference string) {
	r.Helper()
	r.eventually("CRI shows "+reference, func() bool { return r.criImages()[reference] != nil })
	if image := r.criImages()[reference]; !image.Pinned {
		r.Errorf("CRI shows %v", image)
	}
}

// ctr runs ctr in the namespace of CRI.
func (r *rig) ctr(args ...string) string {
	r.Helper()
	out, err := exec.CommandContext(r.Context(), "ctr", append([]string{"--address", r.containerd.Socket(), "--namespace", "k8s.io"}, args...)...).CombinedOutput()
	if err != nil {
		r.Fatalf("ctr %v: %v: %s", args, err, out)
	}
	return string(out)
}

// holds returns the lines of ctr about leases and labels of retained images, and about pinned images.
func (r *rig) holds() []string {
	r.Helper()
	var out []string
	for _, args := range [][]string{{"leases", "ls"}, {"images", "ls"}} {
		for line := range strings.Lines(r.ctr(args...)) {
			if strings.Contains(line, "edgehub") || strings.Contains(line, "pinned") {
				out = append(out, strings.TrimSpace(line))
			}
		}
	}
	return out
}

// awaitNothingHeld waits until no image is retained. The images may still be on the node.
func (r *rig) awaitNothingHeld() {
	r.Helper()
	var last []string
	defer func() {
		if r.Failed() {
			r.Logf("held are:\n%s", strings.Join(last, "\n"))
		}
	}()
	r.eventually("nothing is held any more", func() bool {
		last = r.holds()
		return len(last) == 0
	})
	for tag, image := range r.criImages() {
		if image.Pinned {
			r.Errorf("%s is pinned", tag)
		}
	}
}
