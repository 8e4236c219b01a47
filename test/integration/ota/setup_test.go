package ota

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/ota"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// nodeAPI is one node's API.
type nodeAPI struct {
	url       string
	deletions atomic.Int64 // accepted by the apiserver, dry runs and all
}

// startAPI starts the API of a node, which talks to the apiserver as that node.
func startAPI(t *testing.T, node string) *nodeAPI {
	t.Helper()
	cert, key, err := env.ClientCert("system:node:"+node, "system:nodes")
	if err != nil {
		t.Fatal(err)
	}
	a := new(nodeAPI)
	config := &rest.Config{Host: env.ServerURL(), TLSClientConfig: rest.TLSClientConfig{CAFile: env.CAFile(), CertFile: cert, KeyFile: key}}
	config.Wrap(a.counting)
	pods, err := ota.NewPods(config)
	if err != nil {
		t.Fatal(err)
	}
	h, err := ota.New(ota.Options{NodeName: node, Pods: pods})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	a.url = server.URL
	return a
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (a *nodeAPI) counting(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(r)
		if err == nil && r.Method == http.MethodDelete && resp.StatusCode < 300 {
			a.deletions.Add(1)
		}
		return resp, err
	})
}

// answer is what a caller gets to see.
type answer struct {
	code int
	body string
	err  error
}

func (a answer) String() string {
	if a.err != nil {
		return a.err.Error()
	}
	return fmt.Sprintf("%d %q", a.code, a.body)
}

func (a *nodeAPI) call(ctx context.Context, method, path string) answer {
	req, err := http.NewRequestWithContext(ctx, method, a.url+path, http.NoBody)
	if err != nil {
		return answer{err: err}
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, string(body), err}
}

func (a *nodeAPI) upgrade(ctx context.Context, namespace, pod string) answer {
	return a.call(ctx, http.MethodPost, "/openyurt.io/v1/namespaces/"+namespace+"/pods/"+pod+"/upgrade")
}

// expect fails the test unless got has this code and this text.
func expect(t *testing.T, got answer, code int, says string) {
	t.Helper()
	if got.err != nil || got.code != code || !strings.Contains(got.body, says) {
		t.Errorf("got %s, want %d and %q", got, code, says)
	}
}

// must ends the test if there is an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// createDaemonSet makes a DaemonSet for the nodes with these labels, until the test ends.
func createDaemonSet(t *testing.T, name string, nodes map[string]string, change ...func(*appsv1.DaemonSet)) {
	t.Helper()
	labels := map[string]string{"app": name}
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels}, UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				NodeSelector: nodes, Containers: []corev1.Container{{Name: "app", Image: "app.invalid/app:v1"}},
			}},
		},
	}
	for _, f := range change {
		f(set)
	}
	sets := env.admin.AppsV1().DaemonSets(namespace)
	_, err := sets.Create(t.Context(), set, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { _ = sets.Delete(context.Background(), name, metav1.DeleteOptions{}) }) // fails where the test has deleted it
}

// otaStrategy has the nodes' owners upgrade the pods.
func otaStrategy(ds *appsv1.DaemonSet) {
	ds.Annotations = map[string]string{"apps.openyurt.io/update-strategy": "OTA"}
}

func setImage(t *testing.T, daemonSet, image string) {
	t.Helper()
	patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"app","image":%q}]}}}}`, image)
	_, err := env.admin.AppsV1().DaemonSets(namespace).Patch(t.Context(), daemonSet, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	must(t, err)
}

// podsBy returns the pods that match by what by returns, once n of them are on nodes and none is being deleted.
func podsBy(t *testing.T, match metav1.ListOptions, by func(*corev1.Pod) string, n int) map[string]*corev1.Pod {
	t.Helper()
	pods := map[string]*corev1.Pod{}
	poll.Eventually(t, fmt.Sprintf("%d pods with %+v are on nodes", n, match), func() bool {
		clear(pods)
		list, err := env.admin.CoreV1().Pods(namespace).List(t.Context(), match)
		must(t, err)
		for i := range list.Items {
			if pod := &list.Items[i]; pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil {
				pods[by(pod)] = pod
			}
		}
		return len(pods) == n
	})
	return pods
}

// get returns a pod, or nil if there is none.
func get(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	pod, err := env.admin.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	must(t, err)
	return pod
}

// end takes a pod away at once, as a kubelet does when its containers ended.
func end(t *testing.T, name string) {
	t.Helper()
	must(t, env.admin.CoreV1().Pods(namespace).Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
}

// patchStatus writes into a pod's status, as controller, hub and kubelet do.
func patchStatus(t *testing.T, pod, status string) {
	t.Helper()
	patch := []byte(`{"status":` + status + `}`)
	_, err := env.admin.CoreV1().Pods(namespace).Patch(t.Context(), pod, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	must(t, err)
}
