package controller_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	modelNodes  = 6
	modelSeeds  = 25
	modelRounds = 3
	modelActs   = 8
)

// TestModelRandom plays scenes that follow from a seed: nodes and pods fail, pods may not
// be deleted, are held or rolled back by owners, requests are lost, watches are late, templates change, the DaemonSet is
// made again, and the controller restarts. Between scenes nothing changes for a while, and
// then the conditions must be correct. The maximum must hold at every deletion, and no
// minute may see more requests than are justified. MODEL_SEEDS sets the number of seeds.
func TestModelRandom(t *testing.T) {
	seeds := modelSeeds
	if n, err := strconv.Atoi(os.Getenv("MODEL_SEEDS")); err == nil {
		seeds = n
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed+1), func(t *testing.T) {
			simulate(t, func(t *testing.T) { newScene(t, seed+1).play() })
		})
	}
}

// scene is what is played with one seed.
type scene struct {
	*model
	random  *rand.Rand
	diary   []string
	images  int
	away    string // the node that is not Ready; "" if all are
	refused []string
	words   string
}

func newScene(t *testing.T, seed int) *scene {
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	s := &scene{model: newModel(t, modelNodes, 1+random.IntN(3), rolling), random: random, images: 1}
	s.permitHolds(5 * time.Minute)
	s.permitRollbacks()
	return s
}

func (s *scene) note(format string, args ...any) {
	s.diary = append(s.diary, time.Now().Format(time.TimeOnly)+" "+fmt.Sprintf(format, args...))
}

func (s *scene) node() string { return fmt.Sprintf("n%d", 1+s.random.IntN(modelNodes)) }

func (s *scene) play() {
	defer func() {
		if s.t.Failed() {
			s.t.Logf("at most %d unavailable; deleted %v\n%s", s.max, s.deleted, strings.Join(s.diary, "\n"))
		}
	}()
	s.start()
	for range modelRounds {
		for range modelActs {
			s.act()
			time.Sleep(time.Duration(s.random.IntN(20_000)) * time.Millisecond)
		}
		s.calm()
	}
	s.note("every fault is gone")
	s.api.with(func() { s.api.faults = faults{} })
	s.refused = nil
	if s.away != "" {
		s.turn(s.away, corev1.ConditionTrue)
	}
	s.image("app")
	time.Sleep(10 * time.Minute)
	s.holds("", on())
	// A minute has at most 10 tries for each pod, of deletion and of the list that a
	// conflict leads to, and for the conditions; besides, each node is updated once or
	// twice, the informers list, and Events are posted.
	if most, what := s.api.busiest(); most > 20*modelNodes+60 {
		s.t.Errorf("%d requests in a minute: %s", most, what)
	}
}

// calm ends what keeps the conditions from being written or known, and waits.
func (s *scene) calm() {
	s.note("calm")
	s.api.with(func() {
		s.api.faults.away, s.api.faults.late = false, nil
		s.api.disturbed = time.Now()
	})
	s.refuseNodes()
	time.Sleep(12 * time.Minute)
	s.holds(s.words, on(s.refused...))
}

func (s *scene) act() {
	node := s.node()
	switch n := s.random.IntN(124); {
	case n < 25:
		s.image([]string{"app", "app", "broken", "huge"}[s.random.IntN(4)])
	case n < 40:
		r := refusals[s.random.IntN(len(refusals))]
		s.note("the pod on %s may not be deleted: %s", node, r.words)
		if r.words != s.words {
			s.refused = nil
		}
		s.words, s.refused = r.words, append(s.refused, node)
		s.refuseNodes()
	case n < 45:
		s.note("every pod may be deleted")
		s.refused = nil
		s.refuseNodes()
	case n < 60:
		s.note("the pod on %s fails", node)
		s.fail(node)
	case n < 70:
		s.toggle(node)
	case n < 78:
		late := []time.Duration{0, 200 * time.Millisecond, 5 * time.Second, latest}[s.random.IntN(4)]
		s.note("the watches are %v late", late)
		s.api.with(func() {
			s.api.disturbed = time.Now()
			s.api.faults.late = map[string]time.Duration{"pods": late, "nodes": late / 2, "daemonsets": late / 3}
		})
	case n < 85:
		s.outage()
	case n < 92:
		s.note("the controller starts again")
		s.start()
	case n < 104:
		length, off := time.Duration(1+s.random.IntN(10))*time.Minute, clocks[s.random.IntN(len(clocks))]
		s.note("the pod on %s is held for %v, by a clock that is off by %v", node, length, off)
		s.hold(node, length, off)
	case n < 116:
		s.rollBack(node)
	default:
		s.note("the DaemonSet is made again")
		s.images++
		s.recreate(fmt.Sprintf("app:%d", s.images))
	}
}

// rollBack has the owner of a node go back, to an image that was the template's or is the next, or upgrade.
func (s *scene) rollBack(node string) {
	if s.random.IntN(4) == 0 && node != s.away {
		s.note("the owner of %s upgrades", node)
		s.api.with(func() {
			s.faultAt[node] = time.Now()
			for _, pod := range s.podsLocked()[node] {
				s.api.endLocked(pod.DeepCopy())
			}
		})
		time.Sleep(grace + 2*tick) // before the node can be away
		return
	}
	image := fmt.Sprintf("%s:%d", []string{"app", "app", "broken"}[s.random.IntN(3)], 1+s.random.IntN(s.images+1))
	s.note("the owner of %s goes back to %s", node, image)
	s.wish(node, image)
}

func (s *scene) image(kind string) {
	s.images++
	image := fmt.Sprintf("%s:%d", kind, s.images)
	s.note("the template has %s", image)
	s.setImage(image)
}

// refuseNodes has the apiserver do what was noted.
func (s *scene) refuseNodes() {
	if len(s.refused) == 0 {
		s.api.with(func() { s.api.faults.answer = nil })
		return
	}
	i := slices.IndexFunc(refusals, func(r refusal) bool { return r.words == s.words })
	s.refuse(refusals[i], s.refused...)
}

// toggle takes a node away or brings it back. One at a time is no reason for the circuit
// breaker.
func (s *scene) toggle(node string) {
	if s.away != "" {
		s.note("%s is Ready again", s.away)
		s.turn(s.away, corev1.ConditionTrue)
		s.away = ""
		return
	}
	s.note("%s is not Ready", node)
	s.turn(node, corev1.ConditionUnknown)
	s.away = node
}

// outage fails every request for a while, or every one but reads.
func (s *scene) outage() {
	all := s.random.IntN(2) == 0
	s.note("no requests, or no writes, for a while: %t", all)
	s.api.with(func() {
		s.api.faults.away = all
		s.api.faults.answer = func(verb, _, _ string) error {
			if verb == "GET" {
				return nil
			}
			return apierrors.NewServiceUnavailable("etcd has no leader")
		}
	})
	if all {
		s.api.cut(s.random.IntN(2) == 0)
	}
	begin := time.Now()
	time.Sleep(time.Duration(s.random.IntN(120_000)) * time.Millisecond)
	s.api.with(func() {
		s.api.faults.away = false
		s.api.disturbed = time.Now()
		for node, at := range s.faultAt {
			if at.After(begin.Add(-lenience)) {
				s.faultAt[node] = time.Now() // nobody could know of it meanwhile
			}
		}
	})
	s.refuseNodes()
}
