package page

import (
	"fmt"
	"time"

	"github.com/edgehub-io/edgehub/ota/api"
)

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
)

// now is when the tests began. Minutes are enough for the page.
var now = time.Now().Truncate(time.Minute)

func ago(d time.Duration) *time.Time {
	at := now.Add(-d)
	return &at
}

// someNode has a clock that is right: the page compares it with the browser's.
func someNode() api.NodeState {
	return api.NodeState{
		Node: "gate-17", Version: "v0.6.0", Time: time.Now(), Online: true, Since: now.Add(-3 * time.Hour), Pulls: true,
		Disks: []api.Disk{
			{Holds: []string{"hub"}, Path: "/var/lib/edgehub", Free: 11 * gib, Total: 28 * gib},
			{Holds: []string{"images"}, Path: "/var/lib/containerd", Free: 6 * gib, Total: 64 * gib},
		},
		Cache: api.CacheHealth{Views: 41, Bytes: 12 * mib},
		Certificates: []api.Certificate{
			{Name: "node", Expires: now.AddDate(0, 7, 0)}, {Name: "api", Expires: now.AddDate(1, 0, 0)},
		},
		Traffic: api.Traffic{Since: time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC), Sent: 31 * mib, Received: 214 * mib},
	}
}

func app(name, uid, image string) api.App {
	return api.App{
		Namespace: "default", Pod: name + "-" + uid, UID: "uid-" + name + "-" + uid, Kind: "DaemonSet", Workload: name,
		Images: []string{"registry.example/site/" + image}, Ready: true, Started: ago(26 * time.Hour), MayHold: true, MayRollback: true,
	}
}

// camera has an update that is not on the node.
func camera() api.App {
	a := app("camera", "x2x9z", "camera:v1")
	a.Update = &api.AppUpdate{Revision: "7598db76d4", Images: []string{"registry.example/site/camera:v2"}, Bytes: 34*mib + 100*kib, Seconds: 4}
	a.Previous = []string{"registry.example/site/camera:v0"}
	return a
}

func pulling(a api.App, done, total int64) api.App {
	return withPull(a, api.Pulling, api.Image{State: api.Pulling, BytesDone: done, BytesTotal: total, Attempts: 1})
}

func pullFailed(a api.App) api.App {
	return withPull(a, api.Failed, api.Image{
		State: api.Failed, BytesTotal: 40 * mib, Attempts: 3, Reason: "Unauthorized", LastError: "registry.example refuses to let the node pull site/camera: 401",
	})
}

func withPull(a api.App, state api.PullState, image api.Image) api.App {
	update := *a.Update
	image.Image = update.Images[0]
	update.Pull = &api.ImagePull{Namespace: a.Namespace, Pod: a.Pod, UID: a.UID, Revision: update.Revision, State: state, Requested: now, Images: []api.Image{image}}
	a.Update = &update
	return a
}

// here is a with the images of its update on the node.
func here(a api.App) api.App {
	a = withPull(a, api.Ready, api.Image{State: api.Ready, BytesDone: 34 * mib, BytesTotal: 34 * mib})
	a.Update.Here = true
	a.Update.Bytes = 0
	return a
}

func waiting(a api.App, state api.UpgradeState, message string) api.App {
	next := now.Add(9 * time.Hour)
	a.Upgrade = &api.Upgrade{Namespace: a.Namespace, Pod: a.Pod, UID: a.UID, Action: api.UpgradeAction, Revision: "7598db76d4", State: state, Requested: now, Message: message}
	if state == api.Scheduled {
		a.Upgrade.Window, a.Upgrade.Next = "02:00-05:00", &next
	}
	return a
}

// inPlace is a with an upgrade that the node carries out without the cloud. reason is why it was undone.
func inPlace(a api.App, state api.UpgradeState, is api.InPlaceState, reason, message string) api.App {
	a = waiting(a, state, message)
	until := now.Add(4 * time.Minute)
	a.Upgrade.InPlace = &api.InPlace{State: is, Reason: reason, Until: &until}
	return a
}

// someApps are apps in many states.
func someApps() []api.App {
	gate := waiting(here(app2("gate", "gate:2.3", "gate:2.4")), api.Scheduled, "")
	till := here(app2("till", "till:8.1.4", "till:8.2.0"))
	till.Hold = &api.Hold{Namespace: "default", Pod: till.Pod, Since: now, Until: now.Add(2 * time.Hour), Reason: "the shop is open"}
	sensor := app("sensor", "7hq2p", "sensor:1.0")
	sensor.Ready, sensor.Trouble, sensor.Restarts = false, "container sensor: CrashLoopBackOff: restarted 7 times, exit code 1", 7
	sensor.MayHold, sensor.Previous = false, []string{"registry.example/site/sensor:0.9"}
	proxy := api.App{Namespace: "kube-system", Pod: "kube-proxy-8dm2c", UID: "p", Kind: "DaemonSet", Workload: "kube-proxy", Images: []string{"registry.k8s.io/kube-proxy:v1.36.1"}, Ready: true, Started: ago(80 * time.Hour)}
	dns := api.App{Namespace: "kube-system", Pod: "coredns-5d78c9869d-x4v8k", UID: "d", Kind: "ReplicaSet", Workload: "coredns-5d78c9869d", Images: []string{"registry.k8s.io/coredns/coredns:v1.13.1"}, Ready: true, Started: ago(80 * time.Hour)}
	return []api.App{here(camera()), gate, pulling(app2("lights", "lights:1.9", "lights:2.0"), 21*mib, 40*mib), till, sensor, dns, proxy}
}

func app2(name, from, to string) api.App {
	a := app(name, "k4l8s", from)
	a.Update = &api.AppUpdate{Revision: "6c9f7d4b5", Images: []string{"registry.example/site/" + to}, Bytes: 40 * mib, Seconds: 3}
	return a
}

func someUpgrades(apps []api.App) []api.Upgrade {
	var upgrades []api.Upgrade
	for _, a := range apps {
		if a.Upgrade != nil {
			upgrades = append(upgrades, *a.Upgrade)
		}
	}
	dropped := api.Upgrade{
		Namespace: "default", Pod: "lights-4kk2v", UID: "gone", Action: api.UpgradeAction, Revision: "5f6d7", State: api.Dropped, Requested: now.Add(-30 * time.Hour),
		Ended: ago(20 * time.Hour), Message: "there is a newer revision than the one that was asked for",
	}
	return append(upgrades, dropped)
}

func someEvents(n int) []api.Event {
	kinds := []api.Event{
		{Kind: "Pod", Name: "sensor-7hq2p", Type: "Warning", Reason: "BackOff", Message: "Back-off restarting failed container sensor in pod sensor-7hq2p", Count: 14},
		{Kind: "Pod", Name: "camera-x2x9z", Type: "Normal", Reason: "ImagesReady", Message: "All images of revision 7598db76d4 are on the node", Count: 1},
		{Kind: "Pod", Name: "gate-k4l8s", Type: "Normal", Reason: "UpgradeScheduled", Message: "The upgrade begins between 02:00 and 05:00", Count: 1},
		{Kind: "Node", Name: "gate-17", Type: "Normal", Reason: "NodeReady", Message: "Node gate-17 status is now: NodeReady", Count: 1},
	}
	events := make([]api.Event, n)
	for i := range events {
		events[i] = kinds[i%len(kinds)]
		if events[i].Kind == "Pod" {
			events[i].Namespace = "default"
		}
		if i >= len(kinds) {
			events[i].Message += fmt.Sprintf(" (%d)", i)
		}
		events[i].Last = now.Add(-time.Duration(7*i) * time.Minute)
		events[i].First = events[i].Last
	}
	return events
}

// full has the hub show something of everything.
func (f *fakeHub) full() *fakeHub {
	f.update(func() {
		f.apps = someApps()
		f.upgrades = someUpgrades(f.apps)
		f.events = someEvents(50)
		f.history = []api.Revision{
			{Revision: "6c9f7d4b5", Since: *ago(26 * time.Hour), Current: true, Images: []string{"registry.example/site/camera:v1"}, Retained: true},
			{Revision: "5b8e6c3a4", Since: *ago(400 * time.Hour), Images: []string{"registry.example/site/camera:v0"}, Retained: true},
		}
	})
	return f
}
