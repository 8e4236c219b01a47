package hub

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/hub/checks"
	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/hub/ownnode"
	"github.com/edgehub-io/edgehub/hub/pullrecords"
	"github.com/edgehub-io/edgehub/imagepull/apiserver"
	"github.com/edgehub-io/edgehub/ota"
	"github.com/edgehub-io/edgehub/ota/bundle"
	"github.com/edgehub-io/edgehub/ota/coreclient"
	"github.com/edgehub-io/edgehub/ota/history"
	"github.com/edgehub-io/edgehub/ota/hold"
	"github.com/edgehub-io/edgehub/ota/inplace"
	"github.com/edgehub-io/edgehub/ota/missing"
	"github.com/edgehub-io/edgehub/ota/nodepods"
	"github.com/edgehub-io/edgehub/ota/podreport"
	"github.com/edgehub-io/edgehub/ota/queue"
	"github.com/edgehub-io/edgehub/ota/rollback"
)

// upgrades has what an owner may do with a pod besides upgrading it at once. Its parts do not know each other: run
// tells each of them what has changed in the others.
type upgrades struct {
	node      string // its name
	cloud     *cloud
	pods      *nodepods.Pods     // the node's; all parts follow these
	cluster   *apiserver.Cluster // records Events
	reporter  *podreport.Reporter
	history   *history.History
	inPlace   *inplace.Journal
	bundles   *bundle.Store
	records   pullrecords.Records
	checks    *checks.Runner
	images    *images
	holds     *hold.Holds
	queue     *queue.Queue
	rollbacks *rollback.Rollbacks
	missing   *missing.Missing
	log       *slog.Logger
}

// newUpgrades opens the files of all parts. It does not connect: containerd may start after the hub,
// and the cloud may be away. own and client send requests through the hub.
func newUpgrades(c *config.Config, own *rest.Config, client *ota.Pods, cloud *cloud, r prometheus.Registerer, log *slog.Logger) (*upgrades, error) {
	core, err := coreclient.New(own)
	if err != nil {
		return nil, err
	}
	pods, err := nodepods.New(core, c.NodeName)
	if err != nil {
		return nil, err
	}
	u := &upgrades{
		node: c.NodeName, cloud: cloud,
		pods: pods, cluster: apiserver.NewCluster(core, c.NodeName), reporter: podreport.New(core, pods, cloud.online, log), log: log,
	}
	u.records = pullrecords.Records{RootDir: c.KubeletRootDir, Proc: "/proc", Secret: u.cluster.Secret}
	if err := u.open(c, client, own.UserAgent, r, log); err != nil {
		u.close()
		return nil, err
	}
	return u, nil
}

// open opens the parts that have files.
func (u *upgrades) open(c *config.Config, client *ota.Pods, userAgent string, r prometheus.Registerer, log *slog.Logger) (err error) {
	online := u.cloud.online
	dir := func(part string) string { return filepath.Join(c.RootDir, "upgrades", part) }
	if u.history, err = history.Open(dir("history"), log); err != nil {
		return err
	}
	u.bundles, err = bundle.OpenStore(bundle.Options{
		Dir: dir("bundles"), Pods: u.pods.AsInCloud, Online: func() bool { return u.cloud.offline() == "" }, Changed: u.offersChanged, Event: u.cluster.Event, Logger: log,
	})
	if err != nil {
		return err
	}
	u.pods.ShowAs(u.bundles.Offered)
	u.checks = &checks.Runner{Dir: checks.Dir, Scratch: dir("checks")}
	u.inPlace, err = inplace.Open(inplace.Options{
		Dir: c.InPlaceDir(), Boot: ownnode.BootID(), Online: online, Changed: u.reporter.Changed,
		Event: u.cluster.Event, OwnersChecks: u.runChecks, Registerer: r, Logger: log,
	})
	if err != nil {
		return err
	}
	if u.images, err = newImages(c, userAgent, u.cluster, online, u.otherImages, u.inPlace.Retain, u.reporter.Changed, r, log); err != nil {
		return err
	}
	if u.holds, err = hold.New(hold.Options{Dir: dir("hold"), Pods: u.pods, Registerer: r, Logger: log}); err != nil {
		return err
	}
	u.queue, err = queue.New(queue.Options{
		Dir: dir("queue"), Pods: u.pods, Online: online, Hold: u.holds.State, Off: !c.QueueUpgrades,
		Event: u.cluster.Event, Changed: u.reporter.Changed, Registerer: r, Logger: log,
	})
	if err != nil {
		return err
	}
	wishes := rollback.Options{
		Dir: dir("rollback"), History: u.history, Pods: func() []*corev1.Pod { pods, _ := u.pods.AsInCloud(); return pods }, Online: online, Changed: u.reporter.Changed, Logger: log,
	}
	if u.images.puller != nil {
		wishes.Images = u.images.puller
	}
	if u.rollbacks, err = rollback.Open(wishes); err != nil {
		return err
	}
	u.missing, err = missing.Open(missing.Options{
		Dir: dir("deleted"), Pods: u.pods.All, Synced: u.pods.Synced, Online: online, Logger: log,
		Node: func(ctx context.Context) (*corev1.Node, error) { return client.Node(ctx, c.NodeName) },
	})
	return err
}

// offersChanged is called when bundles offer pods something else.
func (u *upgrades) offersChanged() {
	u.pods.Changed()
	u.images.othersChanged()
}

// otherImages returns those that stay on the node, as far as there is room, besides pre-pulled ones: of earlier revisions, and of what bundles offer.
func (u *upgrades) otherImages() []string {
	return slices.Concat(u.history.Images(), u.bundles.Images())
}

// run runs all parts until ctx ends. carryOut carries out what is in the queue.
func (u *upgrades) run(ctx context.Context, carryOut func(context.Context, ota.Attempt) error) {
	var all sync.WaitGroup
	all.Go(func() { u.holds.Run(ctx, func() { u.reporter.Changed(); u.queue.Wake() }) })
	all.Go(func() { u.queue.Run(ctx, carryOut) })
	all.Go(func() { u.history.Run(ctx, u.images.othersChanged) })
	all.Go(func() { u.inPlace.Run(ctx) })
	all.Go(func() { u.followKeys(ctx) })
	all.Go(func() { u.rollbacks.Run(ctx) })
	all.Go(func() { u.images.run(ctx) })
	all.Go(func() {
		u.reporter.Run(ctx, u.images.report, u.holds.Report, u.queue.Report, u.rollbacks.Report, u.inPlace.Report)
	})
	all.Go(func() { u.pods.Run(ctx, u.podsChanged) })
	all.Go(func() { u.cloud.eachReturn(ctx, u.cloudReturned) })
	all.Wait()
}

// podsChanged is called with the node's pods once they are known and after changes.
func (u *upgrades) podsChanged(pods []*corev1.Pod) {
	inCloud, _ := u.pods.AsInCloud() // an offer ends no wish, and the journal tells an object that it has seen from another
	u.inPlace.Update(inCloud)
	u.images.podsChanged(pods)
	u.holds.PodsChanged()
	u.queue.Wake()
	u.history.Update(u.inPlace.Effective(pods))
	u.rollbacks.Update(inCloud)
	u.missing.Update(pods)
	u.reporter.Changed()
}

// cloudReturned is called when the cloud is back. It does not block.
func (u *upgrades) cloudReturned() {
	u.pods.Changed() // bundles offer nothing any more
	u.images.cloudReturned()
	u.queue.CloudReturned()
	u.inPlace.CloudReturned()
	u.reporter.CloudReturned()
}

// recordClone records a Warning about this Node. It does not block.
func (u *upgrades) recordClone(message string) {
	about := &corev1.ObjectReference{Kind: "Node", Name: u.node, UID: types.UID(u.node)} // as kubelet's are
	u.cluster.Event(about, corev1.EventTypeWarning, ownnode.ClonedReason, message)
}

// close is called after run, or instead of it.
func (u *upgrades) close() {
	if u != nil {
		u.images.close()
		u.cluster.Close()
	}
}
