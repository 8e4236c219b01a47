// Package rollout_test is a randomized test of rollouts: nodes come and go, pods
// fail, images are broken, no node has room, pods may not be deleted, or admission refuses new ones, owners hold their
// pods and go back to earlier revisions, templates change, the DaemonSet is made again,
// and the controller is killed, at random, against a real apiserver and controller manager.
//
// At every deletion, no more Ready nodes may be without an available pod than the
// maximum allows, and no pod may be deleted that is held, or whose successor admission refuses; and when the faults stop, the
// rollout has to end.
//
// SEEDS sets how many seeds are played, FIRST_SEED with which to begin. What is
// done, and when, follows from the seed; what the cluster makes of it does not.
package rollout_test

import (
	"context"
	"os"
	"testing"

	"github.com/edgehub-io/edgehub/test/chaos/seeds"
	"github.com/edgehub-io/edgehub/test/internal/rolloutenv"
)

const (
	moduleRoot   = "../../.."
	nodes        = 8
	defaultSeeds = 10
)

var s *rolloutenv.Env

func TestMain(m *testing.M) {
	os.Exit(rolloutenv.Main(m, moduleRoot, nodes, func(started *rolloutenv.Env) {
		s = started
		if err := s.ApplyAdmission(context.Background(), moduleRoot); err != nil {
			panic(err)
		}
	}))
}

func TestChaos(t *testing.T) { seeds.Each(t, "SEEDS", defaultSeeds, play) }
