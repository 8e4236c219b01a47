package ota

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/edgehub-io/edgehub/ota/api"
)

// Right before the deletion, the hub asks the controller whether admission lets the next pod in, and does what it answers. It
// asks nobody who does not answer, and waits for nobody for long.
func TestAdmissionIsAskedBeforeADeletion(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		asks    bool
		refused bool   // the question
		answer  string // of the controller: what it does not know; "-": there is none
		blocked string
		code    int
		says    string // the answer, or the log
		deletes int
	}{
		"admitted":                     {true, false, "", "", 200, "upgrade started", 1},
		"refused":                      {true, false, "", "the apiserver refuses the new version: no", 403, "would not come back: the apiserver refuses the new version: no", 0},
		"admission adds requests":      {true, false, "", "", 403, "would not come back: the new version requests 5 of cpu, and node node-1 has 4 of 4 for it", 0},
		"a webhook is down":            {true, false, "failed calling webhook", "", 200, "failed calling webhook", 1},
		"nobody who asks":              {false, false, "-", "", 200, "upgrade started", 1},
		"no answer":                    {true, false, "-", "", 200, "has not answered", 1},
		"a policy denies the question": {true, true, "-", "", 200, "is not known", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			question := ""
			pod := func() *corev1.Pod {
				mu.Lock()
				defer mu.Unlock()
				p := upgradable()
				target := api.NewTarget("new", &corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:v2"}}})
				target.Asks = tt.asks
				if tt.answer != "-" && question != "" {
					target.Answered, target.Blocked, target.Unknown = question, tt.blocked, tt.answer
					if name == "admission adds requests" {
						target.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5")}
					}
				}
				p.Annotations = map[string]string{api.TargetAnnotation: target.Encode()}
				return p
			}
			c := &cloud{delete: accept, cpus: "4", list: func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodPatch {
					podList(pod())(w, r)
					return
				}
				if tt.refused {
					refuse(apierrors.NewForbidden(podResource, "web-1", io.EOF))(w, r)
					return
				}
				var patch corev1.Pod
				if err := json.NewDecoder(r.Body).Decode(&patch); err != nil || patch.UID != upgradable().UID || !strings.HasSuffix(r.URL.Path, "/pods/web-1/status") {
					t.Errorf("patch of %s: %+v, %v", r.URL.Path, patch, err)
				}
				mu.Lock()
				question = api.QuestionOf(&patch)
				mu.Unlock()
				sendJSON(w, http.StatusOK, pod())
			}}
			var logged bytes.Buffer
			url := c.start(t, Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
			text := "Start updating pod default/web-1"
			if tt.code == http.StatusForbidden {
				text = tt.says
			}
			got := call(t, "POST", url+upgradeWeb1)
			got.wants(t, tt.code, text)
			warning := got.header.Get("Warning")
			if warns := tt.code == http.StatusOK && tt.asks && tt.says != "upgrade started"; warns != (warning != "") || warns && !strings.Contains(warning, tt.says) {
				t.Errorf("the owner is warned %q", warning)
			}
			if _, deletes := c.asked(); len(deletes) != tt.deletes {
				t.Errorf("%d deletions, want %d", len(deletes), tt.deletes)
			}
			if !strings.Contains(logged.String(), tt.says) {
				t.Errorf("the log has no %q:\n%s", tt.says, logged.String())
			}
			if asked := question != ""; asked != (tt.asks && !tt.refused) {
				t.Errorf("the question was %q", question)
			}
		})
	}
}
