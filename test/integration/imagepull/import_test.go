package imagepull

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/cluster/images"
	"github.com/edgehub-io/edgehub/test/internal/poll"
	"github.com/edgehub-io/edgehub/test/internal/pulltest"
)

// importCommand is edgehubctl import, for this node's hub and containerd.
func (r *rig) importCommand(ctx context.Context, args ...string) *exec.Cmd {
	r.Helper()
	args = append([]string{"import", "--min-free=0", "--container-runtime-endpoint=unix://" + r.containerd.Socket()}, args...)
	cmd := exec.CommandContext(ctx, env.ctlBin, args...)
	cmd.Env = append(os.Environ(), "EDGEHUB_ADDRESS="+strings.TrimPrefix(r.hub.API, "http://"), "TMPDIR="+cmp.Or(r.spool, r.TempDir()))
	return cmd
}

// importFile runs edgehubctl import, and returns what it prints and its exit code.
func (r *rig) importFile(stdin *os.File, args ...string) (text string, code int) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), poll.Patience)
	defer cancel()
	cmd := r.importCommand(ctx, args...)
	cmd.Stdin = stdin
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		r.Fatal(err)
	}
	r.Logf("edgehubctl %s: exit code %d\n%s", strings.Join(cmd.Args[1:], " "), cmd.ProcessState.ExitCode(), &out)
	return out.String(), cmd.ProcessState.ExitCode()
}

// exported writes an image with ctr images export, from a containerd of another machine.
func exported(r *rig, image v1.Image, reference string) string {
	r.Helper()
	other := pulltest.StartContainerd(r.T, cluster.ContainerdOptions{Version: cluster.ContainerdInstalled})
	r.must(other.Trust(r.registry))
	r.must(r.registry.Push(r.Context(), "app", "2", image))
	path := filepath.Join(r.TempDir(), "exported.tar")
	for _, args := range [][]string{{"pull", "--hosts-dir", other.HostsDir(), reference}, {"export", path, reference}} {
		args = append([]string{"--address", other.Socket(), "--namespace", "other", "images"}, args...)
		if out, err := exec.CommandContext(r.Context(), "ctr", args...).CombinedOutput(); err != nil {
			r.Fatalf("ctr %v: %v: %s", args, err, out)
		}
	}
	return path
}

// TestImport is an upgrade's images from a stick: without cloud and registry, they are on the node, and are kept, as if they had
// been pulled. A restart of the hub changes nothing, and the upgrade waits for no pull.
func TestImport(t *testing.T) {
	for name, write := range map[string]func(*rig, v1.Image, string) string{
		"an OCI layout": func(r *rig, image v1.Image, reference string) string {
			return pulltest.Tar(r.T, pulltest.Layout(r.T, image, reference))
		},
		"docker save":       func(r *rig, image v1.Image, reference string) string { return pulltest.Saved(r.T, image, reference) },
		"ctr images export": exported,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			image, err := images.New(images.Platform("amd64"), r.layer(1, 6<<20))
			r.must(err)
			reference := r.registry.Reference("app", "2")
			path := write(r, image, reference)
			r.must(r.registry.Down())
			r.hub.Start()
			d := r.upgradable("web", reference)
			pod := d.pod.Name
			r.awaitMark(pod)
			r.must(r.hub.Link.BlackHole())
			if text, code := r.importFile(nil, path); code != 0 || !strings.Contains(text, reference+": on the node, 6.0 MiB, sha256:") || !strings.Contains(text, "To upgrade: edgehubctl upgrade "+r.namespace+"/"+pod) {
				t.Errorf("exit code %d: %s", code, text)
			}
			if got := r.state(pod); got.State != api.Ready || got.Images[0].Attempts != 1 {
				t.Errorf("after it the state is %+v", got)
			}
			r.hub.Kill()
			r.hub.Start()
			r.expect(r.call(http.MethodPost, api.UpgradePath(r.namespace, pod)), http.StatusAccepted, "queued")
			if got := r.state(pod); got.State != api.Ready {
				t.Errorf("with the upgrade waiting, the state is %+v", got)
			}
			if r.online() {
				t.Error("the cloud was not away all the time")
			}
			stdin, w, err := os.Pipe()
			r.must(err)
			zip := exec.CommandContext(t.Context(), "gzip", "-c", path)
			zip.Stdout = w
			r.must(zip.Start())
			r.must(w.Close())
			if text, code := r.importFile(stdin, "-"); code != 0 { // once more
				t.Errorf("exit code %d: %s", code, text)
			}
			r.must(errors.Join(zip.Wait(), stdin.Close()))
			r.must(r.hub.Link.Up())
			d.awaitCondition(d.ready())
			r.eventually("GET /pods shows that the images are on the node", func() bool { return r.shownCondition(pod) == d.ready() })
			r.awaitImage(reference)
		})
	}
}

// shownCondition is the condition PodImageReady of a pod as GET /pods shows it.
func (r *rig) shownCondition(pod string) string {
	r.Helper()
	var list corev1.PodList
	r.read(api.Pods, &list)
	for i := range list.Items {
		if list.Items[i].Name == pod {
			return conditionText(&list.Items[i])
		}
	}
	return "no pod"
}

// TestAnImportOverAPull does not wait for a registry that hardly answers.
func TestAnImportOverAPull(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	layer := r.layer(1, 6<<20)
	reference, image := r.push("app", "2", layer)
	r.registry.SetRate(10 << 10)
	r.hub.Start()
	d := r.upgradable("web", reference)
	r.askOnceMarked(d.pod.Name)
	r.awaitBytes(layer, 20<<10)
	if text, code := r.importFile(nil, pulltest.Tar(t, pulltest.Layout(t, image, reference))); code != 0 {
		t.Fatalf("exit code %d: %s", code, text)
	}
	if sent := r.registry.Bytes(); sent > 3<<20 {
		t.Errorf("the registry has sent %d bytes", sent)
	}
	d.awaitCondition(d.ready())
	r.awaitImage(reference)
}

// TestAnImportThatIsRefused says why.
func TestAnImportThatIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	image, err := images.New(images.Platform("amd64"), r.layer(1, 1<<20))
	r.must(err)
	reference := r.registry.Reference("app", "2")
	r.must(r.registry.Down())
	r.hub.Start()
	d := r.upgradable("web", reference)
	r.awaitMark(d.pod.Name)
	damaged := pulltest.Layout(t, image, reference)
	damaged[4].Text[1000] ^= 1
	text, code := r.importFile(nil, pulltest.Tar(t, damaged))
	if code != 1 || !strings.Contains(text, "somebody has tampered with it") || strings.Count(text, "error:") != 1 {
		t.Errorf("a damaged layer: exit code %d: %s", code, text)
	}
	text, code = r.importFile(nil, pulltest.Tar(t, pulltest.Layout(t, image, "other/app:2")))
	if code != 1 || !strings.Contains(text, "it has docker.io/other/app:2, which no pod of this node names: their next versions name "+reference) {
		t.Errorf("another's image: exit code %d: %s", code, text)
	}
	silent, w, err := os.Pipe()
	r.must(err)
	defer func() { r.must(errors.Join(silent.Close(), w.Close())) }()
	if text, code = r.importFile(silent, "--timeout=1s", "-"); code != 3 || !strings.Contains(text, "Nothing of it was imported") {
		t.Errorf("a pipe that brings nothing: exit code %d: %s", code, text)
	}
	r.hub.Kill()
	if text, code = r.importFile(nil, pulltest.Tar(t, pulltest.Layout(t, image, reference))); code != 1 || !strings.Contains(text, "is it running?") {
		t.Errorf("without a hub: exit code %d: %s", code, text)
	}
	r.awaitNothingHeld()
}

// TestAnImportThatIsKilled leaves no image, and what it has written only under a lease that ends by itself. The next one does all.
func TestAnImportThatIsKilled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	image, err := images.New(images.Platform("amd64"), r.layer(1, 100<<20))
	r.must(err)
	reference := r.registry.Reference("app", "2")
	path := pulltest.Tar(t, pulltest.Layout(t, image, reference))
	r.must(r.registry.Down())
	r.hub.Start()
	d := r.upgradable("web", reference)
	r.awaitMark(d.pod.Name)
	cmd := r.importCommand(t.Context(), path)
	said, err := cmd.StderrPipe()
	r.must(err)
	r.must(cmd.Start())
	if first, err := bufio.NewReader(said).ReadString('\n'); err != nil || !strings.Contains(first, "0% of") {
		t.Fatalf("its progress begins with %q, %v", first, err)
	}
	r.must(cmd.Process.Kill())
	if err := cmd.Wait(); err == nil {
		t.Fatal("it was done before it was killed")
	}
	if left := r.holds(); len(left) != 1 || !strings.Contains(left[0], "containerd.io/gc.expire=") {
		t.Errorf("it has left %q, want a lease that ends", left)
	}
	if seen := r.criImages(); len(seen) > 0 {
		t.Errorf("CRI shows %v", seen)
	}
	if text, code := r.importFile(nil, path); code != 0 {
		t.Errorf("exit code %d: %s", code, text)
	}
	r.awaitImage(reference)
}
