package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/ota"
	"github.com/edgehub-io/edgehub/ota/api"
)

// rig is a queue, the real path of an upgrade, and an apiserver that can be away. It is for one
// synctest bubble.
type rig struct {
	t   *testing.T
	dir string
	*Queue
	api     *ota.API
	stop    func()
	off     bool // of the next start
	changes int  // of what is reported

	mu      sync.Mutex
	pods    map[types.NamespacedName]*corev1.Pod // in the cloud, and as the node knows them
	away    bool
	refuse  *apierrors.StatusError // of deletions
	silent  bool                   // deletions are executed, and not answered
	broken  bool                   // nothing else is answered
	holds   map[types.NamespacedName]api.Hold
	events  []string
	deletes []types.UID
	skew    time.Duration // of the wall clock
	atOnce  int
	most    int
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, dir: t.TempDir(), pods: map[types.NamespacedName]*corev1.Pod{}, holds: map[types.NamespacedName]api.Hold{}}
	pods, err := ota.NewPods(&rest.Config{Host: "http://cloud.invalid", Transport: r})
	if err != nil {
		t.Fatal(err)
	}
	if r.api, err = ota.New(ota.Options{NodeName: "node-1", Pods: pods}); err != nil {
		t.Fatal(err)
	}
	r.start()
	return r
}

// start starts the queue, as after a restart of the hub.
func (r *rig) start() {
	q, err := New(Options{
		Dir: r.dir, Pods: r, Online: r.online, Off: r.off, Hold: r.held, Now: r.now, Changed: func() { r.changes++ }, Logger: slog.New(slog.DiscardHandler),
		Event: func(pod *corev1.ObjectReference, _, reason, message string) {
			r.events = append(r.events, fmt.Sprintf("%s/%s %s %s: %s", pod.Namespace, pod.Name, pod.UID, reason, message))
		},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.Queue = q
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan struct{})
	go func() { q.Run(ctx, r.api.Upgrade); close(done) }()
	r.stop = func() { cancel(); <-done }
	r.t.Cleanup(func() { r.stop() })
}

// file writes a file of the queue, which is stopped.
func (r *rig) file(pod, content string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, "default_"+pod+".json"), []byte(content), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) online() bool { return !r.isAway() }

func (r *rig) isAway() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.away
}

func (r *rig) now() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Now().Add(r.skew)
}

// change changes the rig, and waits until the queue has seen it.
func (r *rig) change(f func()) {
	r.mu.Lock()
	f()
	r.mu.Unlock()
	r.Wake()
	synctest.Wait()
}

// returns has the cloud return.
func (r *rig) returns() {
	r.change(func() { r.away = false })
	r.CloudReturned()
}

func (r *rig) Get(name types.NamespacedName) *corev1.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pods[name].DeepCopy()
}

func (r *rig) Synced() bool { return true }

func (r *rig) held(pod types.NamespacedName) (api.Hold, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h, ok := r.holds[pod]
	return h, ok && time.Now().Before(h.Until)
}

// RoundTrip is the apiserver, behind a hub.
func (r *rig) RoundTrip(req *http.Request) (*http.Response, error) {
	var uid types.UID
	if req.Method == http.MethodDelete {
		var options metav1.DeleteOptions
		body, _ := io.ReadAll(req.Body)
		_ = json.Unmarshal(body, &options)
		uid = *options.Preconditions.UID
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.atOnce++
	r.most = max(r.most, r.atOnce)
	defer func() { r.atOnce-- }()
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	switch err := r.answer(req, uid, w); {
	case err != nil && err.ErrStatus.Code == 0:
		return nil, io.ErrUnexpectedEOF
	case err != nil:
		err.ErrStatus.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		w.WriteHeader(int(err.ErrStatus.Code))
		_ = json.NewEncoder(w).Encode(err.ErrStatus)
	}
	return w.Result(), nil
}

func (r *rig) answer(req *http.Request, uid types.UID, w io.Writer) *apierrors.StatusError {
	resource := schema.GroupResource{Resource: "pods"}
	if req.Method != http.MethodDelete { // away, it comes from the hub's cache
		if r.broken {
			return &apierrors.StatusError{}
		}
		list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
		for _, pod := range r.pods {
			list.Items = append(list.Items, *pod)
		}
		_ = json.NewEncoder(w).Encode(list)
		return nil
	}
	if r.away {
		return apierrors.NewServiceUnavailable("edgehub: the cloud cannot be reached: connection refused")
	}
	if r.refuse != nil {
		return r.refuse
	}
	name := strings.TrimPrefix(req.URL.Path, "/api/v1/namespaces/default/pods/")
	pod := r.pods[types.NamespacedName{Namespace: "default", Name: name}]
	switch {
	case pod == nil:
		return apierrors.NewNotFound(resource, name)
	case pod.UID != uid:
		return apierrors.NewConflict(resource, name, errors.New("uid"))
	}
	r.deletes = append(r.deletes, uid)
	delete(r.pods, nameOf(pod))
	if r.silent {
		return &apierrors.StatusError{}
	}
	_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess})
	return nil
}

func nameOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

// pod makes a pod that needs an upgrade.
func (r *rig) pod(name string) *corev1.Pod {
	yes := true
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID("uid-" + name),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "web", Controller: &yes}},
		},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
			{Type: api.NeedCondition, Status: corev1.ConditionTrue, Message: api.Message("new")},
		}},
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pods[nameOf(pod)] = pod
	return pod
}

// add queues the upgrade of a pod, and waits until the queue has seen it.
func (r *rig) add(pod *corev1.Pod, when ota.When) api.Upgrade {
	r.t.Helper()
	u, err := r.Add(pod, "new", when)
	if err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
	return u
}

// wait lets time pass.
func (r *rig) wait(d time.Duration) {
	time.Sleep(d) // in a bubble
	synctest.Wait()
}

// expect fails the test unless a pod's upgrade has this state, and says this.
func (r *rig) expect(pod *corev1.Pod, state api.UpgradeState, says string) api.Upgrade {
	r.t.Helper()
	u, _ := r.State(nameOf(pod))
	if u.State != state || !strings.Contains(u.Message, says) {
		r.t.Fatalf("the upgrade of pod %s is %s (%s), want %s (%s)", pod.Name, u.State, u.Message, state, says)
	}
	return u
}

// crash ends the queue when the deletion of a pod may have been sent, and was executed or not; nothing
// of the attempt's result is kept.
func (r *rig) crash(pod *corev1.Pod, executed bool) {
	r.t.Helper()
	r.stop()
	if err := r.begin(r.get(nameOf(pod))); err != nil {
		r.t.Fatal(err)
	}
	if executed {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.pods, nameOf(pod))
		r.deletes = append(r.deletes, pod.UID)
	}
}

// deleted fails the test unless exactly these pods were deleted.
func (r *rig) deleted(pods ...*corev1.Pod) {
	r.t.Helper()
	var want []types.UID
	for _, p := range pods {
		want = append(want, p.UID)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if fmt.Sprint(r.deletes) != fmt.Sprint(want) {
		r.t.Fatalf("deleted were %v, want %v", r.deletes, want)
	}
}
