package imagepull

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
	"github.com/edgehub-io/edgehub/ota/podfiles"
)

func TestARequestThatCannotBeKeptIsRefused(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		if err := errors.Join(os.Remove(n.dir), os.WriteFile(n.dir, nil, 0o600)); err != nil { // in the folder's place
			t.Fatal(err)
		}
		pod := oldPod("web-1", "v2", "app")
		n.cloud.set(pod)
		if err := n.Request(pod, target("v2", "app"), false); err == nil {
			t.Error("it was taken")
		}
		pass(time.Minute)
		want(t, "the engine", n.engine.took(), "")
		want(t, "state", n.shows("web-1"), "none")
	})
}

func TestADamagedFileHoldsUpNoOther(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.wanted(t, "web-1", "v2", "app")
		n.stop()
		for name, text := range map[string]string{
			"cut": `{"uid":"cut","namespace":"n`, "empty": `{}`, "no-images": `{"pod":"web-2","revision":"v2","images":[]}`,
			"no-pod": `{"revision":"v2","images":[{"image":"app"}]}`, "no-revision": `{"pod":"web-2","images":[{"image":"app"}]}`,
		} {
			if err := os.WriteFile(filepath.Join(n.dir, "ns_"+name+".json"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		n.begin(t, 1)
		if got := len(n.States()); got != 1 {
			t.Errorf("%d pre-pulls; want the one that is whole", got)
		}
	})
}

// Which images such a file asks for is not known, and they may be needed before the cloud is back.
func TestNothingIsReleasedWhileAFileCannotBeRead(t *testing.T) {
	for name, unreadable := range map[string]string{"a file": "ns_pod.json", "the folder": ""} {
		t.Run(name, func(t *testing.T) {
			onNode(t, func(t *testing.T, n *node) {
				n.wanted(t, "web-1", "v2", "app")
				pass(time.Minute)
				n.stop()
				dir, broken := n.dir, n.dir+"-broken"
				n.dir = broken
				if unreadable != "" {
					n.dir, broken = dir, filepath.Join(dir, unreadable)
				}
				n.engine.held["of another job"] = true
				if err := os.Symlink(broken, broken); err != nil { // to read it fails
					t.Fatal(err)
				}
				n.engine.took()
				n.begin(t, 1)
				pass(time.Hour)
				if calls := n.engine.took(); strings.Contains(calls, "release") {
					t.Errorf("%s was called", calls)
				}
				n.stop()
				n.dir = dir
				if err := os.Remove(broken); err != nil {
					t.Fatal(err)
				}
				n.begin(t, 1)
				pass(time.Minute)
				want(t, "once it can be read", n.engine.took(), "keep app, release of another job")
			})
		})
	}
}

// An image may have become ready while one of its jobs could not be written.
func TestAnImageIsReadyIfOneFileSaysSo(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.wanted(t, "web-1", "v2", "app")
		n.wanted(t, "web-2", "v2", "app")
		pass(time.Minute)
		for range 10 { // files are read in no order
			n.stop()
			files, jobs, err := podfiles.Open[job](n.dir, slog.New(slog.DiscardHandler))
			if err != nil || len(jobs) != 2 {
				t.Fatal(jobs, err)
			}
			older := types.NamespacedName{Namespace: "ns", Name: "uid-web-1"}
			jobs[older].Images[0].Ready = nil
			if err := files.Put(older, jobs[older]); err != nil {
				t.Fatal(err)
			}
			n.engine.took()
			n.begin(t, 1)
			pass(time.Minute)
			want(t, "the engine", n.engine.took(), "keep app")
		}
	})
}

func TestNothingOnDiskIsASecret(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.cloud.secrets["registry"] = login("ns", "registry")
		n.wanted(t, "web-1", "v2", "reg.example/app")
		pass(2 * pullTime)
		if got := n.engine.asked[0].Credentials; len(got) != 1 || got[0].Password != "hunter2" {
			t.Fatalf("the engine was given %v", got)
		}
		files, err := os.ReadDir(n.dir)
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, f := range files {
			raw, err := os.ReadFile(filepath.Join(n.dir, f.Name()))
			if err != nil || strings.Contains(string(raw), "hunter2") || strings.Contains(string(raw), "aHVudGVyMg") {
				t.Errorf("%s: %v\n%s", f.Name(), err, raw)
			}
		}
	})
}

// askAs requests the pre-pull of an image for pods in two namespaces, each with a secret of its own.
func (n *node) askAs(t *testing.T, image string, secrets map[string]string) {
	t.Helper()
	for namespace, secret := range secrets {
		wanted := target("v2", image)
		wanted.ImagePullSecrets = []string{secret}
		pod := podWith("in-"+namespace, wanted)
		pod.Namespace = namespace
		n.cloud.set(pod)
		if err := n.Request(pod, wanted, false); err != nil {
			t.Fatal(err)
		}
	}
	pass(time.Minute) // the first attempt may have begun before both were asked for
}

// told is the error that a pod of askAs is told, as its state and by its last Event.
func (n *node) told(namespace string) (state, event string) {
	s, _ := n.State(types.NamespacedName{Namespace: namespace, Name: "in-" + namespace})
	n.cloud.mu.Lock()
	defer n.cloud.mu.Unlock()
	return s.Images[0].LastError, n.cloud.message["in-"+namespace]
}

// Two namespaces that want the same image try each other's credentials, but do not learn their names.
func TestAPodIsToldOfItsOwnSecretsOnly(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.engine.fail["app"] = engineapi.NewError(engineapi.Unauthorized, errors.New("refused")).
			Explain("shop", errors.New("secret shop/till was tried")).Explain("bank", errors.New("secret bank/vault was tried"))
		n.askAs(t, "app", map[string]string{"shop": "unreadable-in-shop", "bank": "unreadable-in-bank"})
		for namespace, other := range map[string]string{"shop": "bank", "bank": "shop"} {
			text, event := n.told(namespace)
			if !strings.Contains(text, "unreadable-in-"+namespace) || !strings.Contains(text, "secret "+namespace+"/") {
				t.Errorf("a pod in %s is not told of its own secrets: %q", namespace, text)
			}
			if strings.Contains(text, other) || strings.Contains(event, other) || event == "" {
				t.Errorf("a pod in %s is told %q, and by an Event %q", namespace, text, event)
			}
		}
	})
}

// A secret that was copied to another namespace is tried once, and named to both.
func TestACopyOfASecretIsNamedToItsNamespace(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		const image = "reg.example/app"
		n.engine.fail[image] = engineapi.NewError(engineapi.Unauthorized, errors.New("refused"))
		secrets := map[string]string{"shop": "of-shop", "bank": "of-bank"}
		for namespace, name := range secrets {
			n.cloud.secrets[name] = login(namespace, name)
		}
		n.askAs(t, image, secrets)
		last := n.engine.asked[len(n.engine.asked)-1].Credentials
		if len(last) != 1 {
			t.Fatalf("the engine was given %v", last)
		}
		delete(secrets, last[0].Namespace) // the engine names what it has tried
		for namespace, name := range secrets {
			if text, _ := n.told(namespace); !strings.Contains(text, "secret "+namespace+"/"+name) || strings.Contains(text, last[0].Namespace) {
				t.Errorf("a pod in %s is told %q", namespace, text)
			}
		}
	})
}

// login is a secret with a password for reg.example.
func login(namespace, name string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{"reg.example":{"username":"u","password":"hunter2"}}}`)},
	}
}
