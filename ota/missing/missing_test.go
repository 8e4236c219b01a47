package missing

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
)

func podOf(kind, workload string, uid types.UID) *corev1.Pod {
	yes := true
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: string(uid), UID: uid,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: workload, UID: types.UID(workload + "-uid"), Controller: &yes}},
	}}
}

// played is a node and its cloud.
type played struct {
	pods    []*corev1.Pod
	offline bool
	failing error
	told    []api.MissingWorkload
	reads   int
}

func (p *played) open(t *testing.T, dir string) *Missing {
	t.Helper()
	m, err := Open(Options{
		Dir: dir, Pods: func() []*corev1.Pod { return p.pods }, Synced: func() bool { return true }, Online: func() bool { return !p.offline },
		Node: func(context.Context) (*corev1.Node, error) {
			p.reads++
			return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{api.MissingAnnotation: api.EncodeMissing(p.told)}}}, p.failing
		},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// list is what is missing, with how long ago it began.
func list(m *Missing) string {
	var out []string
	for _, l := range m.List() {
		out = append(out, l.Kind+" "+l.Namespace+"/"+l.Workload+" "+time.Since(l.Since).Round(time.Second).String()+" "+l.Why)
	}
	return strings.Join(out, "\n")
}

const unexplained = "its pod was deleted here for an upgrade, and no other has come; the cloud has not said why"

func TestADeletionIsRememberedUntilAPodComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		old := podOf("DaemonSet", "camera", "old")
		p := &played{pods: []*corev1.Pod{old}}
		m := p.open(t, dir)
		is := func(want string) {
			t.Helper()
			m.Update(p.pods)
			if got := list(m); got != want {
				t.Errorf("missing is %q, want %q", got, want)
			}
		}
		m.Deleted(old)
		m.Deleted(podOf("StatefulSet", "db", "db-0")) // its next pod may run elsewhere
		time.Sleep(time.Minute)
		is("") // it ends slowly
		p.pods = nil
		is("DaemonSet shop/camera 1m0s " + unexplained)
		m = p.open(t, dir) // the hub restarts
		p.offline = true
		is("DaemonSet shop/camera 1m0s " + unexplained)
		p.pods = []*corev1.Pod{podOf("DaemonSet", "camera", "new")}
		is("")
		p.pods = nil
		m = p.open(t, dir)
		is("") // somebody else's doing
		m.Deleted(old)
		time.Sleep(5 * time.Second)
		is("") // it may yet come
		time.Sleep(23 * time.Hour)
		is("DaemonSet shop/camera 23h0m5s " + unexplained)
		time.Sleep(2 * time.Hour)
		is("")
		if m = p.open(t, dir); len(m.deletions) > 0 {
			t.Error("it is still on disk")
		}
	})
}

func TestTheNodeSaysWhatIsMissingAndWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &played{told: []api.MissingWorkload{
			{Kind: "DaemonSet", Namespace: "shop", Name: "camera", Since: time.Now(), Why: "refused"},
			{Kind: "DaemonSet", Namespace: "shop", Name: "there", Since: time.Now(), Why: "of a moment ago"},
		}}
		p.pods = []*corev1.Pod{podOf("DaemonSet", "there", "x")}
		time.Sleep(time.Minute)
		m := p.open(t, t.TempDir())
		is := func(want string, reads int) {
			t.Helper()
			if got := list(m); got != want || p.reads != reads {
				t.Errorf("missing is %q after %d reads of the Node, want %q after %d", got, p.reads, want, reads)
			}
		}
		is("DaemonSet shop/camera 1m0s refused", 1)
		p.told = nil
		time.Sleep(59 * time.Second)
		is("DaemonSet shop/camera 1m59s refused", 1)
		p.offline = true
		time.Sleep(time.Hour)
		is("DaemonSet shop/camera 1h1m59s refused", 1)
		p.offline, p.failing = false, errors.New("no")
		is("DaemonSet shop/camera 1h1m59s refused", 2)
		time.Sleep(time.Minute)
		p.failing = nil
		is("", 3)
		// What the hub knows itself has it look sooner, and the reason comes from the cloud.
		m.Deleted(podOf("DaemonSet", "camera", "old"))
		time.Sleep(10 * time.Second)
		p.told = []api.MissingWorkload{{Kind: "DaemonSet", Namespace: "shop", Name: "camera", Since: time.Now(), Why: "refused"}}
		is("DaemonSet shop/camera 10s refused", 4)
	})
}
