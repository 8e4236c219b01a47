package hub

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/hub/bundle"
	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/hub/eventlog"
	"github.com/edgehub-io/edgehub/hub/nodestate"
	"github.com/edgehub-io/edgehub/ota"
	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/apps"
	"github.com/edgehub-io/edgehub/ota/page"
	"github.com/edgehub-io/edgehub/ota/webtoken"
	"github.com/edgehub-io/edgehub/proxy/upstream"
)

// shown is what the owner's page and support bundles show.
type shown struct {
	state   *state
	node    *nodestate.Node
	apps    *apps.Options
	events  *eventlog.Log
	metrics http.Handler
	extra   []bundle.Part // see Hub.AddToBundle
}

// newShown returns what is shown. version is the hub's.
func newShown(c *config.Config, version string, s *state, u *upgrades, starts *ota.API, events *eventlog.Log, metrics http.Handler) *shown {
	node := nodestate.Options{
		Name: c.NodeName, Version: version, Root: c.RootDir,
		Cloud: s.cloud.since, Ready: s.ready, Unregistered: s.node.Missing, Cache: s.cacheHealth, Certificates: s.certificates, Traffic: s.cloud.traffic.Month,
		Missing: u.missing.List,
	}
	list := &apps.Options{
		Pods: u.pods.All, Upgrade: starts.Last, Hold: u.holds.Of, Refused: starts.Refused, Seconds: u.history.StartSeconds,
		Previous: func(pod *corev1.Pod) (api.Target, bool) { return u.rollbacks.Previous(pod, "") },
		Pull:     func(types.NamespacedName) (api.ImagePull, bool) { return api.ImagePull{}, false },
	}
	if i := u.images; i.puller != nil {
		node.Images = i.engine.Disk
		list.Pull, list.Size = i.puller.State, i.puller.Size
	}
	return &shown{state: s, node: nodestate.New(node), apps: list, events: events, metrics: metrics}
}

func (s *shown) page(c *config.Config, log *slog.Logger) *page.Page {
	return page.New(page.Options{
		NodeName: c.NodeName,
		Apps:     s.appList,
		Node:     s.node.State,
		Events:   s.events.List,
		Bundle:   func(ctx context.Context, w io.Writer) error { return bundle.Write(ctx, w, s.bundleParts()) },
		Tokens:   webtoken.Open(filepath.Join(c.RootDir, "web-tokens.json"), upstream.Plausible, log),
		Logger:   log,
	})
}

func (s *shown) appList() api.AppList { return apps.List(s.apps) }

// bundleParts are what a support bundle has of the hub. None has a secret: they are what programs of the
// node may read anyway, and the cache is described without its contents.
func (s *shown) bundleParts() []bundle.Part {
	asJSON := func(name string, read func() any) bundle.Part {
		return bundle.Part{Name: name, Write: func(_ context.Context, w io.Writer) error {
			encoder := json.NewEncoder(w)
			encoder.SetIndent("", "  ")
			return encoder.Encode(read())
		}}
	}
	return append([]bundle.Part{
		asJSON("node.json", func() any { return s.node.State() }),
		asJSON("apps.json", func() any { return s.appList() }),
		asJSON("events.json", func() any { return s.events.List() }),
		asJSON("cache.json", func() any { return s.state.ofCache() }),
		{Name: "metrics.txt", Write: bundle.Answer(s.metrics)},
	}, s.extra...)
}
