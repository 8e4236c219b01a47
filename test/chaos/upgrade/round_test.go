package upgrade_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/internal/poll"
	"github.com/edgehub-io/edgehub/test/internal/rawclient"
)

// step is when something is killed.
type step string

const (
	withRequests step = "with the requests"
	inTheOutage  step = "in the outage"
	atTheReturn  step = "at the return"
)

// fault is what is killed, and when.
type fault struct {
	victim string
	step   step
	delay  time.Duration // after the step has begun
}

// fate is what the cloud does with a DaemonSet while the node is away.
type fate string

const (
	stays     fate = "stays"
	newer     fate = "has a newer revision"
	undone    fate = "is undone"
	deleted   fate = "is deleted"
	recreated fate = "is deleted and made again"
	refused   fate = "is refused its next pod for a while"
)

// outcome is what becomes of an upgrade.
type outcome struct {
	state api.UpgradeState
	pods  int    // that the DaemonSet has had in all
	image string // of its pod in the end; none
}

// expected is that of an upgrade that waits.
var expected = map[fate]outcome{ //nolint:gochecknoglobals // read only
	stays:     {api.Done, 2, "v2"},
	newer:     {api.Dropped, 1, "v1"},
	undone:    {api.Dropped, 1, "v1"},
	deleted:   {api.Dropped, 1, ""},
	recreated: {api.Dropped, 2, "v2"},
	refused:   {api.Done, 2, "v2"},
}

// expectedInPlace is that of an upgrade which is carried out at once: the cloud gives the pod what it runs, and only then
// decides about it as about any other. A pod without its DaemonSet is deleted, and takes its upgrade along.
var expectedInPlace = map[fate]outcome{ //nolint:gochecknoglobals // read only
	stays:     {api.Done, 1, "v2"},
	newer:     {api.Done, 1, "v2"},
	undone:    {api.Done, 1, "v2"},
	deleted:   {"", 1, ""},
	recreated: {"", 2, "v2"},
	refused:   {api.Done, 1, "v2"},
}

// app is a DaemonSet with a pod on the round's node.
type app struct {
	name    string
	fate    fate
	inPlace bool       // its upgrade may take effect without the cloud
	pod     corev1.Pod // before its upgrade
}

func (a *app) expected() outcome {
	if a.inPlace {
		return expectedInPlace[a.fate]
	}
	return expected[a.fate]
}

// round is an outage in which all pods of a node are upgraded. What happens, and when, follows from the
// seed; what the processes make of it does not.
type round struct {
	t      *testing.T
	ns     string
	node   *cluster.Node
	apps   []*app
	faults []fault
	seen   *observer
}

func newRound(t *testing.T, node *cluster.Node, seed int) *round {
	t.Helper()
	pods := 6
	if value := os.Getenv("PODS"); value != "" {
		var err error
		if pods, err = strconv.Atoi(value); err != nil {
			t.Fatalf("PODS=%q: want a number", value)
		}
	}
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	r := &round{t: t, node: node, ns: fmt.Sprintf("round-%d", seed)}
	fates := []fate{stays, stays, stays, stays, newer, undone, deleted, recreated, refused}
	for i := range pods {
		r.apps = append(r.apps, &app{name: fmt.Sprintf("app-%d", i), fate: fates[random.IntN(len(fates))]})
	}
	for range 1 + random.IntN(3) {
		f := fault{
			victim: []string{"hub", "hub", "hub", "kubelet", "both", "containerd", "node", "controller"}[random.IntN(8)],
			step:   []step{withRequests, inTheOutage, atTheReturn, atTheReturn}[random.IntN(4)],
			delay:  time.Duration(random.IntN(700)) * time.Millisecond,
		}
		if f.step == withRequests {
			f.victim, f.delay = "hub", f.delay/5
		}
		if f.victim == "node" && r.kills("node") == 2 { // a third boot would undo what is on probation
			f.victim = "both"
		}
		r.faults = append(r.faults, f)
	}
	for _, a := range r.apps {
		a.inPlace = random.IntN(3) == 0
	}
	t.Logf("%s: %+v", node.Name(), r.faults)
	return r
}

func (r *round) play() {
	r.create()
	r.release()
	// A hub that ends has stored what it knows; one that is killed may not have.
	r.must(r.node.HubProcess().Restart(r.t.Context()))
	r.t.Cleanup(r.giveBack)
	r.cut()
	r.strikeWhile(withRequests, r.request)
	r.strikeWhile(inTheOutage, r.change)
	r.strikeWhile(atTheReturn, func() { r.must(r.node.Link().Up()) })
	for _, a := range r.apps {
		if a.fate == refused && !a.inPlace { // what has no next pod is not refused
			r.awaitRefusal(a)
			r.createAccount(a)
		}
	}
	for _, a := range r.apps {
		r.check(a)
	}
	r.remove()
}

// must fails the round.
func (r *round) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// strikeWhile kills what is to be killed at a step, while do goes on, and starts it again.
func (r *round) strikeWhile(step step, do func()) {
	r.t.Helper()
	failed := make(chan error, len(r.faults))
	var struck sync.WaitGroup
	struck.Go(func() {
		for _, f := range r.faults {
			if f.step != step {
				continue
			}
			select {
			case <-r.t.Context().Done():
				return
			case <-time.After(f.delay): // the fault's time
			}
			if err := r.strike(f.victim); err != nil {
				failed <- fmt.Errorf("kill %s %s: %w", f.victim, f.step, err)
			}
		}
	})
	do()
	struck.Wait()
	close(failed)
	for err := range failed {
		r.t.Fatal(err)
	}
}

// controller is held by the round that kills edgehub-controller.
var controller sync.Mutex //nolint:gochecknoglobals // there is one

func (r *round) strike(victim string) error {
	ctx, hub, kubelet, containerd := r.t.Context(), r.node.HubProcess(), r.node.KubeletProcess(), r.node.ContainerdProcess()
	switch victim {
	case "hub":
		return errors.Join(hub.Kill(), hub.Start(ctx))
	case "kubelet":
		return errors.Join(kubelet.Kill(), r.node.StartKubelet(ctx))
	case "both":
		return errors.Join(hub.Kill(), kubelet.Kill(), hub.Start(ctx), r.node.StartKubelet(ctx))
	case "containerd": // containers outlive it
		return errors.Join(containerd.Kill(), containerd.Start(ctx))
	case "node":
		return errors.Join(r.node.PowerOff(), r.node.PowerOn(ctx))
	case "controller":
		controller.Lock()
		defer controller.Unlock()
		return errors.Join(env.ControllerProcess().Kill(), env.ControllerProcess().Start(ctx))
	}
	return fmt.Errorf("nobody knows how to kill %q", victim)
}

// cut takes the cloud away, and returns when the hub knows.
func (r *round) cut() {
	r.t.Helper()
	r.must(r.node.Link().Refuse())
	r.node.Link().Reset()
	poll.Check(r.t.Context(), r.t, "the hub knows that the cloud is away", func(ctx context.Context) error {
		if code, body := rawclient.Ask(ctx, http.MethodGet, r.node.APIURL()+api.Readyz); code != http.StatusOK || !strings.Contains(body, "offline") {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
}

func (r *round) giveBack() {
	if err := r.node.Link().Up(); err != nil {
		r.t.Error(err)
	}
}

// request posts the upgrade of each pod. A hub that is killed meanwhile has written it down or not, but not
// half: it is asked again until it answers, and then has it.
func (r *round) request() {
	r.t.Helper()
	for _, a := range r.apps {
		url := r.node.APIURL() + api.UpgradePath(r.ns, a.pod.Name)
		wantCode, want := http.StatusAccepted, fmt.Sprintf("Upgrade of pod %s/%s queued: it starts when the cloud can be reached\n", r.ns, a.pod.Name)
		if a.inPlace {
			wantCode, want = http.StatusOK, fmt.Sprintf("Start updating pod %s/%s (offline, in place)\n", r.ns, a.pod.Name)
		}
		poll.Check(r.t.Context(), r.t, "the upgrade of "+a.pod.Name+" is accepted", func(ctx context.Context) error {
			if code, body := rawclient.Ask(ctx, http.MethodPost, url); code != wantCode || body != want {
				return fmt.Errorf("POST upgrade: %d %s", code, body)
			}
			return nil
		})
	}
}

// change gives each DaemonSet its fate in the cloud.
func (r *round) change() {
	r.t.Helper()
	for _, a := range r.apps {
		switch a.fate {
		case newer:
			r.setImage(a, "v3")
		case undone:
			r.setImage(a, "v1")
		case deleted:
			r.deleteDaemonSet(a)
		case recreated:
			r.deleteDaemonSet(a)
			r.createDaemonSet(a, "v2")
		case refused:
			r.must(env.client.CoreV1().ServiceAccounts(r.ns).Delete(r.t.Context(), a.name, metav1.DeleteOptions{}))
		case stays:
		}
	}
	for _, a := range r.apps {
		r.awaitCloud(a)
	}
}

// awaitRefusal returns when the hub says that the next pod would be refused. The old one is there all the time.
func (r *round) awaitRefusal(a *app) {
	r.t.Helper()
	poll.Check(r.t.Context(), r.t, "the upgrade of "+a.pod.Name+" waits because of the refusal", func(ctx context.Context) error {
		code, body := rawclient.Ask(ctx, http.MethodGet, r.node.APIURL()+api.UpgradePath(r.ns, a.pod.Name))
		if code != http.StatusOK || !strings.Contains(body, "would not come back: the apiserver refuses the new version: ") {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	if pods := r.seen.of(a); len(pods) != 1 {
		r.t.Errorf("%s, which %s, has had the pods %v", a.name, a.fate, pods)
	}
	pod, err := env.client.CoreV1().Pods(r.ns).Get(r.t.Context(), a.pod.Name, metav1.GetOptions{})
	r.must(err)
	if pod.DeletionTimestamp != nil {
		r.t.Errorf("%s, which %s, was deleted", a.pod.Name, a.fate)
	}
}

// check checks what has become of an upgrade.
func (r *round) check(a *app) {
	r.t.Helper()
	want := a.expected()
	if want.state != "" {
		r.checkEnd(a, want)
	}
	pod := r.awaitPod(a, want.image)
	if pods := r.seen.of(a); len(pods) != want.pods {
		r.t.Errorf("%s, whose DaemonSet %s, has had the pods %v, want %d", a.name, a.fate, pods, want.pods)
	}
	if !a.inPlace || want.pods != 1 || want.image == "" || r.kills("node") > 0 { // a node takes all containers along
		return
	}
	// The one restart is that of the upgrade. If containerd, or kubelet itself, dies when a container is made and not started, kubelet makes
	// another one, and counts both: the last one that had run is not a new one, then.
	status, most := &pod.Status.ContainerStatuses[0], 1
	last, old := status.LastTerminationState.Terminated, a.pod.Status.ContainerStatuses[0].ContainerID
	if last == nil || last.Reason == "StartError" || last.ContainerID == old {
		most += r.kills("containerd", "kubelet", "both")
	}
	if n := int(status.RestartCount); n < 1 || n > most {
		r.t.Errorf("%s, upgraded in place: its container was restarted %d times, want 1 to %d: %+v", a.pod.Name, n, most, pod.Status)
	}
}

// kills returns how often some victims are killed in this round.
func (r *round) kills(victims ...string) (n int) {
	for _, f := range r.faults {
		if slices.Contains(victims, f.victim) {
			n++
		}
	}
	return n
}

// checkEnd checks as what an upgrade ends.
func (r *round) checkEnd(a *app, want outcome) {
	r.t.Helper()
	const followed = "in place, without the cloud, which has followed"
	var got api.Upgrade
	poll.Check(r.t.Context(), r.t, "the upgrade of "+a.pod.Name+" has ended", func(ctx context.Context) error {
		code, body := rawclient.Ask(ctx, http.MethodGet, r.node.APIURL()+api.UpgradePath(r.ns, a.pod.Name))
		got = api.Upgrade{} // what an answer leaves out is not that of the last one
		if err := json.Unmarshal([]byte(body), &got); code != http.StatusOK || err != nil || !got.State.Final() || a.inPlace && got.Message != followed {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	if got.State != want.state || types.UID(got.UID) != a.pod.UID || !a.inPlace && (got.State == api.Dropped) != (got.Message != "") {
		r.t.Errorf("%s, whose DaemonSet %s: the upgrade has ended as %+v, want %s", a.pod.Name, a.fate, got, want.state)
	}
}
