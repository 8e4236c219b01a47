package e2e

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/internal/rawclient"
)

// newBundleKey has the cluster name a key, and nodes read it. It returns the key's file.
func newBundleKey(t *testing.T, namespace string) (file string) {
	t.Helper()
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(kind string, der []byte, err error) []byte {
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	file = filepath.Join(t.TempDir(), "alice.pem")
	if err := os.WriteFile(file, encode("PRIVATE KEY", der, err), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := env.Kubectl(t.Context(), "apply", "-k", "../../deploy/bundles"); err != nil {
		t.Fatal(err)
	}
	der, err = x509.MarshalPKIXPublicKey(public)
	value, _ := json.Marshal(map[string]any{"publicKey": string(encode("PUBLIC KEY", der, err)), "namespaces": []string{namespace}, "notAfter": time.Now().AddDate(1, 0, 0)})
	keys := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "edgehub-bundle-keys"}, Data: map[string]string{"alice": string(value)}}
	if _, err := env.client.CoreV1().ConfigMaps("kube-system").Create(t.Context(), keys, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = env.client.CoreV1().ConfigMaps("kube-system").Delete(context.Background(), keys.Name, metav1.DeleteOptions{}) // the cluster ends as well
	})
	return file
}

// makeBundle runs kubectl edgehub bundle as the admin.
func makeBundle(t *testing.T, ns, key, file string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(binaries, "kubectl-edgehub"), "bundle", "ds/app", "-n", ns, "--key", key, "--images", "-o", file)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+env.Kubeconfig())
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestANewVersionFromAFile brings a version and its images, in a file that an admin has signed, to a node that has been away since before
// the version was released, and reaches no registry. A file of which one byte of a layer was changed brings nothing.
func TestANewVersionFromAFile(t *testing.T) {
	key := newBundleKey(t, "from-a-file")
	d := &inPlace{daemon: newDaemon(t, "from-a-file", "node1")}
	d.old = d.daemon.pod.Spec.Containers[0].Image
	d.cut("refused")
	giveBack(t, d.node) // it reads the keys
	d.permit()
	d.start()
	eventually(t, "the node has followed that the pod may be upgraded in place", func(ctx context.Context) string {
		code, body := rawclient.Ask(ctx, http.MethodGet, d.node.APIURL()+api.Pods+"?watch=true&timeoutSeconds=1&fieldSelector=metadata.namespace%3D"+d.ns)
		if code != http.StatusOK || !strings.Contains(body, `\"inPlace\":true`) {
			return fmt.Sprint(code, " ", body)
		}
		return ""
	})
	bundles := d.node.APIURL() + api.UpgradeBundles
	eventually(t, "the hub knows the key", func(ctx context.Context) string {
		// What is no bundle is refused before any key is looked for, what somebody else has signed is not.
		const forged = `{"payloadType":"application/vnd.edgehub.upgrade.v1+json","payload":"e30=","signatures":[{"sig":"AAAA"}]}`
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, bundles+"?dryRun=All", strings.NewReader(forged))
		if err != nil {
			return err.Error()
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			return err.Error()
		}
		defer res.Body.Close()
		if body, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusForbidden || !strings.Contains(string(body), "none of the keys that this node knows has signed it") {
			return fmt.Sprintf("%s %s, %v", res.Status, body, err)
		}
		return ""
	})
	d.cut("black hole")

	d.next = "one"
	d.image, d.layer = pushApp(t, d.ns, "one", megabyte)
	setImage(t, d.ns, "app", d.image)
	want := []api.ImageChange{{Name: "app", From: d.old, To: d.image}}
	eventually(t, "the controller has marked the pod in the cloud", func(ctx context.Context) string {
		pod, err := env.client.CoreV1().Pods(d.ns).Get(ctx, d.started.pod.Name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		next, ok := api.NextOf(pod)
		if d.revision = next.Revision; !ok || !slices.Equal(next.InPlace, want) {
			return fmt.Sprintf("%t, %+v", ok, next)
		}
		return ""
	})
	file := filepath.Join(t.TempDir(), "app.bundle")
	out, err := makeBundle(t, d.ns, key, file)
	if err != nil || !strings.Contains(out, d.revision) || !strings.Contains(out, "edgehubctl import") {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Log(out)
	if err := env.Registry().Down(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Registry().Up(); err != nil {
			t.Error(err)
		}
	})

	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := bytes.Clone(content)
	at := bytes.Index(changed, []byte("blobs/sha256/"+d.layer.Hex)) // the header of a layer that the node does not have
	if at < 0 {
		t.Fatal("the file lacks the new layer")
	}
	changed[at+512+1000] ^= 1
	damaged := filepath.Join(t.TempDir(), "damaged.bundle")
	if err := os.WriteFile(damaged, changed, 0o600); err != nil {
		t.Fatal(err)
	}
	imports := func(file string) (int, string) {
		return edgehubctl(t, d.node, "import", "--container-runtime-endpoint", d.node.ContainerdSocket(), file)
	}
	if code, out := imports(damaged); code == 0 || !strings.Contains(out, "nothing of ") {
		t.Errorf("a changed byte: %d\n%s", code, out)
	}
	if there, err := d.look(t.Context(), d.image); err != nil || there != "" {
		t.Errorf("a changed byte, and containerd has %s, %v", there, err)
	}
	if code, out := edgehubctl(t, d.node, "pods", "-n", d.ns); code != 0 || strings.Contains(out, "one") {
		t.Errorf("pods: %d\n%s", code, out)
	}
	code, out := imports(file)
	if code != 0 || !strings.Contains(out, "alice") || !strings.Contains(out, d.started.pod.Name) {
		t.Fatalf("import: %d\n%s", code, out)
	}
	t.Log(out)
	if code, out := edgehubctl(t, d.node, "pods", "-n", d.ns); code != 0 || !strings.Contains(out, "one") {
		t.Errorf("pods: %d\n%s", code, out)
	}

	began := time.Now()
	d.post(api.UpgradePath(d.ns, d.started.pod.Name), http.StatusOK, "Start updating pod "+d.ns+"/"+d.started.pod.Name+" (offline, in place)\n")
	t.Logf("the new version serves after %v", d.serves("one", began).Round(time.Millisecond))
	d.restartHub()
	awaitUpstream(t, d.node, 0)
	d.awaitUpgrade(api.Done)
	d.stays("after the hub was killed")
	others := d.steady(map[string]started{"the upgraded pod": d.started})

	giveBack(t, d.node)
	pod := d.awaitCondition(api.ReasonReconciled)
	if pod.Labels[appsv1.ControllerRevisionHashLabelKey] != d.revision || pod.Spec.Containers[0].Image != d.image || api.Condition(pod, api.ReconciledCondition) != nil {
		t.Errorf("the cloud has labels %v, image %s and conditions %+v", pod.Labels, pod.Spec.Containers[0].Image, pod.Status.Conditions)
	}
	d.expectRestarts(pod, 1)
	d.stays("after the cloud is back")
	others()
	if code, body := rawclient.Ask(t.Context(), http.MethodGet, bundles); code != http.StatusOK || !strings.Contains(body, d.revision) || !strings.Contains(body, `"problem"`) {
		t.Errorf("%d %s", code, body)
	}
}
