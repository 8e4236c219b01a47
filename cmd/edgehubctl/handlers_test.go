package main

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/hub/support"
	"github.com/edgehub-io/edgehub/ota"
	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/page"
	"github.com/edgehub-io/edgehub/ota/webtoken"
)

// parts keep what the real handlers write, in memory.
type parts struct {
	upgrades []api.Upgrade
	hold     *api.Hold
	rollback *api.Upgrade
}

type queuePart struct{ *parts }

func (p queuePart) Add(pod *corev1.Pod, revision string, w ota.When) (api.Upgrade, error) {
	u := api.Upgrade{Namespace: pod.Namespace, Pod: pod.Name, UID: string(pod.UID), Action: api.UpgradeAction, Revision: revision, State: api.WaitingForCloud}
	if !w.At.IsZero() || w.Window != "" {
		u.State, u.Next = api.Scheduled, &w.At
	}
	p.upgrades = []api.Upgrade{u}
	return u, nil
}

func (p queuePart) State(types.NamespacedName) (api.Upgrade, bool) {
	return api.Upgrade{}, false
}
func (p queuePart) States() []api.Upgrade { return p.upgrades }
func (p queuePart) Cancel(types.NamespacedName) (bool, error) {
	was := len(p.upgrades) > 0
	p.upgrades = nil
	return was, nil
}

type holdsPart struct{ *parts }

func (p holdsPart) Set(pod *corev1.Pod, _ api.Policy, length time.Duration, reason string) (api.Hold, error) {
	p.hold = &api.Hold{Namespace: pod.Namespace, Pod: pod.Name, Since: time.Now(), Until: time.Now().Add(length), Reason: reason}
	return *p.hold, nil
}

func (p holdsPart) Of(*corev1.Pod) (api.Hold, bool) { return p.State(types.NamespacedName{}) }

func (p holdsPart) State(types.NamespacedName) (api.Hold, bool) {
	if p.hold == nil {
		return api.Hold{}, false
	}
	return *p.hold, true
}

func (p holdsPart) Remove(types.NamespacedName) (bool, error) {
	was := p.hold != nil
	p.hold = nil
	return was, nil
}

// rollbacksPart has run revision 5d8f before, and rolls back as soon as somebody looks.
type rollbacksPart struct{ *parts }

func (p rollbacksPart) History(*corev1.Pod) api.History {
	return api.History{Items: []api.Revision{
		{Revision: "6e0a", Since: time.Now().Add(-3 * time.Hour), Current: true, Images: []string{"web:v1"}, Retained: true},
		{Revision: oldRevision, Since: time.Now().Add(-50 * time.Hour), Images: []string{"web:v0"}},
	}}
}

func (p rollbacksPart) Previous(_ *corev1.Pod, revision string) (api.Target, bool) {
	return api.Target{Revision: oldRevision}, revision == "" || revision == oldRevision
}

func (p rollbacksPart) Missing(api.Target) []string { return nil }

func (p rollbacksPart) Request(pod *corev1.Pod, target api.Target) error {
	p.rollback = &api.Upgrade{Namespace: pod.Namespace, Pod: pod.Name, UID: string(pod.UID), Action: api.RollbackAction, Revision: target.Revision, State: api.InProgress}
	return nil
}

func (p rollbacksPart) Withdraw(types.NamespacedName) error { return nil }

func (p rollbacksPart) State(types.NamespacedName) (api.Upgrade, bool) {
	if p.rollback == nil {
		return api.Upgrade{}, false
	}
	now := *p.rollback
	p.rollback.State = api.Done
	return now, true
}

func (p rollbacksPart) States() []api.Upgrade {
	if p.rollback == nil {
		return nil
	}
	return []api.Upgrade{*p.rollback}
}

// realHandlers is a hub of packages ota and page, whose apiserver has pod shop/web-1. The options have the rest.
func realHandlers(t *testing.T, change func(*ota.Options), shows page.Options) *fakeHub {
	t.Helper()
	shows.NodeName, shows.Logger = "edge-1", slog.New(slog.DiscardHandler)
	shows.Node = func() api.NodeState { return api.NodeState{Node: "edge-1"} }
	shows.Tokens = webtoken.Open(filepath.Join(t.TempDir(), "tokens"), func(time.Time) bool { return true }, shows.Logger)
	cloud := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodDelete {
			sends(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess})(w, r)
			return
		}
		sends(corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: []corev1.Pod{old(rollable)}})(w, r)
	}))
	t.Cleanup(cloud.Close)
	pods, err := ota.NewPods(&rest.Config{Host: cloud.URL})
	if err != nil {
		t.Fatal(err)
	}
	o := ota.Options{NodeName: "n", Pods: pods}
	change(&o)
	handler, err := ota.New(o)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(page.New(shows).Wrap(handler))
	t.Cleanup(server.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return &fakeHub{address: server.Listener.Addr().String()}
}

// The texts and JSON of the real handlers are those that edgehubctl reads.
func TestRealHandlers(t *testing.T) {
	p, offline := &parts{}, ""
	h := realHandlers(t, func(o *ota.Options) {
		o.Queue, o.Holds, o.Rollbacks, o.Offline = queuePart{p}, holdsPart{p}, rollbacksPart{p}, func() string { return offline }
	}, page.Options{})
	h.edgehubctl(t, "upgrade", "shop/web-1").is(t, cli.Done, started+"\n", "") // this hub pulls no images ahead
	h.edgehubctl(t, "hold", "shop/web-1").has(t, cli.Failed, "", "is not held")
	h.edgehubctl(t, "hold", "shop/web-1", "--for=2h", "--reason=driving").has(t, cli.Done, "Hold of pod shop/web-1 until ", "")
	h.edgehubctl(t, "hold", "shop/web-1").has(t, cli.Done, "no            driving\n", "")
	h.edgehubctl(t, "hold", "shop/web-1", "-o", "json").has(t, cli.Done, `"until": "`, "")
	h.edgehubctl(t, "upgrade", "shop/web-1").has(t, cli.NotNow, "", "is on hold until")
	h.edgehubctl(t, "upgrade", "shop/web-1", "--force").is(t, cli.Done, started+"\n", "")
	h.edgehubctl(t, "rollback", "shop/web-1").has(t, cli.NotNow, "", "is on hold until")
	h.edgehubctl(t, "rollback", "shop/web-1", "--force").is(t, cli.Done, rollbackText+"\n", "")
	h.edgehubctl(t, "hold", "shop/web-1", "--remove").is(t, cli.Done, "Hold of pod shop/web-1 removed\n", "")
	h.edgehubctl(t, "hold", "shop/web-1", "--for=1000h").has(t, cli.Failed, "", "is not how long this pod can be held")

	const scheduled = "Upgrade of pod shop/web-1 scheduled for "
	h.edgehubctl(t, "upgrade", "shop/web-1", "--at=03:00").has(t, cli.Done, scheduled, "")
	h.edgehubctl(t, "upgrade", "shop/web-1", "--window=02:00-05:00", "--tz=UTC").has(t, cli.Done, scheduled, "")
	h.edgehubctl(t, "upgrade", "shop/web-1", "--window=2-5").has(t, cli.Failed, "", "no window such as 02:00-05:00")
	h.edgehubctl(t, "cancel", "shop/web-1").is(t, cli.Done, "Upgrade cancelled for pod shop/web-1\n", "")
	h.edgehubctl(t, "cancel", "shop/web-1").has(t, cli.Failed, "", "no upgrade of pod shop/web-1 waits")

	h.edgehubctl(t, "history", "shop/web-1").is(t, cli.Done, `REVISION   SINCE   CURRENT   ON NODE   IMAGES
6e0a       3h      yes       yes       web:v1
5d8f       2d2h    no        no        web:v0
`, "")
	h.edgehubctl(t, "rollback", "shop/web-1", "--to=ffff").has(t, cli.NotNow, "", "this node has not run it")

	offline = strings.TrimPrefix(strings.TrimSpace(awayText), "OK, ")
	h.edgehubctl(t, "upgrade", "shop/web-1").is(t, cli.Done, queuedText+"\n", "")
	h.edgehubctl(t, "queue", "-o", "json").has(t, cli.Done, `"state": "WaitingForCloud"`, "")
	h.edgehubctl(t, "pods", "-o", "wide").has(t, cli.Done, "yes, to 7c9b, queued", "offline since")
	h.edgehubctl(t, "rollback", "shop/web-1").is(t, cli.Done, "Rollback of pod shop/web-1 queued: it starts when the cloud can be reached\n", "")
}

func TestRealHandlersOfThePage(t *testing.T) {
	t.Chdir(t.TempDir())
	event := api.Event{Namespace: "shop", Kind: "Pod", Name: "web-1", Type: "Normal", Reason: "Pulled", Message: "image is here", Last: ago(3 * time.Hour)}
	broken := false
	parts := []support.Part{{Name: "log.txt", Write: func(_ context.Context, w io.Writer) error {
		_, err := io.CopyN(w, rand.Reader, mib) // more than is buffered on the way
		return err
	}}}
	h := realHandlers(t, func(*ota.Options) {}, page.Options{
		Events: func() api.EventList { return api.EventList{Items: []api.Event{event}} },
		Bundle: func(ctx context.Context, w io.Writer) error {
			err := support.Write(ctx, w, parts)
			if broken {
				err = errors.New("a disk that cannot be read")
			}
			return err
		},
	})
	h.edgehubctl(t, "events").has(t, cli.Done, "Pod shop/web-1   3h    Normal   Pulled   image is here\n", "")
	got := h.edgehubctl(t, "web")
	code, ok := strings.CutPrefix(strings.TrimSpace(got.out), "http://"+h.address+"/#code=")
	if !ok || got.code != cli.Done {
		t.Fatalf("got %+v", got)
	}
	answer, err := http.Post("http://"+h.address+api.WebTokens, "application/json", strings.NewReader(`{"code":"`+code+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	if answer.Body.Close(); answer.StatusCode != http.StatusOK {
		t.Errorf("the code of the link is answered with %s", answer.Status)
	}
	h.edgehubctl(t, "bundle").has(t, cli.Done, "edgehub-edge-1-", "")
	h.edgehubctl(t, "bundle", "--output-file=b.tgz").has(t, cli.Done, "b.tgz: 1.0 MiB\n", "")
	broken = true
	h.edgehubctl(t, "bundle", "--output-file=c.tgz").has(t, cli.Failed, "", "the hub has not sent a whole bundle")
	if files, err := filepath.Glob("*"); err != nil || len(files) != 2 {
		t.Errorf("the files are %v, %v", files, err)
	}
}

// rollable is for a pod of revision 6e0a that may be rolled back, and upgraded in place.
func rollable(p *corev1.Pod) {
	p.Spec.NodeName = "n"
	p.Labels[appsv1.ControllerRevisionHashLabelKey] = "6e0a"
	p.Annotations = map[string]string{api.PolicyAnnotation: `{"rollback":true,"inPlace":true,"newest":6}`}
}
