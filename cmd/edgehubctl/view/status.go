package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/ota/api"
)

// Status is the output of status. As JSON it is an interface to scripts: fields
// are added, and never change their meaning.
type Status struct {
	Address string `json:"address"`
	Ready   bool   `json:"ready"`
	// Readiness describes the hub's readiness in words.
	Readiness string `json:"readiness"`
	// Clone is that another machine runs as this node, and what to do; absent if none is known.
	Clone string `json:"clone,omitempty"`
	// Cloud and Cache are null if the hub does not report them.
	Cloud      *api.CloudState `json:"cloud"`
	Cache      *Cache          `json:"cache"`
	ImagePulls []api.ImagePull `json:"imagePulls"`
	// PodAccess is absent if the hub serves only kubelet.
	PodAccess  *api.PodAccess `json:"podAccess,omitempty"`
	Transforms []string       `json:"transforms,omitempty"` // that are active
}

// Cache sums up what is kept for the time without the cloud.
type Cache struct {
	Views int `json:"views"`
	// Incomplete views do not answer while the cloud is away.
	Incomplete int   `json:"incomplete"`
	Objects    int   `json:"objects"`
	Bytes      int64 `json:"bytes"`
	// Oldest is the complete view that an apiserver has not confirmed for longest.
	Oldest *CachedView `json:"oldest,omitempty"`
}

// CachedView is the part of a view's state that is shown.
type CachedView struct {
	User      string    `json:"user"`
	Resource  string    `json:"resource"`
	Namespace string    `json:"namespace,omitempty"`
	Complete  bool      `json:"complete"`
	Objects   int       `json:"objects"`
	Bytes     int64     `json:"bytes"`
	Updated   time.Time `json:"updated,omitzero"`
}

// SumUp returns what the views of a cache have together.
func SumUp(views []CachedView) *Cache {
	r := &Cache{Views: len(views)}
	for i := range views {
		v := &views[i]
		r.Objects += v.Objects
		r.Bytes += v.Bytes
		if !v.Complete {
			r.Incomplete++
			continue
		}
		if !v.Updated.IsZero() && (r.Oldest == nil || v.Updated.Before(r.Oldest.Updated)) {
			r.Oldest = v
		}
	}
	return r
}

// Text is the report in lines, and the table of images, both of at most width columns, unless that is 0.
func (r *Status) Text(now time.Time, width int) string {
	var out strings.Builder
	line := func(label, text string, args ...any) {
		out.WriteString(cli.Hanging(label, fmt.Sprintf(text, args...), len("transforms  "), width))
	}
	if r.Ready {
		line("hub", "ready on %s", r.Address)
	} else {
		line("hub", "not ready on %s: see below", r.Address)
	}
	if r.Clone != "" {
		line("node", "%s", r.Clone)
	}
	if r.Cloud != nil {
		tellCloud(r.Cloud, line, now)
	}
	if r.Cache != nil {
		line("cache", "%s", r.Cache.line(now))
	}
	r.accessLines(line)
	line("images", "%s", queueLine(r.ImagePulls))
	if len(r.ImagePulls) > 0 {
		out.WriteString("\n" + pullTable(r.ImagePulls, now, width))
	}
	return out.String()
}

func tellCloud(s *api.CloudState, line func(label, format string, args ...any), now time.Time) {
	since := fmt.Sprintf("%s, since %s", cli.Age(s.Since, now), s.Since.UTC().Format(time.RFC3339))
	if s.Up {
		line("cloud", "reached for %s", since)
	} else {
		line("cloud", "offline for %s; the node is served from the cache", since)
	}
	for _, a := range s.APIServers {
		state := "up"
		if !a.Up {
			state = "down"
		}
		line("apiserver", "%s", cli.Joined(fmt.Sprintf("%s  %s for %s", a.Address, state, cli.Age(a.Since, now)), a.Error))
	}
}

func (r *Cache) line(now time.Time) string {
	out := fmt.Sprintf("%s, %s, %s", cli.Plural(r.Views, "view"), cli.Plural(r.Objects, "object"), cli.Size(r.Bytes))
	if r.Incomplete > 0 {
		out += fmt.Sprintf("; %d of the views read in part so far, and not for use offline", r.Incomplete)
	}
	if o := r.Oldest; o != nil {
		out += fmt.Sprintf("; oldest: %s of %s, as of %s ago", o.Resource, o.User, cli.Age(o.Updated, now))
	}
	return out
}

func queueLine(pulls []api.ImagePull) string {
	if len(pulls) == 0 {
		return "none are pulled ahead"
	}
	var out []string
	count := map[api.PullState]int{}
	for i := range pulls {
		count[pulls[i].State]++
	}
	for _, s := range []api.PullState{api.Ready, api.Pulling, api.Queued, api.Failed} {
		if count[s] > 0 {
			out = append(out, fmt.Sprintf("%d %s", count[s], strings.ToLower(string(s))))
		}
	}
	return "for " + cli.Plural(len(pulls), "pod") + ": " + strings.Join(out, ", ")
}

func pullTable(pulls []api.ImagePull, now time.Time, width int) string {
	var rows [][]string
	for _, p := range pulls {
		for _, i := range p.Images {
			rows = append(rows, []string{p.Namespace + "/" + p.Pod, p.Revision, i.Image, describeAll(&i, now)})
		}
	}
	if text := cli.Table([]string{"POD", "REVISION", "IMAGE", "STATE"}, rows, 0); width == 0 || cli.Columns(text) <= width {
		return text
	}
	for i, row := range rows {
		rows[i] = []string{row[0], row[1], row[2] + ": " + row[3]}
	}
	return cli.Table([]string{"POD", "REVISION", "IMAGE: STATE"}, rows, width)
}

// accessLines describe how pods reach the hub.
func (r *Status) accessLines(line func(label, format string, args ...any)) {
	a := r.PodAccess
	if a == nil {
		return
	}
	servers := strings.Join(a.Addresses, ", ")
	if a.Pods == nil {
		line("pods", "may use the hub at %s; which do is not known: %s", servers, a.Unknown)
	} else {
		line("pods", "%s", routesLine(a.Pods, servers))
	}
	if a.ClusterIP != nil {
		line("cluster IP", "%s", clusterIPLine(a))
	}
	if len(r.Transforms) == 0 {
		line("transforms", "none: pods that start bypass the hub")
	} else {
		line("transforms", "%s", strings.Join(r.Transforms, ", "))
	}
	line("pods' CA", "since %s; it does not expire", a.CACreated.UTC().Format(time.DateOnly))
}

// clusterIPLine describes where the cluster IP of the apiserver leads with --cluster-ip=always.
func clusterIPLine(a *api.PodAccess) string {
	n := len(distrusting(a))
	switch {
	case a.ClusterIP.InForce && a.Unknown != "":
		return "leads to the hub; it is not known whether all pods still trust it"
	case a.ClusterIP.InForce:
		return "leads to the hub: all pods trust it"
	case a.Unknown != "":
		return "leads past the hub while the cloud is there; it is not known which pods trust it"
	case n == 0:
		return "leads past the hub while the cloud is there; all pods trust it, so that ends within seconds"
	}
	return fmt.Sprintf("leads past the hub while the cloud is there, until pods restart that do not trust it (%d); -o wide names them", n)
}

// distrusting returns the pods that keep --cluster-ip=always from being in force.
func distrusting(a *api.PodAccess) []api.PodRoute {
	if a.ClusterIP == nil || a.ClusterIP.InForce {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(a.Pods), func(p api.PodRoute) bool { return !p.Distrusts })
}

// routesLine counts the pods of each route.
func routesLine(pods []api.PodRoute, servers string) string {
	out := fmt.Sprintf("%d use the hub at %s; %d bypass it until they restart",
		len(withRoute(pods, api.ThroughHub)), servers, len(withRoute(pods, api.Bypass)))
	if n := len(withRoute(pods, api.Proxied)); n > 0 {
		out += fmt.Sprintf("; %d use a proxy for its address; -o wide says why", n)
	}
	return out
}

func withRoute(pods []api.PodRoute, route api.Route) []api.PodRoute {
	return slices.DeleteFunc(slices.Clone(pods), func(p api.PodRoute) bool { return p.Route != route })
}

// RouteTables lists the pods that do not use the hub, or do not trust it.
func (r *Status) RouteTables() string {
	if r.PodAccess == nil {
		return ""
	}
	pods := r.PodAccess.Pods
	return routeTable(withRoute(pods, api.Bypass), "BYPASSES THE HUB", "UNTIL IT RESTARTS", func(p *api.PodRoute) string {
		return cmp.Or(p.Keep, restart(p))
	}) + routeTable(withRoute(pods, api.Proxied), "USES A PROXY FOR THE HUB", "WHERE, AND WHAT TO DO", func(p *api.PodRoute) string {
		return p.Proxy
	}) + routeTable(distrusting(r.PodAccess), "DOES NOT TRUST THE HUB", "UNTIL IT RESTARTS", func(p *api.PodRoute) string {
		if p.SetsAddress {
			return "a restart is enough, whatever address it sets"
		}
		return cmp.Or(p.Keep, restart(p))
	})
}

func restart(p *api.PodRoute) string {
	return "kubectl delete pod --namespace=" + p.Namespace + " " + p.Name
}

func routeTable(pods []api.PodRoute, title, column string, of func(*api.PodRoute) string) string {
	var rows [][]string
	for _, p := range pods {
		rows = append(rows, []string{p.Namespace + "/" + p.Name, p.Owner, of(&p)})
	}
	if len(rows) == 0 {
		return ""
	}
	return "\n" + cli.Table([]string{title, "OWNER", column}, rows, 0)
}
