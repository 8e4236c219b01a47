package hub

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/hub/binding"
	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/hub/heldimages"
	"github.com/edgehub-io/edgehub/imagepull/apiserver"
	"github.com/edgehub-io/edgehub/ota"
	"github.com/edgehub-io/edgehub/ota/coreclient"
	"github.com/edgehub-io/edgehub/ota/history"
	"github.com/edgehub-io/edgehub/ota/hold"
	"github.com/edgehub-io/edgehub/ota/missing"
	"github.com/edgehub-io/edgehub/ota/nodepods"
	"github.com/edgehub-io/edgehub/ota/podreport"
	"github.com/edgehub-io/edgehub/ota/queue"
	"github.com/edgehub-io/edgehub/ota/rollback"
	"github.com/edgehub-io/edgehub/proxy/authn"
	"github.com/edgehub-io/edgehub/proxy/upstream"
)

// upgrades has what an owner may do with a pod besides upgrading it at once. All parts follow the
// node's pods together.
type upgrades struct {
	pods      *nodepods.Pods
	cluster   *apiserver.Cluster // records Events
	images    *images            // nil: images are not pulled
	holds     *hold.Holds
	queue     *queue.Queue
	api       *ota.API // carries out what is in the queue; set before run
	history   *history.History
	rollbacks *rollback.Rollbacks
	missing   *missing.Missing

	reporter *podreport.Reporter
	reports  []podreport.Source      // what the cloud is shown of pods
	runs     []func(context.Context) // what each part runs, until its context ends
	returned []func()                // called when the cloud is back; they do not block
}

// newUpgrades opens the files of all parts. It does not connect: containerd may start after the hub,
// and the cloud may be away. online reports whether the cloud can be reached.
func newUpgrades(c *config.Config, cloud *rest.Config, online func() bool, r prometheus.Registerer, log *slog.Logger) (*upgrades, error) {
	client, err := coreclient.New(cloud)
	if err != nil {
		return nil, err
	}
	u := &upgrades{pods: nodepods.New(client, c.NodeName), cluster: apiserver.NewCluster(client, c.NodeName)}
	u.reporter = podreport.New(client, u.pods, online, log)
	if c.RuntimeEndpoint != "" {
		others := func() []string { return u.history.Images() }
		if u.images, err = newImages(c, cloud.UserAgent, u.cluster, online, others, u.reporter.Changed, r, log); err != nil {
			u.close()
			return nil, err
		}
		puller := u.images.puller
		u.pods.OnChange(puller.PodsChanged)
		u.runs = append(u.runs, puller.Run)
		u.returned = append(u.returned, puller.CloudReturned)
		u.reports = append(u.reports, func(pod *corev1.Pod) podreport.Report { return podreport.Report{Conditions: puller.Conditions(pod)} })
	} else {
		u.runs = append(u.runs, func(ctx context.Context) { heldimages.ReleaseFormer(ctx, c.RootDir, log.With("part", "imagepull")) })
	}
	dir := func(part string) string { return filepath.Join(c.RootDir, "upgrades", part) }
	err = u.addHolds(dir("hold"), r, log)
	if err == nil {
		err = u.addQueue(c, dir("queue"), online, r, log)
	}
	if err == nil {
		err = u.addRollbacks(dir, online, log)
	}
	if err == nil {
		err = u.addMissing(client, c.NodeName, dir("deleted"), online, log)
	}
	if err != nil {
		u.close()
		return nil, err
	}
	u.pods.OnChange(func([]*corev1.Pod) { u.reporter.Changed() })
	u.returned = append(u.returned, u.reporter.CloudReturned)
	u.runs = append(u.runs, func(ctx context.Context) { u.reporter.Run(ctx, u.reports...) }, u.pods.Run) // pods last: the others have registered by then
	return u, nil
}

// addHolds adds the holds in a folder.
func (u *upgrades) addHolds(dir string, r prometheus.Registerer, log *slog.Logger) (err error) {
	u.holds, err = hold.New(hold.Options{Dir: dir, Pods: u.pods, OnChange: func() { u.reporter.Changed(); u.queue.Wake() }, Registerer: r, Logger: log})
	if err != nil {
		return err
	}
	u.pods.OnChange(func([]*corev1.Pod) { u.holds.PodsChanged() })
	u.runs = append(u.runs, u.holds.Run)
	u.reports = append(u.reports, u.holds.Report)
	return nil
}

// addQueue reads the upgrades that wait.
func (u *upgrades) addQueue(c *config.Config, dir string, online func() bool, r prometheus.Registerer, log *slog.Logger) (err error) {
	u.queue, err = queue.New(queue.Options{
		Dir: dir, Pods: u.pods, Online: online, Hold: u.holds.State, Off: !c.QueueUpgrades,
		Event: u.cluster.Event, Changed: u.reporter.Changed, Registerer: r, Logger: log,
	})
	if err != nil {
		return err
	}
	u.pods.OnChange(func([]*corev1.Pod) { u.queue.Wake() })
	u.runs = append(u.runs, func(ctx context.Context) { u.queue.Run(ctx, u.api.Upgrade) })
	u.returned = append(u.returned, u.queue.CloudReturned)
	u.reports = append(u.reports, u.queue.Report)
	return nil
}

// addRollbacks reads what the node has run, and which earlier revisions its owner wants. dir returns
// the folder of a part.
func (u *upgrades) addRollbacks(dir func(part string) string, online func() bool, log *slog.Logger) (err error) {
	options := history.Options{Dir: dir("history"), Logger: log}
	if u.images != nil {
		p := u.images.puller
		options.Retained, options.Missing, options.Changed = p.Retained, p.Missing, p.OthersChanged
	}
	if u.history, err = history.Open(options); err != nil {
		return err
	}
	u.rollbacks, err = rollback.Open(rollback.Options{
		Dir: dir("rollback"), History: u.history, Pods: u.pods.All, Online: online, Changed: u.reporter.Changed, Logger: log,
	})
	if err != nil {
		return err
	}
	u.pods.OnChange(u.history.Update)
	u.pods.OnChange(u.rollbacks.Update)
	u.runs = append(u.runs, u.history.Run, u.rollbacks.Run)
	u.reports = append(u.reports, u.rollbacks.Report)
	return nil
}

// addMissing reads which deletions wait for another pod.
func (u *upgrades) addMissing(client rest.Interface, node, dir string, online func() bool, log *slog.Logger) (err error) {
	u.missing, err = missing.Open(missing.Options{
		Dir: dir, Pods: u.pods.All, Synced: u.pods.Synced, Online: online, Logger: log,
		Node: func(ctx context.Context) (*corev1.Node, error) {
			read := new(corev1.Node)
			err := client.Get().MaxRetries(0).Resource("nodes").Name(node).Do(ctx).Into(read)
			return read, err
		},
	})
	if err == nil {
		u.pods.OnChange(u.missing.Update)
	}
	return err
}

// offer adds the parts to the options of the node's API.
func (u *upgrades) offer(o *ota.Options) {
	o.Holds, o.Queue, o.Rollbacks, o.Deleted = u.holds, u.queue, u.rollbacks, u.missing.Deleted
	if u.images != nil {
		o.ImagePulls = u.images.puller
	}
}

// run runs all parts until ctx ends.
func (u *upgrades) run(ctx context.Context, cloud *upstream.Upstream, bound *binding.Binding) {
	var all sync.WaitGroup
	for _, run := range u.runs {
		all.Go(func() { run(ctx) })
	}
	all.Go(func() {
		ctx := authn.AsNode(ctx)
		for bound.AwaitMaySend(ctx) == nil { // also at the start
			for _, returned := range u.returned {
				returned()
			}
			select {
			case <-ctx.Done():
				return
			case <-cloud.Lost(ctx):
			}
		}
	})
	all.Wait()
}

// nodeEvent records a Warning about this Node. It does not block.
func (u *upgrades) nodeEvent(node, reason, message string) {
	about := &corev1.ObjectReference{Kind: "Node", Name: node, UID: types.UID(node)} // as kubelet's are
	u.cluster.Event(about, corev1.EventTypeWarning, reason, message)
}

// close is called after run, or instead of it.
func (u *upgrades) close() {
	if u != nil {
		u.images.close()
		u.cluster.Close()
	}
}
