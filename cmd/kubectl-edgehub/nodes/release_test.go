package nodes

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/ota/api"
)

// cluster answers with one version of a Node after the other, and with its pods.
type cluster struct {
	versions []*corev1.Node
	pods     []*corev1.Pod
	patches  []string
}

// client returns one whose PATCH is a conflict while there is another version of the Node.
func (c *cluster) client(t *testing.T) kubernetes.Interface {
	t.Helper()
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, code int, object any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(object)
	}
	mux.HandleFunc("GET /api/v1/nodes/edge", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, c.versions[0]) })
	mux.HandleFunc("PATCH /api/v1/nodes/edge", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		c.patches = append(c.patches, string(body))
		if len(c.versions) > 1 {
			c.versions = c.versions[1:]
			answer(w, http.StatusConflict, metav1.Status{Status: metav1.StatusFailure, Code: http.StatusConflict, Reason: metav1.StatusReasonConflict})
			return
		}
		answer(w, http.StatusOK, c.versions[0])
	})
	mux.HandleFunc("GET /api/v1/pods", func(w http.ResponseWriter, r *http.Request) {
		if got := r.URL.Query().Get("fieldSelector"); got != "spec.nodeName=edge" {
			t.Errorf("pods are listed with the field selector %q", got)
		}
		list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
		for _, pod := range c.pods {
			list.Items = append(list.Items, *pod)
		}
		answer(w, http.StatusOK, list)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfigAndClient(&rest.Config{Host: server.URL}, server.Client())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestReleaseOfANode(t *testing.T) {
	const patch = `{"metadata":{"annotations":{"apps.openyurt.io/autonomy-released":"2026-01-01T10:00:00Z"},"resourceVersion":"7","uid":"u"}}`
	later := away(node("edge", nil))
	later.ResourceVersion = "8"
	untainted := away(node("edge", nil))
	untainted.Spec.Taints = nil
	tests := map[string]struct {
		versions []*corev1.Node
		want     string // in the text, or in the error
		patches  []string
	}{
		"away":                  {[]*corev1.Node{away(node("edge", nil))}, "node/edge released: its pods are evicted now, 1 of them held until now\n", []string{patch}},
		"changed in between":    {[]*corev1.Node{away(node("edge", nil)), later}, "node/edge released: ", []string{patch, strings.Replace(patch, `"7"`, `"8"`, 1)}},
		"back in between":       {[]*corev1.Node{away(node("edge", nil)), node("edge", nil)}, "node edge is Ready", []string{patch}},
		"Ready":                 {[]*corev1.Node{node("edge", nil)}, "node edge is Ready, and its pods run: there is nothing to release. To have them run elsewhere: kubectl drain edge", nil},
		"not yet tainted":       {[]*corev1.Node{untainted}, "try again", nil},
		"released already":      {[]*corev1.Node{away(node("edge", map[string]string{api.ReleasedAnnotation: "earlier"}))}, "node/edge was released already, at earlier: its pods are evicted now", nil},
		"of an earlier release": {[]*corev1.Node{node("edge", map[string]string{api.ReleasedAnnotation: "earlier"})}, "node edge is Ready", nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := &cluster{versions: tt.versions, pods: []*corev1.Pod{pod("web", "ReplicaSet", -1)}}
			got, err := Release(t.Context(), c.client(t), "edge", start, "test")
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, tt.want) || (err != nil) == strings.HasPrefix(tt.want, "node/") {
				t.Errorf("got %q and %v, want %q", got, err, tt.want)
			}
			if !slices.Equal(c.patches, tt.patches) {
				t.Errorf("the patches are %q, want %q", c.patches, tt.patches)
			}
		})
	}
}

func TestWhatBecomesOfThePodsOfAReleasedNode(t *testing.T) {
	claimed := pod("files-7d", "ReplicaSet", -1)
	claimed.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "x"}}}}
	db := pod("db-0", "StatefulSet", -1)
	db.DeletionTimestamp = &metav1.Time{Time: start} // evicted before
	tests := map[string]struct {
		pods       []*corev1.Pod
		want, omit []string
	}{
		"Deployments alone":        {[]*corev1.Pod{pod("web", "ReplicaSet", -1), pod("daemon", "DaemonSet", -1)}, []string{"1 of them held"}, []string{"StatefulSets", "PersistentVolumeClaims", "kubectl"}},
		"a StatefulSet":            {[]*corev1.Pod{db}, []string{"0 of them held", "Terminating: shop/db-0.", "kubectl delete node edge\n", "kubectl taint node edge node.kubernetes.io/out-of-service=nodeshutdown:NoExecute\n"}, []string{"PersistentVolumeClaims"}},
		"a PersistentVolumeClaim":  {[]*corev1.Pod{claimed}, []string{"PersistentVolumeClaims: shop/files-7d.", "kubectl delete node edge\n"}, []string{"StatefulSets"}},
		"more than anybody reads":  {[]*corev1.Pod{db, db, db, db, db, db, db}, []string{"shop/db-0 and 2 more."}, nil},
		"no pods of the node left": {nil, []string{"0 of them held"}, []string{"kubectl"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := &cluster{versions: []*corev1.Node{away(node("edge", nil))}, pods: tt.pods}
			got, err := Release(t.Context(), c.client(t), "edge", start, "test")
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range tt.want {
				if !strings.Contains(got, want) {
					t.Errorf("%q is missing in\n%s", want, got)
				}
			}
			for _, omit := range tt.omit {
				if strings.Contains(got, omit) {
					t.Errorf("%q is in\n%s", omit, got)
				}
			}
		})
	}
}
