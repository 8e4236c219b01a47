package imagepull

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/imagepull/engine"
)

func TestARequestThatCannotBeKeptIsRefused(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		if err := os.WriteFile(n.dir, nil, 0o600); err != nil { // in the folder's place
			t.Fatal(err)
		}
		pod := oldPod("web-1", "v2", "app")
		n.cloud.set(pod)
		if err := n.Request(pod, target("v2", "app")); err == nil {
			t.Error("it was taken")
		}
		pass(time.Minute)
		want(t, "the engine", n.engine.took(), "")
		want(t, "state", n.shows("web-1"), "none")
	})
}

func TestADamagedFileIsMovedAside(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.cloud.set(oldPod("web-1", "v2", "app"))
		n.ask(t, "web-1")
		n.stop()
		for name, content := range map[string]string{"cut.json": `{"uid":"cut","namespace":"n`, "other.json": `{"uid":"x"}`, "uid.json.new": "x"} {
			if err := os.WriteFile(filepath.Join(n.dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		n.begin(t, 1)
		if got := len(n.States()); got != 1 {
			t.Errorf("%d pre-pulls; want the one that is whole", got)
		}
		for _, name := range []string{"cut.json.damaged", "other.json.damaged"} {
			if _, err := os.Stat(filepath.Join(n.dir, name)); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestNothingOnDiskIsASecret(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.cloud.secrets["registry"] = &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "registry"}, Type: corev1.SecretTypeDockerConfigJson,
			Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{"reg.example":{"username":"u","password":"hunter2"}}}`)},
		}
		n.cloud.set(oldPod("web-1", "v2", "reg.example/app"))
		n.ask(t, "web-1")
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

func TestASecretThatCannotBeReadIsNamed(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.engine.fail["app"] = engine.NewError(engine.Unauthorized, errors.New("refused"))
		n.cloud.set(oldPod("web-1", "v2", "app"))
		n.ask(t, "web-1")
		pass(2 * pullTime)
		s, _ := n.State(types.NamespacedName{Namespace: "ns", Name: "web-1"})
		if got := s.Images[0].LastError; !strings.Contains(got, "refused") || !strings.Contains(got, "secret ns/registry cannot be read") {
			t.Errorf("got %q", got)
		}
	})
}
