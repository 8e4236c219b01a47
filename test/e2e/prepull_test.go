package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/cluster/images"
	"github.com/edgehub-io/edgehub/test/internal/rawclient"
)

const megabyte = 1_000_000

// daemon is a DaemonSet on one node that its owner upgrades, to images that are in
// no other test.
type daemon struct {
	*edge
	pod      *corev1.Pod // of the present version
	next     string      // the version to come
	image    string      // that of next
	data     string      // the image that is a volume of next, or empty
	layer    v1.Hash
	revision string
}

// keptVolume is a volume of each daemon's pod, and where the container has it.
const keptVolume = "kept"

func newDaemon(t *testing.T, ns, node string, secrets ...string) *daemon {
	t.Helper()
	d := &daemon{edge: newEdge(t, ns, node)}
	ds := otaDaemonSet("app")
	ds.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	ds.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: keptVolume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	ds.Spec.Template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: keptVolume, MountPath: "/" + keptVolume}}
	// It stays where kubelet makes room.
	ds.Spec.Template.Spec.PriorityClassName = "system-node-critical"
	for _, secret := range secrets {
		ds.Spec.Template.Spec.ImagePullSecrets = append(ds.Spec.Template.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: secret})
	}
	if _, err := env.client.AppsV1().DaemonSets(ns).Create(t.Context(), ds, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	d.pod = readyPodOn(t, ns, node, "")
	t.Cleanup(func() { env.Registry().SetRate(0) })
	return d
}

// release makes a new version the one that the DaemonSet wants, with as much ballast,
// and waits until the node knows.
func (d *daemon) release(version string, ballast int64) {
	d.t.Helper()
	d.next = version
	d.image, d.layer = pushApp(d.t, d.ns, version, ballast)
	if d.data == "" {
		setImage(d.t, d.ns, "app", d.image)
	} else {
		patchTemplate(d.t, d.ns, "app", fmt.Sprintf(`{"containers":[{"name":"app","image":%q,"volumeMounts":[{"name":"data","mountPath":"/data"}]}],`+
			`"volumes":[{"name":"data","image":{"reference":%q}}]}`, d.image, d.data))
	}
	d.awaitMark()
}

// awaitMark waits until the node knows which revision its pod needs.
func (d *daemon) awaitMark() {
	d.t.Helper()
	marked := needs(d.t, d.node, d.pod, corev1.ConditionTrue)
	d.revision = api.RevisionOf(api.Condition(&marked, api.NeedCondition))
}

// pushApp puts an image of the app into a repository; its ballast is in no other.
func pushApp(t *testing.T, repository, version string, ballast int64) (image string, layer v1.Hash) {
	t.Helper()
	var seed uint64
	for _, letter := range []byte(repository + version) {
		seed = seed*31 + uint64(letter)
	}
	extra, err := images.Ballast(seed, ballast)
	if err != nil {
		t.Fatal(err)
	}
	if layer, err = extra.Digest(); err != nil {
		t.Fatal(err)
	}
	if image, err = env.PushApp(t.Context(), repository, version, extra); err != nil {
		t.Fatal(err)
	}
	return image, layer
}

// pull asks for the images of the next version.
func (d *daemon) pull() {
	d.t.Helper()
	url := d.node.APIURL() + api.ImagePullPath(d.ns, d.pod.Name)
	if code, body := rawclient.Ask(d.t.Context(), http.MethodPost, url); code != http.StatusOK {
		d.t.Fatalf("POST imagepull: %d %s", code, body)
	}
}

// awaitReady waits until the node reports that the images are there.
func (d *daemon) awaitReady() {
	d.t.Helper()
	eventually(d.t, "the images of "+d.pod.Name+" are Ready", func(ctx context.Context) string {
		code, body := rawclient.Ask(ctx, http.MethodGet, d.node.APIURL()+api.ImagePullPath(d.ns, d.pod.Name))
		var pull api.ImagePull
		if err := json.Unmarshal([]byte(body), &pull); code != http.StatusOK || err != nil {
			return fmt.Sprintf("GET imagepull: %d %s", code, body)
		}
		want := []string{d.image}
		if d.data != "" {
			want = append(want, d.data)
		}
		var got []string
		for i := range pull.Images {
			got = append(got, pull.Images[i].Image)
		}
		image := pull.Images[0]
		switch {
		case pull.State != api.Ready:
			return body
		case pull.Revision != d.revision || !slices.Equal(got, want):
			d.t.Fatalf("it is the wrong one, want %s of revision %s: %s", want, d.revision, body)
		case image.BytesDone != image.BytesTotal || image.BytesTotal == 0 || image.Digest == "" || image.LastError != "":
			d.t.Fatalf("it is Ready, and not complete: %s", body)
		}
		return ""
	})
}

// awaitCondition waits until the cloud knows that the images are there.
func (d *daemon) awaitCondition() {
	d.t.Helper()
	eventually(d.t, "the cloud sees PodImageReady True on "+d.pod.Name, func(ctx context.Context) string {
		condition, err := d.condition(ctx)
		if err != nil {
			return err.Error()
		}
		if condition == nil || condition.Status != corev1.ConditionTrue || api.RevisionOf(condition) != d.revision {
			return fmt.Sprintf("it is %+v, want it for revision %s", condition, d.revision)
		}
		return ""
	})
}

// condition is the PodImageReady that the cloud sees, or nil.
func (d *daemon) condition(ctx context.Context) (*corev1.PodCondition, error) {
	pod, err := env.client.CoreV1().Pods(d.ns).Get(ctx, d.pod.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return api.Condition(pod, api.ImageCondition), nil
}

// upgrade has the owner upgrade, waits until the next version serves, and returns
// how long that took.
func (d *daemon) upgrade() time.Duration {
	d.t.Helper()
	began := time.Now()
	if code, body := rawclient.Ask(d.t.Context(), http.MethodPost, upgradeURL(d.node, d.ns, d.pod.Name)); code != http.StatusOK {
		d.t.Fatalf("POST upgrade: %d %s", code, body)
	}
	d.pod = readyPodOn(d.t, d.ns, d.node.Name(), d.pod.UID)
	answers(d.t, d.pod, d.next)
	return time.Since(began)
}

// expectNothingFetched fails if the next version's repository was asked for anything
// since the registry has forgotten the others.
func (d *daemon) expectNothingFetched() {
	d.t.Helper()
	for _, r := range env.Registry().Requests() {
		if strings.HasPrefix(r.Path, "/v2/"+d.ns+"/") {
			d.t.Errorf("the registry was asked by %s: %s %s, answered %d with %d bytes", r.UserAgent, r.Method, r.Path, r.Status, r.Bytes)
		}
	}
}

// expectLetGo ends what is held for a rollback, and waits until nothing of the daemon is held any more.
func (d *daemon) expectLetGo() {
	d.t.Helper()
	if out, err := env.Kubectl(d.t.Context(), "-n", d.ns, "annotate", "ds/app", api.OwnerRollbackAnnotation+"="+api.RollbackDenied); err != nil {
		d.t.Fatal(out, err)
	}
	eventually(d.t, "the node lets go of "+d.image, func(ctx context.Context) string {
		image, err := d.look(ctx, d.image)
		if err != nil || image == "" || strings.Contains(image, "edgehub.io/") || strings.Contains(image, pinned) {
			return fmt.Sprintf("it is %q, %v", image, err)
		}
		leases, err := d.ctr(ctx, "leases", "ls")
		if err != nil || strings.Contains(leases, "/"+d.ns+":") || strings.Contains(leases, "/"+d.ns+"/") {
			return fmt.Sprintf("there are the leases %s, %v", leases, err)
		}
		return ""
	})
}

// pinned is what CRI reports of an image that kubelet has to spare.
const pinned = "io.cri-containerd.pinned=pinned"

// look returns what containerd has of an image, with its labels; "" if it has none.
func (d *daemon) look(ctx context.Context, image string) (string, error) {
	table, err := d.ctr(ctx, "images", "ls", "name=="+image)
	_, line, _ := strings.Cut(table, "\n")
	return line, err
}

// ctr asks the node's containerd, past CRI and the hub.
func (d *daemon) ctr(ctx context.Context, args ...string) (string, error) {
	args = append([]string{"--address", d.node.ContainerdSocket(), "--namespace", "k8s.io"}, args...)
	out, err := exec.CommandContext(ctx, "ctr", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ctr %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// TestUpgradeAfterPrepullFetchesNothing: test/integration/engine pulls with each containerd.
// The new version has a volume that is an image, which the old one has not.
func TestUpgradeAfterPrepullFetchesNothing(t *testing.T) {
	d := newDaemon(t, "prepull", "node3")
	if containerdOf("node3") == cluster.Containerd2 { // the others mount no image as a volume
		d.data, _ = pushApp(t, d.ns+"/data", "v2", megabyte)
	}
	d.release("v2", 10*megabyte)
	d.pull()
	d.awaitReady()
	d.awaitCondition()
	answers(t, d.pod, "v1")
	if image, err := d.look(t.Context(), d.image); err != nil || !strings.Contains(image, pinned) {
		t.Errorf("the image is not pinned while it waits: %q, %v", image, err)
	}

	env.Registry().Forget()
	t.Logf("the new version served %v after POST upgrade", d.upgrade().Round(time.Millisecond))
	d.expectNothingFetched()
	d.expectLetGo()
}

// TestMeasuredUpgradeTakesLessAfterPrepull measures both over a thin line. docs/ota.md has the figures.
func TestMeasuredUpgradeTakesLessAfterPrepull(t *testing.T) {
	const size, rate = 100 * megabyte, 5 * megabyte
	d := newDaemon(t, "prepull-times", "node1")
	env.Registry().SetRate(rate)

	d.release("v2", size)
	without := d.upgrade()

	d.release("v3", size)
	began := time.Now()
	d.pull()
	d.awaitReady()
	t.Logf("the pre-pull of %d MB at %d MB/s took %v", size/megabyte, rate/megabyte, time.Since(began).Round(time.Millisecond))
	d.awaitCondition()
	with := d.upgrade()
	t.Logf("from POST upgrade until the new version serves: %v without pre-pull, %v with it",
		without.Round(time.Millisecond), with.Round(time.Millisecond))
	if without < size/rate*time.Second {
		t.Errorf("without pre-pull it took %v, which is less than the line needs", without)
	}
	if with > without/2 {
		t.Errorf("with pre-pull it took %v, without it %v", with, without)
	}
}

// configureKubelet restarts kubelet with other fields.
func (d *daemon) configureKubelet(fields map[string]any) {
	d.t.Helper()
	if err := d.node.ConfigureKubelet(fields); err != nil {
		d.t.Fatal(err)
	}
	if err := d.node.KubeletProcess().Restart(context.WithoutCancel(d.t.Context())); err != nil {
		d.t.Fatal(err)
	}
}
