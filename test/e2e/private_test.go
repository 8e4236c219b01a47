package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/edgehub-io/edgehub/ota/nodeapi"
	"github.com/edgehub-io/edgehub/test/internal/rawclient"
)

// TestWhoMayRunAPrivateImageThatWasPulledAhead checks what docs/security.md states. kubelet has
// no record of the image, and takes it for one that was on the node from the start:
//   - by default, any pod of the node may run it, without credentials;
//   - with AlwaysVerify nobody may whose credentials the registry has not accepted, and so
//     the upgrade waits for the registry. No layer is fetched again.
func TestWhoMayRunAPrivateImageThatWasPulledAhead(t *testing.T) {
	const node, secret = "node3", "registry"
	d := newDaemon(t, "prepull-private", node, secret)
	d.loginSecret(secret, "puller", "sesame")
	env.Registry().Require(d.ns, "puller", "sesame")
	d.release("v2", 10*megabyte)
	d.pull()
	d.awaitReady()
	d.awaitCondition()

	stranger := &edge{t: t, node: d.node, ns: namespace(t, "prepull-strangers")}
	borrow := func(spec *corev1.PodSpec) { spec.Containers[0].Image = d.image }
	stranger.create("by-default", borrow)
	stranger.running("by-default")

	d.configureKubelet(map[string]any{"imagePullCredentialsVerificationPolicy": "AlwaysVerify"})
	t.Cleanup(func() { d.configureKubelet(nil) })
	stranger.create("verified", borrow)
	stranger.cannotPull("verified")

	t.Cleanup(func() {
		if err := env.Registry().Up(); err != nil {
			t.Error(err)
		}
	})
	if err := env.Registry().Down(); err != nil {
		t.Fatal(err)
	}
	if code, body := rawclient.Ask(t.Context(), http.MethodPost, upgradeURL(d.node, d.ns, d.pod.Name)); code != http.StatusOK {
		t.Fatalf("POST upgrade: %d %s", code, body)
	}
	d.cannotPull(d.successor())
	env.Registry().Forget()
	if err := env.Registry().Up(); err != nil {
		t.Fatal(err)
	}
	d.pod = readyPodOn(t, d.ns, node, d.pod.UID)
	answers(t, d.pod, "v2")
	if n := env.Registry().BytesOf(d.layer); n > 0 {
		t.Errorf("%d bytes were fetched of a layer that was there", n)
	}
}

// loginSecret makes a secret with a password for the cluster's registry.
func (e *edge) loginSecret(name, user, password string) {
	e.t.Helper()
	auth := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
	config, err := json.Marshal(map[string]any{"auths": map[string]any{env.Registry().Addr(): map[string]string{"auth": auth}}})
	if err != nil {
		e.t.Fatal(err)
	}
	_, err = env.client.CoreV1().Secrets(e.ns).Create(e.t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: config},
	}, metav1.CreateOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
}

// cannotPull waits until kubelet reports that it cannot pull a pod's image.
func (e *edge) cannotPull(name string) {
	e.t.Helper()
	eventually(e.t, "the image of pod "+name+" is refused", func(ctx context.Context) string {
		pod, err := env.client.CoreV1().Pods(e.ns).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		for i := range pod.Status.ContainerStatuses {
			waiting := pod.Status.ContainerStatuses[i].State.Waiting
			if waiting != nil && slices.Contains([]string{"ErrImagePull", "ImagePullBackOff"}, waiting.Reason) {
				e.t.Logf("pod %s waits: %s: %s", name, waiting.Reason, waiting.Message)
				return ""
			}
		}
		if isReady(pod) {
			e.t.Fatalf("pod %s runs", name)
		}
		return fmt.Sprintf("its containers are %+v", pod.Status.ContainerStatuses)
	})
}

// successor is the name of the pod that has come in place of the daemon's.
func (d *daemon) successor() (name string) {
	d.t.Helper()
	eventually(d.t, "there is another pod in place of "+d.pod.Name, func(ctx context.Context) string {
		pods, err := env.client.CoreV1().Pods(d.ns).List(ctx, metav1.ListOptions{LabelSelector: "app=app"})
		if err != nil {
			return err.Error()
		}
		var names []string
		for i := range pods.Items {
			if pods.Items[i].UID != d.pod.UID {
				name = pods.Items[i].Name
				return ""
			}
			names = append(names, pods.Items[i].Name)
		}
		return "there are " + strings.Join(names, ", ")
	})
	return name
}

// TestKubeletReadsItsPullRecordsWhenItStarts is why the hub writes none: docs/prepull.md.
// The record here has no credentials, so kubelet has to ask the registry for any pod.
func TestKubeletReadsItsPullRecordsWhenItStarts(t *testing.T) {
	const node, secret = "node2", "registry"
	d := newDaemon(t, "prepull-records", node, secret)
	d.loginSecret(secret, "puller", "sesame")
	env.Registry().Require(d.ns, "puller", "sesame")
	d.release("v2", megabyte)
	d.pull()
	t.Cleanup(d.cancel)
	d.awaitReady()
	t.Cleanup(func() {
		d.forgetRecords()
		d.configureKubelet(nil)
	})
	stranger := &edge{t: t, node: d.node, ns: namespace(t, "prepull-records-others")}
	borrow := func(spec *corev1.PodSpec) { spec.Containers[0].Image = d.image }

	id := d.imageID()
	d.writeRecord("pulled", id, map[string]any{"kind": "ImagePulledRecord", "imageRef": id, "lastUpdatedTime": metav1.Now()})
	stranger.create("while-it-runs", borrow)
	stranger.running("while-it-runs")
	d.configureKubelet(nil) // and restarts it
	stranger.create("after-its-start", borrow)
	stranger.cannotPull("after-its-start")

	// A pull that has begun becomes a record without credentials.
	d.forgetRecords()
	d.writeRecord("pulling", d.image, map[string]any{"kind": "ImagePullIntent", "image": d.image})
	d.configureKubelet(nil)
	t.Cleanup(func() {
		if err := env.Registry().Up(); err != nil {
			t.Error(err)
		}
	})
	if err := env.Registry().Down(); err != nil {
		t.Fatal(err)
	}
	d.create("rightful", func(spec *corev1.PodSpec) {
		borrow(spec)
		spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: secret}}
	})
	d.cannotPull("rightful")
}

// cancel has the node let go of the images of the next version, which it would hold for a
// while after the pod has gone.
func (d *daemon) cancel() {
	ctx := context.WithoutCancel(d.t.Context()) // it has ended
	if code, body := rawclient.Ask(ctx, http.MethodDelete, d.node.APIURL()+nodeapi.ImagePullPath(d.ns, d.pod.Name)); code != http.StatusOK {
		d.t.Errorf("DELETE imagepull: %d %s", code, body)
	}
}

// imageID is what CRI calls the image that is pulled ahead.
func (d *daemon) imageID() string {
	d.t.Helper()
	conn, err := grpc.NewClient("unix://"+d.node.ContainerdSocket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		d.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }() // it was only asked
	answer, err := cri.NewImageServiceClient(conn).ImageStatus(d.t.Context(), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: d.image}})
	if err != nil || answer.GetImage() == nil {
		d.t.Fatalf("CRI does not know %s: %v", d.image, err)
	}
	return answer.Image.Id
}

// recordsDir is where the node's kubelet keeps what it knows of its pulls.
func (d *daemon) recordsDir() string {
	return filepath.Join(filepath.Dir(d.node.HubDir()), "var-lib", "kubelet", "image_manager")
}

// writeRecord writes one of kubelet's records about a key.
func (d *daemon) writeRecord(folder, key string, record map[string]any) {
	d.t.Helper()
	record["apiVersion"] = "kubelet.config.k8s.io/v1beta1"
	raw, err := json.Marshal(record)
	if err != nil {
		d.t.Fatal(err)
	}
	name := fmt.Sprintf("sha256-%x", sha256.Sum256([]byte(key)))
	if err := os.WriteFile(filepath.Join(d.recordsDir(), folder, name), raw, 0o600); err != nil {
		d.t.Fatal(err)
	}
}

// forgetRecords removes all records of the node's kubelet.
func (d *daemon) forgetRecords() {
	d.t.Helper()
	for _, folder := range []string{"pulled", "pulling"} {
		files, err := filepath.Glob(filepath.Join(d.recordsDir(), folder, "sha256-*"))
		if err != nil {
			d.t.Fatal(err)
		}
		for _, file := range files {
			if err := os.Remove(file); err != nil {
				d.t.Fatal(err)
			}
		}
	}
}
