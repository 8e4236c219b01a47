// Package fuzzcache is the cache's random test: real apiservers, etcd and a hub, each a process of its own, and many
// clients. Everything that they see, online, offline and after the return, is compared with what etcd had.
//
// Objects are compared as a whole, decoded, with what etcd had at their resourceVersion. One
// client is a kubelet: the statuses that it has reported while the cloud was away are the
// only thing that others may see and etcd does not have, and they have to see it. Others ask
// for tables, as kubectl does. Etcd is watched past all of them, from its first revision on, so that what is true
// depends neither on the hub nor on an apiserver's watch cache.
//
// What happens meanwhile is a mode's, a table of faults, and each mode is a test, which -run chooses:
//
//   - TestWhatClientsSeeIsWhatEtcdHad: the links to two apiservers break in many ways, and all else that may happen.
//   - TestWhateverHappensToTheHubNoAnswerIsWrong: the hub is killed, its files are damaged, its disk is full.
//   - TestNobodyReadsOrTakesAwayWhatIsAnothers: others send forged, foreign and old credentials.
//
// SECONDS sets how long each takes, 60 by default. SEED is what clients, writes
// and faults are drawn from; it is printed. Processes run beside each other, so a seed
// repeats what is done, and not the instant at which it is.
//
// TestWhatWasShownInAnOutageIsTakenBack is about what a hub derives while the cloud is away, and etcd never has; it
// takes ROUNDS and FIRST_SEED.
package fuzzcache

import (
	"context"
	"os"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/internal/hubproc"
	"github.com/edgehub-io/edgehub/test/internal/testmain"
)

// productRoot is the product's module, seen from this folder.
const productRoot = "../.."

var env struct { //nolint:gochecknoglobals // TestMain has no other way to hand it on
	*cluster.Cluster
	admins []kubernetes.Interface // one for each apiserver, straight to it
	hubBin string
}

func TestMain(m *testing.M) {
	testmain.AtOnce(roundsAtOnce)
	os.Exit(testmain.Main(m, "fuzzcache", prepare))
}

func prepare(ctx context.Context, s *testmain.Env) (err error) {
	if env.hubBin, err = hubproc.Build(ctx, productRoot, s.Dir); err != nil {
		return err
	}
	env.Cluster, err = s.StartCluster(ctx, cluster.Options{
		APIServers:    2,
		APIServerArgs: []string{"--etcd-compaction-interval=0"}, // every version can be listed
	})
	if err != nil {
		return err
	}
	for _, server := range env.ServerURLs() {
		config := env.AdminConfig()
		config.Host = server
		admin, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		env.admins = append(env.admins, admin)
	}
	return nil
}
