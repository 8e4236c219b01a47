package hub

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/hub/checks"
	"github.com/edgehub-io/edgehub/ota"
	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/inplace"
)

// inPlaceCloud has one pod, d/p, that may be upgraded in place from app:v1 to app:v2.
type inPlaceCloud struct {
	mu      sync.Mutex
	pod     *corev1.Pod
	patches []string // in order: path and body
}

func newInPlaceCloud() *inPlaceCloud {
	target := api.Target{
		Revision: "new", Containers: []api.TargetImage{{Name: "app", Image: "app:v2"}},
		InPlace: []api.ImageChange{{Name: "app", From: "app:v1", To: "app:v2"}},
	}
	return &inPlaceCloud{pod: &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "d", Name: "p", UID: "u", ResourceVersion: "5", Labels: map[string]string{"controller-revision-hash": "old"},
			Annotations:     map[string]string{api.TargetAnnotation: target.Encode()},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "p", UID: "o", Controller: new(true)}},
		},
		Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "app", Image: "app:v1"}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning,
			Conditions: []corev1.PodCondition{
				{Type: corev1.PodReady, Status: corev1.ConditionTrue}, {Type: api.NeedCondition, Status: corev1.ConditionTrue, Message: api.Message("new")},
			},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "app", ContainerID: "A", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}},
		},
	}}
}

// has sets the version and the image of the pod.
func (c *inPlaceCloud) has(version, image string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pod = c.pod.DeepCopy()
	c.pod.ResourceVersion, c.pod.Spec.Containers[0].Image = version, image
}

// got returns the changes that were sent to it.
func (c *inPlaceCloud) got() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.patches)
}

func (c *inPlaceCloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	c.mu.Lock()
	defer c.mu.Unlock()
	switch q := r.URL.Query(); {
	case r.Method != http.MethodGet:
		body, _ := io.ReadAll(r.Body)
		c.patches = append(c.patches, r.URL.Path+" "+string(body))
		http.NotFound(w, r)
	case q.Has("watch"):
		if q.Has("sendInitialEvents") {
			_ = json.NewEncoder(w).Encode(map[string]any{"type": "ADDED", "object": c.pod})
			fmt.Fprintf(w, `{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":%q,"annotations":{"k8s.io/initial-events-end":"true"}}}}`, c.pod.ResourceVersion)
		}
		_ = http.NewResponseController(w).Flush()
		c.mu.Unlock()
		<-r.Context().Done()
		c.mu.Lock()
	case r.URL.Path == "/api/v1/pods":
		_ = json.NewEncoder(w).Encode(corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: metav1.ListMeta{ResourceVersion: c.pod.ResourceVersion}, Items: []corev1.Pod{*c.pod}})
	case r.URL.Path == "/api/v1/namespaces/d/pods/p":
		_ = json.NewEncoder(w).Encode(c.pod)
	default:
		http.NotFound(w, r)
	}
}

func newInPlaceNode(t *testing.T) (*node, *inPlaceCloud) {
	c := newInPlaceCloud()
	n := newNode(t, nil)
	n.api.Config.Handler = c
	return n, c
}

const nodesPods = "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1"

// asKubelet sends a request of the node's kubelet.
func (n *node) asKubelet(t *testing.T, method, path, body, mediaType string) (int, string) {
	t.Helper()
	return sendTo(t, http.DefaultClient, method, "http://"+n.config.ProxyAddress+path, body, "User-Agent", "kubelet/v1.37.2 (linux/amd64) kubernetes/abc", "Content-Type", mediaType)
}

// kubeletWatch is kubelet's watch of the node's pods.
type kubeletWatch struct{ lines *bufio.Scanner }

func (n *node) kubeletWatches(t *testing.T) kubeletWatch {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+n.config.ProxyAddress+nodesPods+"&watch=true&resourceVersion=5&allowWatchBookmarks=true", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("User-Agent", "kubelet/v1.37.2 (linux/amd64) kubernetes/abc")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return kubeletWatch{bufio.NewScanner(res.Body)}
}

// await reads until a pod has an image, and fails if the watch ends before.
func (w kubeletWatch) await(t *testing.T, image string) {
	t.Helper()
	var seen []string
	for w.lines.Scan() {
		if seen = append(seen, w.lines.Text()); strings.Contains(w.lines.Text(), `"image":"`+image+`"`) {
			return
		}
	}
	t.Fatalf("kubelet's watch ends without %s: %v; it has brought %q", image, w.lines.Err(), seen)
}

// imageOf returns the image in a list or pod.
func imageOf(t *testing.T, code int, body string) string {
	t.Helper()
	if code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	for _, image := range []string{"app:v1", "app:v2"} {
		if strings.Contains(body, `"image":"`+image+`"`) {
			return image
		}
	}
	t.Fatalf("no image in %s", body)
	return ""
}

// kubeletIsShown returns which image kubelet reads, by LIST and GET.
func (n *node) kubeletIsShown(t *testing.T) string {
	t.Helper()
	list, got := n.asKubelet(t, http.MethodGet, nodesPods, "", "")
	image := imageOf(t, list, got)
	if code, body := n.asKubelet(t, http.MethodGet, "/api/v1/namespaces/d/pods/p", "", ""); imageOf(t, code, body) != image {
		t.Errorf("a LIST has %s, a GET %s", image, body)
	}
	return image
}

// What kubelet is shown while the cloud is away, by a hub and by the next one; all others read the cloud's pod.
func TestKubeletIsShownAnUpgradeInPlace(t *testing.T) {
	n, cloud := newInPlaceNode(t)
	h, stop := n.start(t)
	if got := n.kubeletIsShown(t); got != "app:v1" {
		t.Fatalf("kubelet is shown %s", got)
	}
	watched := n.kubeletWatches(t)
	until(t, "the hub knows the node's pods", h.upgrades.pods.Synced)
	n.loseCloud(t, h)
	target, _ := api.NextOf(cloud.pod)
	if err := h.upgrades.inPlace.Begin(cloud.pod, target); err != nil {
		t.Fatal(err)
	}
	watched.await(t, "app:v2")
	others := func() {
		t.Helper()
		if code, body := n.askCloud(t, nodesPods); imageOf(t, code, body) != "app:v1" {
			t.Error("who is not kubelet does not read the cloud's pod")
		}
		if code, body := n.ask(t, http.MethodGet, api.Pods, ""); imageOf(t, code, body) != "app:v1" {
			t.Error("GET /pods does not have the cloud's pod")
		}
	}
	others()
	if got := n.kubeletIsShown(t); got != "app:v2" {
		t.Errorf("kubelet is shown %s", got)
	}

	if err := stop(); err != nil {
		t.Fatal(err)
	}
	h, _ = n.start(t)
	n.awaitOffline(t, h)
	n.kubeletWatches(t).await(t, "app:v2") // its watch resumes, and it does not list
	if got := n.kubeletIsShown(t); got != "app:v2" {
		t.Errorf("after a restart kubelet is shown %s", got)
	}
	others()
	watched = n.kubeletWatches(t)
	const strategic = "application/strategic-merge-patch+json"
	if code, body := n.asKubelet(t, http.MethodPatch, "/api/v1/namespaces/d/pods/p/status", `{"status":{"containerStatuses":[{"name":"app","containerID":"B","image":"app:v2","imageID":"","ready":true,"restartCount":0,"state":{"running":{}}}]}}`, strategic); code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	name := types.NamespacedName{Namespace: "d", Name: "p"}
	until(t, "the journal has seen the new container", func() bool {
		state, _ := h.upgrades.inPlace.State(name)
		return strings.Contains(state.Message, "the new version runs")
	})
	others()
	if code, body := n.askCloud(t, nodesPods); code != http.StatusOK || !strings.Contains(body, `"containerID":"B"`) {
		t.Errorf("who is not kubelet does not read what kubelet has reported: %d %s", code, body)
	}
	if ok, err := h.upgrades.inPlace.GoBack("u"); !ok || err != nil {
		t.Fatal(ok, err)
	}
	watched.await(t, "app:v1")
	if got := n.kubeletIsShown(t); got != "app:v1" {
		t.Errorf("undone, and kubelet is shown %s", got)
	}
}

// placed stands for the images on the node.
type placed struct {
	missing []string
	err     error
	asked   []string
	changes int
}

// Place has IDs that are the images' names with a hash before them.
func (p *placed) Place(_ context.Context, images []string, check func(image, id string) error) ([]string, error) {
	p.asked = images
	if p.err != nil || len(p.missing) > 0 {
		return p.missing, p.err
	}
	for _, image := range images {
		if err := check(image, "#"+image); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func (p *placed) OthersChanged() { p.changes++ }

// checkable stands for the owner's checks: why they cannot be run.
type checkable string

func (c checkable) Possible(context.Context) error {
	if c == "" {
		return nil
	}
	return errors.New(string(c))
}

func TestAnUpgradeInPlaceBeginsOnceItsImagesAreThere(t *testing.T) {
	for name, tt := range map[string]struct {
		images *placed // nil: the hub knows no images
		asks   string  // of which image kubelet would ask the registry
		checks checkable
		says   string
	}{
		"all are there":                    {&placed{}, "", "", ""},
		"one is missing":                   {&placed{missing: []string{"app:v2"}}, "", "", "images are not on the node"},
		"containerd does not answer":       {&placed{err: errors.New("no\nanswer")}, "", "", "it is not known whether the images are on the node: no answer"},
		"kubelet would not start the new":  {&placed{}, "app:v2", "", "kubelet asks for app:v2"},
		"kubelet would not go back to old": {&placed{}, "app:v1", "", "kubelet asks for app:v1"},
		"no containerd":                    {nil, "", "", "--container-runtime-endpoint"},
		"checks that cannot be run":        {&placed{}, "", "no\nsystemd", "the owner's checks cannot be run: no systemd"},
	} {
		t.Run(name, func(t *testing.T) {
			journal, err := inplace.Open(inplace.Options{
				Dir: t.TempDir(), Online: func() bool { return false }, Changed: func() {},
				Event: func(*corev1.ObjectReference, string, string, string) {}, Logger: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Fatal(err)
			}
			cloud := newInPlaceCloud()
			p := inPlace{Journal: journal, ownersChecks: tt.checks, check: func(_ context.Context, pod *corev1.Pod, image, id string) error {
				if image == tt.asks || pod != cloud.pod || id != "#"+image {
					return errors.New("kubelet asks\nfor " + image)
				}
				return nil
			}}
			if tt.images != nil {
				p.images = tt.images
			}
			target, _ := api.NextOf(cloud.pod)
			full, began := errors.New("the disk is full"), 0
			first := func() error { began++; return full }
			if err := p.Begin(t.Context(), cloud.pod, target, first); errors.Is(err, full) != (tt.says == "") || began > 0 != (tt.says == "") || !journal.Idle() {
				t.Errorf("what has to be done first fails: %v, and it was done %d times", err, began)
			}
			full = nil
			err = p.Begin(t.Context(), cloud.pod, target, first)
			no, ok := errors.AsType[*ota.NotInPlaceError](err)
			if revision, _ := journal.Runs("u"); (revision == "new") != (tt.says == "") || ok != (tt.says != "") || ok && !strings.Contains(no.Why, tt.says) {
				t.Errorf("%v, and the pod runs %q", err, revision)
			}
			refused := target
			refused.NotInPlace = "a volume differs"
			never := &placed{}
			again := p
			again.images = never
			if err := again.Begin(t.Context(), cloud.pod, refused, first); tt.says != "" && (err == nil || never.asked != nil) {
				t.Errorf("an upgrade that cannot be in place: %v, and %q are placed", err, never.asked)
			}
			if tt.images != nil && tt.checks == "" && (!slices.Equal(tt.images.asked, []string{"app:v2", "app:v1"}) || (tt.images.changes == 1) != (err == nil)) {
				t.Errorf("%+v", tt.images)
			}
		})
	}
}

func TestAFailedCheckOfTheOwnersEndsAnUpgradeIfItIsRequired(t *testing.T) {
	passes, fails := checks.Result{Check: "required.d/a", Required: true, Passed: true}, checks.Result{Check: "required.d/b", Required: true, Message: "exit code 1: no disk"}
	may := checks.Result{Check: "wanted.d/c", Message: "exit code 2"}
	broken := errors.New("no systemd")
	for name, tt := range map[string]struct {
		results []checks.Result
		err     error // after them
		failed  string
		told    []string
		left    int // of the results
	}{
		"there are none":           {},
		"all pass":                 {results: []checks.Result{passes, passes}},
		"a required one fails":     {results: []checks.Result{passes, fails, passes}, failed: "check required.d/b has failed: exit code 1: no disk", left: 1},
		"one that may fails":       {results: []checks.Result{may, passes}, told: []string{"check wanted.d/c has failed: exit code 2"}},
		"one cannot be run":        {results: []checks.Result{passes}, err: broken},
		"one fails before another": {results: []checks.Result{fails}, err: broken, failed: "check required.d/b has failed: exit code 1: no disk"},
	} {
		t.Run(name, func(t *testing.T) {
			left, told := len(tt.results), []string(nil)
			failed, err := firstFailed(func(yield func(checks.Result, error) bool) {
				for _, r := range tt.results {
					left--
					if !yield(r, nil) {
						return
					}
				}
				if tt.err != nil {
					yield(checks.Result{}, tt.err)
				}
			}, slog.New(slog.DiscardHandler), func(failure string) { told = append(told, failure) })
			if failed != tt.failed || !slices.Equal(told, tt.told) || left != tt.left || (err != nil) != (tt.err != nil && tt.failed == "") {
				t.Errorf("%q, %v; told %q, %d not run", failed, err, told, left)
			}
		})
	}
}

// The owner's request, and an owner who does not know why it waits.
func TestAnUpgradeThatCannotBeInPlaceWaitsAndSaysWhy(t *testing.T) {
	n, _ := newInPlaceNode(t)
	h, _ := n.start(t)
	n.kubeletIsShown(t)
	until(t, "the hub knows the node's pods", h.upgrades.pods.Synced)
	n.loseCloud(t, h)
	code, body := n.ask(t, http.MethodPost, api.UpgradePath("d", "p"), "")
	if code != http.StatusAccepted || !strings.HasPrefix(body, "Upgrade of pod d/p queued: it starts when the cloud can be reached; it cannot be done in place: this hub does not know") {
		t.Errorf("%d %s", code, body)
	}
}

// writeRecord has a hub that starts find an upgrade in place of d/p.
func (n *node) writeRecord(t *testing.T, record inplace.Record) {
	t.Helper()
	text, err := json.Marshal(record)
	if err == nil {
		err = os.MkdirAll(n.path("root/upgrades/inplace"), 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	n.write(t, "root/upgrades/inplace/d_u.json", text)
}

// The backup is of before the cloud has followed, and at a later version than that.
func TestARestoredStoreHasKubeletShownTheUpgradeAgain(t *testing.T) {
	n, cloud := newInPlaceNode(t)
	target, _ := api.NextOf(cloud.pod)
	record, err := inplace.Begin(nil, cloud.pod, target, "", time.Unix(100, 0))
	if err != nil {
		t.Fatal(err)
	}
	record.State, record.Confirmed = inplace.Confirmed, "20"
	n.writeRecord(t, record)
	cloud.has("30", "app:v2")
	h, _ := n.start(t)
	until(t, "the hub knows the node's pods", h.upgrades.pods.Synced)
	if got := n.kubeletIsShown(t); got != "app:v2" {
		t.Fatalf("kubelet is shown %s", got)
	}
	cloud.has("25", "app:v1")
	if got := n.kubeletIsShown(t); got != "app:v2" {
		t.Errorf("of a restored store, kubelet is shown %s", got)
	}
	if pods := h.upgrades.inPlace.Unreconciled(); len(pods) != 1 {
		t.Errorf("the cloud is to follow again, for %v", pods)
	}
}

// Without the old image, there is no way back.
func TestTheImagesOfAnUpgradeInPlaceAreNeeded(t *testing.T) {
	n, cloud := newInPlaceNode(t)
	n.config.RuntimeEndpoint = n.path("no-containerd.sock")
	h, err := n.hub()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	target, _ := api.NextOf(cloud.pod)
	if err := h.upgrades.inPlace.Begin(cloud.pod, target); err != nil {
		t.Fatal(err)
	}
	p, want := h.upgrades.images.puller, []string{"app:v1", "app:v2"}
	if needed, others := p.Needed(), p.Others(); !slices.Equal(needed, want) || !slices.Equal(others, want) {
		t.Errorf("%q are needed, and %q stay", needed, others)
	}
}

// A machine that starts with the cloud there, after an upgrade without it: the cloud's controllers act on the node's pods
// once the node's heartbeat comes.
func TestTheCloudIsToldBeforeTheFirstHeartbeat(t *testing.T) {
	const lease, status = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1", "/api/v1/nodes/n1/status"
	for name, tt := range map[string]struct {
		state        inplace.State
		method, path string // of the heartbeat
		condition    string
		annotated    bool
	}{
		"it has passed, and a lease":       {inplace.Passed, http.MethodPut, lease, `"status":"True"`, true},
		"it has passed, and a node status": {inplace.Passed, http.MethodPatch, status, `"status":"True"`, true},
		"on probation":                     {inplace.Shown, http.MethodPut, lease, `"status":"Unknown"`, false},
	} {
		t.Run(name, func(t *testing.T) {
			n, cloud := newInPlaceNode(t)
			target, _ := api.NextOf(cloud.pod)
			record, err := inplace.Begin(nil, cloud.pod, target, "", time.Unix(100, 0))
			if err != nil {
				t.Fatal(err)
			}
			record.State = tt.state
			n.writeRecord(t, record)
			h, _ := n.start(t)
			until(t, "a heartbeat has come to the cloud", func() bool {
				n.asKubelet(t, tt.method, tt.path, "{}", "application/strategic-merge-patch+json")
				return slices.ContainsFunc(cloud.got(), func(p string) bool { return strings.HasPrefix(p, tt.path) })
			})
			want := `"apps.openyurt.io/upgraded-offline":"{\"revision\":\"new\",\"from\":\"old\",\"images\":[{\"name\":\"app\",\"image\":\"app:v2\"}],`
			if first := cloud.got()[0]; !strings.HasPrefix(first, "/api/v1/namespaces/d/pods/p/status ") || !strings.Contains(first, tt.condition) ||
				!strings.Contains(first, `"PodUpgradedOffline"`) || strings.Contains(first, want) != tt.annotated {
				t.Errorf("before the heartbeat the cloud gets %q", cloud.got())
			}
			if got := n.kubeletIsShown(t); got != "app:v2" { // the first that it reads, of a cloud that has not followed
				t.Errorf("kubelet is shown %s", got)
			}
			if tt.annotated {
				n.showsWhatRuns(t, h, cloud.pod)
			}
		})
	}
}

// showsWhatRuns fails if the owner is not shown what a pod runs, as the history has it.
func (n *node) showsWhatRuns(t *testing.T, h *Hub, pod *corev1.Pod) {
	t.Helper()
	until(t, "the owner's page has the pod", func() bool {
		_, body := n.ask(t, http.MethodGet, api.Apps, "")
		return strings.Contains(body, `"images":["app:v2"]`) && strings.Contains(body, `"state":"Passed"`) && !strings.Contains(body, `"update"`)
	})
	until(t, "the history has what runs, or else a rollback would skip a version", func() bool {
		_, ran := h.upgrades.history.Previous(pod, "new")
		return ran
	})
	if _, body := n.ask(t, http.MethodGet, api.Pods, ""); !strings.Contains(body, `"type":"PodUpgradedOffline","status":"True"`) {
		t.Errorf("GET /pods: %s", body)
	}
}
