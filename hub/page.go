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

	"github.com/edgehub-io/edgehub/hub/bundle"
	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/hub/nodestate"
	"github.com/edgehub-io/edgehub/hub/traffic"
	"github.com/edgehub-io/edgehub/ota"
	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/apps"
	"github.com/edgehub-io/edgehub/ota/page"
	"github.com/edgehub-io/edgehub/ota/webtoken"
	"github.com/edgehub-io/edgehub/proxy/upstream"
)

// newPage connects the owner's page with what it shows, and with what a support bundle has.
// version is the hub's.
func (h *Hub) newPage(version string, metrics http.Handler) *page.Page {
	log := h.log.With("part", "page")
	node := h.nodeState(version)
	shown := h.upgrades.apps(h.api)
	return page.New(page.Options{
		NodeName: h.config.NodeName,
		Apps:     func() api.AppList { return apps.List(shown) },
		Node:     node.State,
		Events:   h.events.List,
		Bundle: func(ctx context.Context, w io.Writer) error {
			return bundle.Write(ctx, w, h.bundleParts(node, shown, metrics))
		},
		Tokens: webtoken.Open(filepath.Join(h.config.RootDir, "web-tokens.json"), upstream.Plausible, log),
		Logger: log,
	})
}

func (h *Hub) nodeState(version string) *nodestate.Node {
	options := nodestate.Options{
		Name: h.config.NodeName, Version: version, Root: h.config.RootDir,
		Cloud: h.cloud, Ready: h.ready, Unregistered: h.node.Missing, Cache: h.cacheHealth, Certificates: h.certificates, Traffic: h.traffic.Month,
		Missing: h.upgrades.missing.List,
	}
	if e := h.upgrades.images.engine; e != nil {
		options.Images = e.Disk
	}
	return nodestate.New(options)
}

// certificates are those that expire. The hub's own do not: that of the node's CA, and a self-signed one.
func (h *Hub) certificates() (list []api.Certificate) {
	if end, ok := h.creds.Expires(); ok {
		list = append(list, api.Certificate{Name: "node", Expires: end})
	}
	if h.cert == nil {
		return list
	}
	end, ok := h.cert.Expires()
	if ok && h.config.SecureAddress != "" {
		list = append(list, api.Certificate{Name: "pods", Expires: end})
	}
	if ok && h.config.ServeClientCAFile != "" {
		list = append(list, api.Certificate{Name: "api", Expires: end})
	}
	return list
}

// openTraffic reads what hub and cloud have exchanged in this month.
func openTraffic(c *config.Config, cloud *upstream.Upstream, log *slog.Logger) *traffic.Meter {
	return traffic.Open(traffic.Options{
		File: filepath.Join(c.RootDir, "traffic.json"), Total: cloud.Bytes, Plausible: upstream.Plausible, Logger: log,
	})
}

// cloud reports whether the node can use the cloud, and since when.
func (h *Hub) cloud() (online bool, since time.Time) {
	state := h.upstream.State()
	if state.Refused {
		return false, state.RefusedSince
	}
	return state.Up, state.Since
}

// apps are where the list of apps is read.
func (u *upgrades) apps(runs *ota.API) *apps.Options {
	options := &apps.Options{
		Pods: u.pods.All, Upgrade: runs.Last, Hold: u.holds.Of, Refused: runs.Refused, Seconds: u.history.StartSeconds,
		Previous: func(pod *corev1.Pod) (api.Target, bool) { return u.rollbacks.Previous(pod, "") },
		Pull:     func(types.NamespacedName) (api.ImagePull, bool) { return api.ImagePull{}, false },
	}
	if u.images.puller != nil {
		options.Pull, options.Size = u.images.puller.State, u.images.puller.Size
	}
	return options
}

// AddToBundle adds parts to each support bundle. It is called before Run.
func (h *Hub) AddToBundle(parts ...bundle.Part) { h.extra = append(h.extra, parts...) }

// bundleParts are what a support bundle has of the hub. None has a secret: they are what programs of the
// node may read anyway, and the cache is described without its contents.
func (h *Hub) bundleParts(node *nodestate.Node, shown *apps.Options, metrics http.Handler) []bundle.Part {
	asJSON := func(name string, read func() any) bundle.Part {
		return bundle.Part{Name: name, Write: func(_ context.Context, w io.Writer) error {
			encoder := json.NewEncoder(w)
			encoder.SetIndent("", "  ")
			return encoder.Encode(read())
		}}
	}
	return append([]bundle.Part{
		asJSON("node.json", func() any { return node.State() }),
		asJSON("apps.json", func() any { return apps.List(shown) }),
		asJSON("events.json", func() any { return h.events.List() }),
		asJSON("cache.json", func() any { return h.cacheState() }),
		{Name: "metrics.txt", Write: bundle.Answer(metrics)},
	}, h.extra...)
}
