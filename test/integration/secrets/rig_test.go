package secrets

import (
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/test/internal/hubproc"
	"github.com/edgehub-io/edgehub/test/internal/poll"
	"github.com/edgehub-io/edgehub/test/internal/secretscan"
)

// rig is a hub, what was planted, and what the hub has answered.
type rig struct {
	*testing.T
	*environment
	hub       *hubproc.Hub
	namespace string
	account   string            // the good caller's token, planted
	secrets   map[string]string // by what they are
	objects   map[string]string // those that an object or an issued token is
	answers   map[string]string // what was answered, by the request
}

// newRig prepares a hub with these flags, a pod on its node with a Secret, and a
// service account that may read everything.
func newRig(t *testing.T, env *environment, args ...string) *rig {
	t.Helper()
	r := &rig{T: t, environment: env, secrets: map[string]string{}, objects: map[string]string{}, answers: map[string]string{}}
	r.hub = hubproc.New(t, hubproc.Options{Binary: env.hubBin, Server: env.cluster.ServerURL(), Args: append([]string{
		"--container-runtime-endpoint=",
	}, args...)})
	ns, err := env.admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "secrets-"}}, metav1.CreateOptions{})
	r.must(err)
	r.namespace = ns.Name
	poll.Eventually(t, "the namespace has a service account", func() bool {
		_, err := env.admin.CoreV1().ServiceAccounts(r.namespace).Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	})
	_, err = env.cluster.Kubectl(t.Context(), "create", "clusterrolebinding", r.namespace, "--clusterrole=cluster-admin", "--serviceaccount="+r.namespace+":default")
	r.must(err)
	r.account = r.issue()
	r.plant("a caller's good token", r.account)
	return r
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// plant notes a secret, and returns it.
func (r *rig) plant(what, secret string) string {
	r.secrets[what] = secret
	return secret
}

// issue returns a token of the namespace's service account.
func (r *rig) issue() string {
	r.Helper()
	hour := int64(3600)
	answer, err := r.admin.CoreV1().ServiceAccounts(r.namespace).CreateToken(r.Context(), "default",
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hour}}, metav1.CreateOptions{})
	r.must(err)
	return answer.Status.Token
}

// addPod makes the node and a pod on it, with a Secret that the node may read so.
func (r *rig) addPod(data string) *corev1.Pod {
	r.Helper()
	_, err := r.admin.CoreV1().Nodes().Create(r.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: r.hub.Name}}, metav1.CreateOptions{})
	r.must(err)
	_, err = r.admin.CoreV1().Secrets(r.namespace).Create(r.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "planted"}, StringData: map[string]string{"password": data},
	}, metav1.CreateOptions{})
	r.must(err)
	pod, err := r.admin.CoreV1().Pods(r.namespace).Create(r.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec: corev1.PodSpec{
			NodeName:   r.hub.Name,
			Containers: []corev1.Container{{Name: "c", Image: "none.invalid/c"}},
			Volumes:    []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "planted"}}}},
		},
	}, metav1.CreateOptions{})
	r.must(err)
	return pod
}

// insecure is for a hub's certificate that nobody else would serve here.
func insecure() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // a test hub on this machine, whose certificate has no known issuer
	}}
}

// send sends a request, with headers given as name and value in turn, and returns its
// answer's code and body. What is refused is remembered, and what is not if it is the
// hub's own.
func (r *rig) send(method, url, body string, headers ...string) (int, string) {
	r.Helper()
	req, err := http.NewRequestWithContext(r.Context(), method, url, strings.NewReader(body))
	r.must(err)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	res, err := insecure().Do(req)
	if err != nil { // what a client makes of a protocol that broke off
		r.answers[fmt.Sprintf("%s %s, %d", method, url, len(r.answers))] = err.Error()
		return 0, ""
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	r.must(err)
	if res.StatusCode >= 400 || strings.HasPrefix(url, r.hub.API) {
		r.answers[fmt.Sprintf("%s %s, %d", method, url, len(r.answers))] = fmt.Sprint(res.Header) + string(answer)
	}
	return res.StatusCode, string(answer)
}

// look reports each planted secret that the log or an answer has.
func (r *rig) look() {
	r.Helper()
	log, err := os.ReadFile(r.hub.Log)
	r.must(err)
	r.answers["the log"] = string(log)
	for where, text := range r.answers {
		r.expectNone(where, text, r.secrets)
		r.expectNone(where, text, r.objects)
	}
	r.Logf("%d bytes of log and %d answers were looked at for %d secrets", len(log), len(r.answers)-1, len(r.secrets)+len(r.objects))
}

// onDisk returns the hub's files.
func (r *rig) onDisk() map[string]string {
	r.Helper()
	files := map[string]string{}
	r.must(filepath.WalkDir(r.hub.Root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		files[path] = string(text)
		return err
	}))
	if len(files) == 0 {
		r.Error("the hub has written nothing")
	}
	return files
}

// lookOnDisk reports each of secrets that a file of the hub's has.
func (r *rig) lookOnDisk(secrets map[string]string) {
	r.Helper()
	for path, text := range r.onDisk() {
		r.expectNone(path, text, secrets)
	}
}

func (r *rig) expectNone(where, text string, secrets map[string]string) {
	r.Helper()
	for what, secret := range secrets {
		if found := secretscan.Found(text, secret); len(found) > 0 {
			i := strings.Index(text, found[0])
			r.Errorf("%s has %s: …%.200q", where, what, text[max(0, i-80):])
		}
	}
}

func webSocketToken(token string) string {
	return "v4.channel.k8s.io, base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(token))
}
