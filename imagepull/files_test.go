package imagepull

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
	"github.com/edgehub-io/edgehub/imagepull/job"
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

// Opening a FIFO for reading waits for a writer, and reading from a device may never end. Neither must keep
// the hub from starting.
func TestWhatIsNoRegularFileIsMovedAside(t *testing.T) {
	places := map[string]func(path string) error{
		"a FIFO":       func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a socket":     bindSocket,
		"a folder":     func(path string) error { return os.MkdirAll(filepath.Join(path, "in.json"), 0o700) },
		"a device":     func(path string) error { return os.Symlink("/dev/zero", path) },
		"a large file": func(path string) error { return sparse(path, 1<<40) },
	}
	for name, put := range places {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			whole := &job.Job{UID: "whole", Namespace: "ns", Pod: "web-1", Revision: "v2", Images: []job.Image{{Image: "app"}}}
			f := job.NewStore(dir, slog.New(slog.DiscardHandler))
			path := filepath.Join(dir, "bad.json")
			if err := errors.Join(f.Save(whole), put(path)); err != nil {
				t.Fatal(err)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				p, err := New(Options{Dir: dir, Engine: newScripted(), Cloud: newSky()})
				if err != nil || len(p.States()) != 1 {
					t.Errorf("%v; want the one job that is whole", err)
				}
			}()
			select {
			case <-done:
			case <-time.After(2 * time.Minute):
				t.Fatal("the queue is still being read")
			}
			if _, err := os.Lstat(path + ".damaged"); err != nil {
				t.Error(err)
			}
		})
	}
}

// A job whose file would be too large to read is refused.
func TestAJobThatIsTooLargeIsRefused(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		pod := oldPod("web-1", "v2", strings.Repeat("a", job.MaxFileSize))
		n.cloud.set(pod)
		if err := n.Request(pod, target("v2", strings.Repeat("a", job.MaxFileSize))); err == nil || len(err.Error()) > 1000 {
			t.Errorf("got %v", err)
		}
	})
}

func bindSocket(path string) error {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	return errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}), syscall.Close(fd))
}

func sparse(path string, size int64) error {
	return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, size))
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
		n.engine.fail["app"] = engineapi.NewError(engineapi.Unauthorized, errors.New("refused"))
		n.cloud.set(oldPod("web-1", "v2", "app"))
		n.ask(t, "web-1")
		pass(2 * pullTime)
		s, _ := n.State(types.NamespacedName{Namespace: "ns", Name: "web-1"})
		if got := s.Images[0].LastError; !strings.Contains(got, "refused") || !strings.Contains(got, "secret ns/registry cannot be read") {
			t.Errorf("got %q", got)
		}
	})
}

// Two namespaces that want the same image try each other's credentials, but do not learn their names.
func TestAPodIsToldOfItsOwnSecretsOnly(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.engine.fail["app"] = engineapi.NewError(engineapi.Unauthorized, errors.New("refused")).
			Explain("shop", errors.New("secret shop/till was tried")).Explain("bank", errors.New("secret bank/vault was tried"))
		for namespace, secret := range map[string]string{"shop": "unreadable-in-shop", "bank": "unreadable-in-bank"} {
			wanted := target("v2", "app")
			wanted.ImagePullSecrets = []string{secret}
			pod := podWith("in-"+namespace, wanted)
			pod.Namespace = namespace
			n.cloud.set(pod)
			if err := n.Request(pod, wanted); err != nil {
				t.Fatal(err)
			}
		}
		pass(time.Minute) // the first attempt may have begun before both were asked for
		for namespace, other := range map[string]string{"shop": "bank", "bank": "shop"} {
			s, _ := n.State(types.NamespacedName{Namespace: namespace, Name: "in-" + namespace})
			text := s.Images[0].LastError
			if !strings.Contains(text, "unreadable-in-"+namespace) || !strings.Contains(text, "secret "+namespace+"/") {
				t.Errorf("a pod in %s is not told of its own secrets: %q", namespace, text)
			}
			n.cloud.mu.Lock()
			event := n.cloud.message["in-"+namespace]
			n.cloud.mu.Unlock()
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
		for _, namespace := range []string{"shop", "bank"} { // before the first attempt reads them
			name := "of-" + namespace
			n.cloud.secrets[name] = &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Type: corev1.SecretTypeDockerConfigJson,
				Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{"reg.example":{"username":"u","password":"p"}}}`)},
			}
		}
		for _, namespace := range []string{"shop", "bank"} {
			wanted := target("v2", image)
			wanted.ImagePullSecrets = []string{"of-" + namespace}
			pod := podWith("in-"+namespace, wanted)
			pod.Namespace = namespace
			n.cloud.set(pod)
			if err := n.Request(pod, wanted); err != nil {
				t.Fatal(err)
			}
		}
		pass(time.Minute)
		last := n.engine.asked[len(n.engine.asked)-1].Credentials
		if len(last) != 1 {
			t.Fatalf("the engine was given %v", last)
		}
		for _, namespace := range []string{"shop", "bank"} {
			if namespace == last[0].Namespace {
				continue // the engine names what it has tried
			}
			s, _ := n.State(types.NamespacedName{Namespace: namespace, Name: "in-" + namespace})
			if text := s.Images[0].LastError; !strings.Contains(text, "secret "+namespace+"/of-"+namespace) || strings.Contains(text, last[0].Namespace) {
				t.Errorf("a pod in %s is told %q", namespace, text)
			}
		}
	})
}
