package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
