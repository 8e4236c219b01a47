package rollout_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/controller"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/internal/rolloutenv"
)

const (
	steps  = 30
	settle = 200 * time.Millisecond
	// slow is how long a scene hardly ever takes; what happened is logged then.
	slow = 15 * time.Second
)

// scene is what is played with one seed.
type scene struct {
	*rolloutenv.DaemonSet
	t          *testing.T
	random     *rand.Rand
	guard      *rolloutenv.Guard
	controller *rolloutenv.Controller
	away       map[string]bool
	held       map[types.UID]bool
	answer     rolloutenv.Answer // to requests to delete pods
	images     int
	shut       bool // admission refuses new pods
	begun      time.Time
	diary      []string
}

// play does what the seed determines, stops, and waits for the end of the rollout.
func play(t *testing.T, seed int) {
	x := newScene(t, seed)
	defer x.report(seed)
	for range steps {
		x.act()
		x.pause()
	}
	x.heal()
	x.end()
}

// maxima are what max-unavailable may be, with what it means.
var maxima = []struct {
	words string
	most  func(ready int) int
}{
	{"1", func(int) int { return 1 }},
	{"2", func(int) int { return 2 }},
	{"3", func(int) int { return 3 }},
	{"25%", func(ready int) int { return (ready + 3) / 4 }},
	{"", func(ready int) int { return (ready + 9) / 10 }},
}

func newScene(t *testing.T, seed int) *scene {
	t.Helper()
	x := &scene{
		t: t, random: rand.New(rand.NewPCG(uint64(seed), 0)), away: map[string]bool{}, held: map[types.UID]bool{}, images: 1, begun: time.Now(),
	}
	limit := maxima[x.random.IntN(len(maxima))]
	minReady := x.random.IntN(4) / 3 // mostly none
	annotations := map[string]string{api.MaxHoldAnnotation: maxHold.String(), api.OwnerRollbackAnnotation: api.RollbackAllowed}
	if limit.words != "" {
		annotations[api.MaxUnavailableAnnotation] = limit.words
	}
	x.DaemonSet = s.NewDaemonSet(t, annotations, func(ds *appsv1.DaemonSet) { ds.Spec.MinReadySeconds = int32(minReady) })
	x.guard = s.NewGuard(x.Namespace, limit.most)
	t.Cleanup(x.heal) // also when it failed halfway
	x.start()
	x.note("max-unavailable %q, minReadySeconds %d", limit.words, minReady)
	return x
}

func (x *scene) note(format string, args ...any) {
	x.diary = append(x.diary, fmt.Sprintf("%6.2fs  %s", time.Since(x.begun).Seconds(), fmt.Sprintf(format, args...)))
}

func (x *scene) start() {
	x.controller = s.StartController(x.t, controller.Options{
		Timing: rollout.Timing{NodeSettle: settle}, Namespace: rolloutenv.SystemNamespace, Logger: slog.New(slog.DiscardHandler),
	}, x.guard)
	x.controller.Refuse(x.answer)
	lag := lags[x.random.IntN(len(lags))]
	x.note("a controller starts, whose watches are %v late", lag)
	x.controller.Lag(lag)
}

// lags are well below the time that the guard allows a controller to learn of a
// fault.
var lags = []time.Duration{0, 0, 30 * time.Millisecond, 200 * time.Millisecond}

func (x *scene) pause() { <-time.After(time.Duration(x.random.IntN(250)) * time.Millisecond) }

func (x *scene) node() string { return fmt.Sprintf("n%d", 1+x.random.IntN(nodes)) }

// act does one thing, of which some are more likely than others.
func (x *scene) act() {
	node := x.node()
	switch n := x.random.IntN(132); {
	case n < 20:
		x.template(n < 6)
	case n < 24:
		x.unschedulable()
	case n < 26:
		x.remake()
	case n < 42:
		x.toggle(node)
	case n < 50:
		x.flap(node)
	case n < 62:
		x.fail(node)
	case n < 67:
		x.note("pods heal")
		s.Fleet.Heal()
	case n < 75:
		x.refuse()
	case n < 79:
		x.allow()
	case n < 91:
		x.kill()
	case n < 95:
		x.freeze()
	case n < 100:
		x.suspend()
	case n < 110:
		x.hold(node)
	case n < 118:
		x.rollBack(node)
	case n < 126:
		x.admit(false)
	case n < 130:
		x.admit(true)
	default:
		x.note("all owners upgrade")
		x.upgrade()
	}
}

// template changes it: to a new image, which may be broken, or back.
func (x *scene) template(back bool) {
	if back && x.images > 1 {
		image := fmt.Sprintf("app:%d", 1+x.random.IntN(x.images-1))
		x.note("the template is as it was with %s", image)
		x.request(modest, image)
		return
	}
	x.images++
	image := fmt.Sprintf("app:%d", x.images)
	if broken := x.random.IntN(4) == 0; broken {
		x.note("%s is broken", image)
		s.Fleet.Break(image)
	}
	x.note("the template has %s", image)
	x.request(modest, image)
}

func (x *scene) toggle(node string) {
	if x.away[node] {
		x.connect(node)
		return
	}
	x.note("%s is cut off", node)
	x.away[node] = true
	x.guard.Fault(node)
	x.must(s.Fleet.CutOff(x.t.Context(), node))
	x.guard.Fault(node)
}

func (x *scene) connect(node string) {
	x.note("%s is back", node)
	delete(x.away, node)
	x.guard.Fault(node)
	x.must(s.Fleet.Connect(context.WithoutCancel(x.t.Context()), node))
	x.guard.Fault(node)
}

func (x *scene) flap(node string) {
	for range 3 {
		x.toggle(node)
		<-time.After(time.Duration(x.random.IntN(150)) * time.Millisecond)
	}
}

func (x *scene) fail(node string) {
	pod := x.Pods()[node]
	if pod == nil {
		return
	}
	x.note("the pod on %s fails", node)
	x.guard.Fault(node)
	s.Fleet.Fail(pod)
	x.guard.Fault(node)
}

func (x *scene) kill() {
	x.note("the controller is killed")
	x.controller.Kill()
	if x.random.IntN(2) == 0 {
		x.pause()
	}
	x.start()
}

// freeze keeps Kubernetes from making pods and revisions for a moment.
func (x *scene) freeze() {
	x.note("the controller manager hangs")
	x.must(s.Cluster.ControllerManager().Freeze())
	x.pause()
	x.must(s.Cluster.ControllerManager().Cont())
}

func (x *scene) suspend() {
	x.note("paused for a moment")
	x.Annotate(api.PausedAnnotation, "true")
	x.pause()
	x.Annotate(api.PausedAnnotation, nil)
}

func (x *scene) must(err error) {
	x.t.Helper()
	if err != nil {
		x.t.Fatal(err)
	}
}

// heal stops all faults.
func (x *scene) heal() {
	for i := range x.images {
		s.Fleet.Mend(fmt.Sprintf("app:%d", i+1))
	}
	s.Fleet.Heal()
	for _, node := range slices.Sorted(maps.Keys(x.away)) {
		x.connect(node)
	}
}

// end waits until every node has an available pod of the newest template.
func (x *scene) end() {
	x.note("the faults stop, and all owners upgrade")
	x.clear()
	x.back()
	x.upgrade()
	image := x.Get().Spec.Template.Spec.Containers[0].Image
	x.Await(image, nodes)
	x.AwaitCondition(api.CompleteCondition, "True", rollout.ReasonComplete, fmt.Sprintf("%d of %d nodes updated", nodes, nodes))
	x.note("the rollout is done")
}

func (x *scene) report(seed int) {
	for _, v := range x.guard.Violations() {
		x.t.Error(v)
	}
	if x.t.Failed() || time.Since(x.begun) > slow {
		x.t.Logf("to see it again: make chaos-rollout FIRST_SEED=%d SEEDS=1\ndeleted %v\n%s",
			seed, x.guard.Deleted(), strings.Join(slices.Concat(x.diary), "\n"))
	}
}
