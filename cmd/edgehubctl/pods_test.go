package main

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/cmd/edgehubctl/view"
	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/ota/api"
)

func TestWhatIsToldOfAPod(t *testing.T) {
	const t3h = "3h"
	const yes, no = corev1.ConditionTrue, corev1.ConditionFalse
	pulling := imagePull(api.Pulling, image("a", api.Ready, 10, 10), image("b", api.Pulling, 20, 50))
	half := imagePull(api.Pulling, image("a", api.Pulling, 10*mib, 20*mib), image("b", api.Queued, 0, 0))
	failed := imagePull(api.Failed, image("a", api.Failed, 5, 50, failing("ImageNotFound", "no such tag", time.Minute)))
	older := imagePull(api.Ready, image("a", api.Ready, 5, 5))
	older.Revision = oldRevision
	tests := map[string]struct {
		pod   corev1.Pod
		pulls []api.ImagePull
		need  string
		image string
		since string
	}{
		"nobody has said":            {pod("shop", "web-1", oldRevision), nil, "-", "-", "-"},
		"needs none":                 {pod("shop", "web-1", oldRevision, needs(no, oldRevision)), nil, "no", "-", "-"},
		"needs none, images or not":  {pod("shop", "web-1", oldRevision, needs(no, oldRevision), images(yes, "x", oldRevision)), nil, "no", "-", "-"},
		"needs one":                  {pod("shop", "web-1", oldRevision, needs(yes, newRevision)), nil, "yes, to 7c9b", "-", t3h},
		"images are there":           {pod("shop", "web-1", oldRevision, needs(yes, newRevision), images(yes, "PrepullReady", newRevision)), nil, "yes, to 7c9b", "yes", t3h},
		"images are not there":       {pod("shop", "web-1", oldRevision, needs(yes, newRevision), images(no, "PrepullQueued", newRevision)), nil, "yes, to 7c9b", "no, PrepullQueued", t3h},
		"images of another revision": {pod("shop", "web-1", oldRevision, needs(yes, newRevision), images(yes, "PrepullReady", "aaaa")), nil, "yes, to 7c9b", "no, OtherRevision", t3h},
		"the hub knows better":       {pod("shop", "web-1", oldRevision, needs(yes, newRevision), images(no, "PrepullQueued", newRevision)), []api.ImagePull{pulling}, "yes, to 7c9b", "no, Pulling, 50%", t3h},
		"the size is not known":      {pod("shop", "web-1", oldRevision, needs(yes, newRevision)), []api.ImagePull{half}, "yes, to 7c9b", "no, Pulling, 10.0 MiB", t3h},
		"it has failed":              {pod("shop", "web-1", oldRevision, needs(yes, newRevision)), []api.ImagePull{failed}, "yes, to 7c9b", "no, ImageNotFound, 10%", t3h},
		"it is of an older revision": {pod("shop", "web-1", oldRevision, needs(yes, newRevision)), []api.ImagePull{older}, "yes, to 7c9b", "-", t3h},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := view.PodOf(&tt.pod, tt.pulls)
			row := cli.Filled(r.Row(time.Now()))
			got := slices.Concat(row[:2], row[5:8])
			if want := []string{"shop", "web-1", tt.need, tt.image, tt.since}; !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func TestPodsAreATable(t *testing.T) {
	h := newFakeHub(t).on("GET", "/pods", podList(
		pod("shop", "web-1", oldRevision, needs(corev1.ConditionTrue, newRevision), images(corev1.ConditionFalse, "PrepullQueued", newRevision), func(p *corev1.Pod) {
			p.Status.StartTime = &metav1.Time{Time: ago(48 * time.Hour)}
			p.Status.PodIP, p.Status.HostIP = "10.1.2.3", "10.0.0.7"
		}),
		pod("kube-system", "proxy-2", "x", func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "again", Image: p.Spec.Containers[0].Image}, {Name: "init", Image: "init:v1"}}
		}),
	)).on("GET", api.ImagePulls, sends(api.ImagePullList{Items: []api.ImagePull{imagePull(api.Ready)}}))
	h.edgehubctl(t, "pods").is(t, cli.Done, `POD                   READY   STATUS    RESTARTS   UPGRADE
kube-system/proxy-2   1/1     Running   0          -
shop/web-1            1/1     Running   0          web:v1 -> unknown, pulled
`, "")
	h.edgehubctl(t, "pods", "-n", "shop").is(t, cli.Done, `POD          READY   STATUS    RESTARTS   UPGRADE
shop/web-1   1/1     Running   0          web:v1 -> unknown, pulled
`, "")
	h.edgehubctl(t, "pods", "-o", "wide").is(t, cli.Done, `NAMESPACE     POD       READY   STATUS    RESTARTS   NEEDS UPGRADE   IMAGE READY   SINCE   IMAGE -> AFTER UPGRADE   STARTED   POD IP     NODE IP    REVISION   IMAGES
kube-system   proxy-2   1/1     Running   0          -               -             -       -                        -         -          -          x          registry.example.com/shop/web:v1, init:v1
shop          web-1     1/1     Running   0          yes, to 7c9b    yes           3h      web:v1 -> unknown        2d        10.1.2.3   10.0.0.7   5d8f       registry.example.com/shop/web:v1
`, "")
	// An app whose pod did not come back comes first.
	h.on("GET", api.Node, sends(api.NodeState{Missing: []api.Missing{
		{Kind: "DaemonSet", Namespace: "shop", Workload: "camera", Since: ago(12 * time.Minute), Why: "the apiserver refuses it: no"},
		{Kind: "DaemonSet", Namespace: "kube-system", Workload: "cni", Since: ago(time.Minute), Why: "x"},
	}}))
	const camera = "MISSING: daemonset shop/camera has had no pod on this node for 12m: the\n" +
		"         apiserver refuses it: no. The admin sees more with kubectl describe\n         daemonset camera -n shop\n"
	h.edgehubctl(t, "pods", "-n", "shop").is(t, cli.Done, camera+`POD          READY   STATUS    RESTARTS   UPGRADE
shop/web-1   1/1     Running   0          web:v1 -> unknown, pulled
`, "")
	if r := h.edgehubctl(t, "pods", "-o", "json", "-n", "shop"); r.err != camera || strings.Contains(r.out, "MISSING") {
		t.Errorf("as JSON, stderr has %q", r.err)
	}
	h.on("GET", api.Node, sends(api.NodeState{}))
	h.edgehubctl(t, "pods", "-n", "none").is(t, cli.Done, "No pods on this node.\n", "")
}

func TestAPodThatWouldNotComeBackIsShownWithTheReason(t *testing.T) {
	target := api.Target{Revision: newRevision, Containers: []api.TargetImage{{Name: "web", Image: "web:v2"}}, Blocked: "node n has the taint a=b:NoSchedule"}
	h := newFakeHub(t).on("GET", "/pods", podList(
		pod("shop", "web-1", oldRevision, needs(corev1.ConditionTrue, newRevision), annotated(target.Encode())),
	)).on("GET", api.ImagePulls, sends(api.ImagePullList{}))
	h.edgehubctl(t, "pods", "-o", "wide").has(t, cli.Done, "blocked, to 7c9b", "")
	h.edgehubctl(t, "pods").has(t, cli.Done, "shop/web-1 cannot be upgraded: node n has the taint a=b:NoSchedule.", "")
}

func TestPodsAsJSON(t *testing.T) {
	h := newFakeHub(t).on("GET", "/pods", podList(
		pod("shop", "web-1", oldRevision, needs(corev1.ConditionTrue, newRevision)), pod("shop", "web-2", oldRevision)))
	got := h.edgehubctl(t, "pods", "-o", "json")
	var reports []view.Pod
	if err := json.Unmarshal([]byte(got.out), &reports); err != nil {
		t.Fatalf("%v: %s", err, got.out)
	}
	if len(reports) != 2 || reports[0].NeedsUpgrade == nil || !*reports[0].NeedsUpgrade || reports[0].TargetRevision != newRevision ||
		reports[0].Since == nil || reports[0].ImageReady != nil || reports[1].NeedsUpgrade != nil {
		t.Errorf("got %s", got.out)
	}
	newFakeHub(t).on("GET", "/pods", podList()).edgehubctl(t, "pods", "-o", "json").is(t, cli.Done, "[]\n", "")
}

func TestWhatGoesWrongIsOneLine(t *testing.T) {
	tests := map[string]struct {
		answer http.HandlerFunc
		code   int
		err    string
	}{
		"the hub says no, for now":    {answersWith(503, "list the pods of node n: the cloud cannot be reached\n"), cli.NotNow, "error: list the pods of node n: the cloud cannot be reached\n"},
		"it says no in several lines": {answersWith(500, "one\n two\n"), cli.Failed, "error: one two\n"},
		"it says no without a word":   {answersWith(500, ""), cli.Failed, "error: the hub answered 500 Internal Server Error to GET /pods\n"},
		"it sends without end": {func(w http.ResponseWriter, _ *http.Request) {
			for err := error(nil); err == nil; {
				_, err = w.Write(make([]byte, 1<<20))
			}
		}, cli.Failed, "error: GET /pods: what answers on ADDRESS is no hub: it sends more than 64 MiB\n"},
		"it is no hub":  {answersWith(200, "<html>"), cli.Failed, "error: GET /pods: what answers on ADDRESS is no hub, or of another version: invalid character '<' looking for beginning of value\n"},
		"it breaks off": {breaksOff(`{"items":[`), cli.Failed, "error: the hub does not answer on ADDRESS: its answer broke off: unexpected EOF\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := newFakeHub(t).on("GET", "/pods", tt.answer)
			h.edgehubctl(t, "pods").is(t, tt.code, "", strings.ReplaceAll(tt.err, "ADDRESS", h.address))
		})
	}
}
