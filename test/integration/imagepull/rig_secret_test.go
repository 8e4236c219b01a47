package imagepull

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/internal/secretscan"
)

// The password stands, with other words around it, in every pull secret of these tests.
const (
	user     = "puller"
	password = "correct-horse-battery-staple"
)

// pullSecret makes a secret with a password for the rig's registry.
func (r *rig) pullSecret(name, password string) {
	r.Helper()
	_, err := env.admin.CoreV1().Secrets(r.namespace).Create(r.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Type:       corev1.SecretTypeDockerConfigJson,
		Data:       map[string][]byte{corev1.DockerConfigJsonKey: r.dockerConfig(password)},
	}, metav1.CreateOptions{})
	r.must(err)
}

// dockerConfig is a config.json with a password for the rig's registry.
func (r *rig) dockerConfig(password string) []byte {
	r.Helper()
	auth := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
	file, err := json.Marshal(map[string]any{"auths": map[string]any{
		r.registry.Addr(): map[string]string{"username": user, "password": password, "auth": auth},
	}})
	r.must(err)
	return file
}

// expectNoSecret looks for the password wherever the hub writes something, but for its
// cache, which has the secrets themselves. Invariant 8.
func (r *rig) expectNoSecret() {
	r.Helper()
	texts := map[string]string{}
	if log, err := os.ReadFile(r.hub.Log); err == nil {
		texts["the log"] = string(log)
	}
	err := filepath.WalkDir(filepath.Join(r.hub.Root, "imagepull"), func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) { // it has just been renamed
			return nil
		}
		texts[path] = string(text)
		return err
	})
	if err != nil {
		r.Error(err)
	}
	for where, text := range texts {
		if found := secretscan.Found(text, password); len(found) > 0 {
			r.Errorf("%s has %q of a password", where, found)
		}
	}
}

// expectNoSecretTold looks for the password in what the hub answers, and sends to the cloud.
func (d *daemon) expectNoSecretTold() {
	d.Helper()
	texts := map[string]string{}
	for _, path := range []string{api.Metrics, api.Pods, api.ImagePulls, api.Cache, d.path(d.pod.Name)} {
		a := d.call(http.MethodGet, path)
		d.expect(a, http.StatusOK, "")
		texts["GET "+path] = a.body
	}
	pod, err := env.admin.CoreV1().Pods(d.namespace).Get(d.Context(), d.pod.Name, metav1.GetOptions{})
	d.must(err)
	texts["the pod"] = pod.String()
	events, err := env.admin.CoreV1().Events(d.namespace).List(d.Context(), metav1.ListOptions{})
	d.must(err)
	texts["the events"] = events.String()
	for where, text := range texts {
		if found := secretscan.Found(text, password); len(found) > 0 {
			d.Errorf("%s has %q of a password", where, found)
		}
	}
}
