package hub

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/hub/eventlog"
	"github.com/edgehub-io/edgehub/hub/support"
	"github.com/edgehub-io/edgehub/ota"
	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/missing"
	"github.com/edgehub-io/edgehub/ota/page"
	"github.com/edgehub-io/edgehub/ota/webtoken"
	"github.com/edgehub-io/edgehub/proxy/upstream"
)

// shown is what the owner's page and support bundles show.
type shown struct {
	state   *state
	version string // of the hub
	missing *missing.Missing
	disks   *disks
	apps    *page.AppSources
	events  *eventlog.Log
	metrics http.Handler
	extra   []support.Part // see Hub.AddToBundle
}

func newShown(c *config.Config, version string, s *state, u *upgrades, starts *ota.API, events *eventlog.Log, metrics http.Handler) *shown {
	space := &disks{root: c.RootDir}
	list := &page.AppSources{
		Pods: func() []*corev1.Pod { return u.inPlace.Effective(u.pods.All()) }, Upgrade: starts.Last, Hold: u.holds.Of,
		Refused: starts.Refused, InPlace: starts.InPlace, Seconds: u.history.StartSeconds,
		Previous: func(pod *corev1.Pod) (api.Target, bool) { return u.rollbacks.Previous(pod, "") },
		Pull:     func(types.NamespacedName) (api.ImagePull, bool) { return api.ImagePull{}, false },
	}
	if i := u.images; i.puller != nil {
		space.images = i.engine.Disk
		list.Pull, list.Size = i.puller.State, i.puller.Size
	}
	return &shown{state: s, version: version, missing: u.missing, disks: space, apps: list, events: events, metrics: metrics}
}

func (s *shown) page(c *config.Config, log *slog.Logger) *page.Page {
	return page.New(page.Options{
		NodeName: c.NodeName,
		Apps:     s.apps.List,
		Node:     s.node,
		Events:   s.events.List,
		Bundle:   func(ctx context.Context, w io.Writer) error { return support.Write(ctx, w, s.bundleParts()) },
		Tokens:   webtoken.Open(filepath.Join(c.RootDir, "web-tokens.json"), upstream.Plausible, log),
		Logger:   log,
	})
}

// node describes the node to its owner: is the cloud there, do the disks have room, does the hub work.
func (s *shown) node() api.NodeState {
	n := api.NodeState{
		Node: s.state.config.NodeName, Version: s.version, Time: time.Now(), Unregistered: s.state.node.Missing(),
		Certificates: append([]api.Certificate{}, s.state.certificates()...), Traffic: s.state.cloud.traffic.Month(),
		Disks: s.disks.look(), Pulls: s.disks.images != nil, Missing: s.missing.List(),
	}
	n.Online, n.Since = s.state.cloud.since()
	if err := s.state.ready(); err != nil {
		n.Ready = err.Error()
	}
	n.Cache.Views, n.Cache.Bytes, n.Cache.Trouble = s.state.cacheHealth()
	return n
}

// bundleParts are what a support bundle has of the hub. None has a secret: they are what programs of the
// node may read anyway, and the cache is described without its contents.
func (s *shown) bundleParts() []support.Part {
	asJSON := func(name string, read func() any) support.Part {
		return support.Part{Name: name, Write: func(_ context.Context, w io.Writer) error {
			encoder := json.NewEncoder(w)
			encoder.SetIndent("", "  ")
			return encoder.Encode(read())
		}}
	}
	return append([]support.Part{
		asJSON("node.json", func() any { return s.node() }),
		asJSON("apps.json", func() any { return s.apps.List() }),
		asJSON("events.json", func() any { return s.events.List() }),
		asJSON("cache.json", func() any { return s.state.ofCache() }),
		{Name: "metrics.txt", Write: support.Answer(s.metrics)},
	}, s.extra...)
}
