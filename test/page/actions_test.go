package page

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	cdpbrowser "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/internal/browser"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

const cameraPath = "namespaces/default/pods/camera-x2x9z/"

// one returns a hub with one app, and a tab of an owner.
func one(t *testing.T, a api.App) (*fakeHub, *browser.Tab) {
	hub := newFakeHub(t)
	hub.update(func() { hub.apps = []api.App{a} })
	b := chromium.Open(t, hub.link(), browser.Settings{})
	b.Shows("Running")
	b.Until("it has no token", `Boolean(localStorage.getItem('edgehub-token'))`)
	return hub, b
}

// wantSent waits for exactly these requests.
func (f *fakeHub) wantSent(want ...string) {
	f.t.Helper()
	var got []string
	if !poll.Within(browser.Patience, func() bool {
		got = append(got, f.sent()...)
		return len(got) >= len(want)
	}) || !slices.Equal(got, want) {
		f.t.Errorf("the page has sent %q, want %q", got, want)
	}
}

func TestWithoutATokenItIsReadOnly(t *testing.T) {
	hub := newFakeHub(t).full()
	b := chromium.Open(t, hub.url(), browser.Settings{})
	b.Shows("This page is read-only: to make changes, run edgehubctl web on the node and open the link that it prints.", "camera")
	buttons := browser.Get[[]string](b, `[...document.querySelectorAll('button')].map((b) => b.textContent)`)
	if !slices.Equal(buttons, []string{"中文"}) {
		t.Errorf("a reader has the buttons %q", buttons)
	}
}

func TestALinkOpensThePageForChanges(t *testing.T) {
	hub := newFakeHub(t).full()
	b := chromium.Open(t, hub.link(), browser.Settings{})
	b.Shows("Upgrade now")
	if url := browser.Get[string](b, `location.href`); url != hub.url() {
		t.Errorf("the address bar shows %s: the code is to be gone", url)
	}
	b.Do(chromedp.Reload())
	b.Shows("Upgrade now")
	b.Lacks("read-only")
}

func TestALinkThatIsNoGoodShowsWhatToDo(t *testing.T) {
	hub := newFakeHub(t).full()
	used := hub.link()
	chromium.Open(t, used, browser.Settings{}).Shows("Upgrade now")
	for name, link := range map[string]string{"used": used, "guessed": hub.url() + "#code=guessed"} {
		t.Run(name, func(t *testing.T) {
			b := chromium.Open(t, link, browser.Settings{})
			b.Refused = true
			b.Shows("The link could not be used: this code was used before, or is older than 10 minutes – open it once more, or run edgehubctl web on the node for a new one.",
				"This page is read-only")
		})
	}
}

// A node without a clock battery boots in 1970.
func TestATokenIsKeptWhateverTheNodesClockShows(t *testing.T) {
	hub := newFakeHub(t).full()
	hub.clock = time.Unix(60, 0)
	b := chromium.Open(t, hub.url()+"#code=x", browser.Settings{})
	b.Shows("Upgrade now")
	b.Do(chromedp.Reload())
	b.Shows("camera")
	if buttons := b.Buttons("camera"); !strings.Contains(buttons, "Upgrade now") {
		t.Errorf("after a reload the card has the buttons %q", buttons)
	}
}

// A token of yesterday is not even sent.
func TestAnExpiredTokenIsNotUsed(t *testing.T) {
	hub, b := one(t, here(camera()))
	b.Do(chromedp.Evaluate[chromedp.Void](`localStorage.setItem('edgehub-token', JSON.stringify({ token: 'old', expires: '2020-01-01T00:00:00Z' }))`), chromedp.Reload())
	b.Shows("This page is read-only")
	hub.wantSent()
}

// The hub forgets tokens: when their time is over, or others come.
func TestARefusedTokenIsForgotten(t *testing.T) {
	hub, b := one(t, here(camera()))
	b.Refused = true
	b.Do(chromedp.Evaluate[chromedp.Void](`localStorage.setItem('edgehub-token', JSON.stringify({ token: 'old', expires: '2999-01-01T00:00:00Z' }))`), chromedp.Reload())
	b.Press("camera", "Upgrade now")
	b.ShowsIn("camera", "this browser may not change anything – run edgehubctl web on the node for a new link.")
	b.Shows("This page is read-only")
	hub.wantSent()
}

func TestAPullIsStartedFollowedAndCancelled(t *testing.T) {
	hub, b := one(t, camera())
	b.Press("camera", "Download")
	hub.wantSent("POST " + cameraPath + "imagepull")
	hub.update(func() { hub.apps[0] = pulling(camera(), 5*mib, 40*mib) })
	b.ShowsIn("camera", "Downloading: 5 MiB of 40 MiB")
	b.Do(chromedp.Reload()) // midway
	b.ShowsIn("camera", "Downloading: 5 MiB of 40 MiB")
	hub.update(func() { hub.apps[0] = pulling(camera(), 6*mib, 40*mib) })
	b.ShowsIn("camera", "Downloading: 6 MiB of 40 MiB")
	b.Press("camera", "Cancel download")
	hub.wantSent("DELETE " + cameraPath + "imagepull")
	hub.update(func() { hub.apps[0] = pullFailed(camera()) })
	b.Press("camera", "Try again")
	hub.wantSent("POST " + cameraPath + "imagepull")
	hub.update(func() { hub.apps[0] = here(camera()) })
	b.Until("nothing is announced", `document.querySelector('[role=status]').textContent === 'camera: The images are here'`)
}

func TestAnUpgradeFromReadyToDone(t *testing.T) {
	hub, b := one(t, here(camera()))
	other := b.Another(hub.url(), browser.Settings{})
	other.ShowsIn("camera", "Upgrade now")
	b.Press("camera", "Upgrade now")
	hub.wantSent("POST " + cameraPath + "upgrade")
	b.ShowsIn("camera", "Upgrading")
	other.ShowsIn("camera", "Upgrading")
	hub.update(func() { hub.apps = nil })
	b.ShowsIn("camera", "The old version has stopped, and the new one starts.")
	b.Do(chromedp.Reload())
	b.ShowsIn("camera", "The old version has stopped, and the new one starts.")

	next := app("camera", "m5n6p", "camera:v2")
	next.Ready = false
	hub.update(func() { hub.apps = []api.App{next} })
	b.ShowsIn("camera", "default · camera:v2")
	hub.update(func() {
		hub.apps[0].Trouble, hub.apps[0].Previous = "container camera: CrashLoopBackOff", []string{"camera:v1"}
	})
	b.ShowsIn("camera", "container camera: CrashLoopBackOff")
	b.ShowsIn("camera", "Go back …") // before it is Ready, which it may never be
	hub.update(func() { hub.apps[0].Ready, hub.apps[0].Trouble = true, "" })
	for _, tab := range []*browser.Tab{b, other} {
		tab.ShowsIn("camera", "Upgraded: the new version runs since")
		tab.ShowsIn("camera", "Running")
	}
}

// What was queued or scheduled begins without the page.
func TestAQueuedUpgradeIsFollowedToItsEnd(t *testing.T) {
	hub, b := one(t, waiting(here(camera()), api.WaitingForCloud, ""))
	b.ShowsIn("camera", "Upgrade waits for the cloud")
	hub.update(func() { hub.apps[0] = waiting(hub.apps[0], api.InProgress, "") })
	b.ShowsIn("camera", "Upgrading …")
	// The cloud was lost before it was asked.
	hub.update(func() { hub.apps[0] = waiting(hub.apps[0], api.WaitingForCloud, "") })
	b.ShowsIn("camera", "Upgrade waits for the cloud")
	hub.update(func() { hub.apps[0] = waiting(hub.apps[0], api.InProgress, "") })
	b.ShowsIn("camera", "Upgrading …")
	hub.update(func() { hub.apps = nil })
	b.ShowsIn("camera", "The old version has stopped, and the new one starts.")
	hub.update(func() { hub.apps = []api.App{app("camera", "m5n6p", "camera:v2")} })
	b.ShowsIn("camera", "Upgraded: the new version runs since")
}

// It cannot be cancelled, so it is asked for twice. The pod stays, so there is no other one to wait for.
func TestAnUpgradeWithoutTheCloudTakesEffectAtOnce(t *testing.T) {
	a := here(camera())
	a.Update.InPlace = true
	hub, b := one(t, a)
	b.ShowsIn("camera", "Upgrade now")
	hub.update(func() { hub.node.Online = false })
	b.Press("camera", "Upgrade now, offline …")
	b.Shows("Upgrade camera now, without the cloud?", "It takes effect at once")
	hub.wantSent()
	b.Press("", "Upgrade now")
	hub.wantSent("POST " + cameraPath + "upgrade")
	b.Until("the dialog is still open", `!document.querySelector('dialog')`)
	hub.update(func() { hub.apps[0] = inPlace(a, api.InProgress, api.InProbation, "", "in place") })
	b.ShowsIn("camera", "Upgrading offline, in place")
	hub.update(func() {
		hub.apps[0] = inPlace(app("camera", "x2x9z", "camera:v2"), api.Done, api.Passed, "", "in place")
		hub.apps[0].Previous = []string{"camera:v1"}
	})
	b.ShowsIn("camera", "Running")
	b.ShowsIn("camera", "Upgraded offline, in place; the cloud will be told")
	b.Press("camera", "Go back …")
	b.Shows("Take camera back to camera:v1?")
	b.Lacks("it begins when the cloud is back")
	b.Press("", "Go back")
	hub.wantSent("POST " + cameraPath + "rollback")
	a = camera() // without its images, which the hub refuses
	a.Update.InPlace = true
	hub.update(func() { hub.apps[0] = a })
	b.ShowsIn("camera", "Update ready")
	if buttons := b.Buttons("camera"); !strings.Contains(buttons, "Download") || strings.Contains(buttons, "without downloading") {
		t.Errorf("an app without its images has the buttons %s", buttons)
	}
}

func TestAnUpgradeIsScheduledAndCancelled(t *testing.T) {
	hub, b := one(t, here(camera()))
	hub.refuse["POST upgrade"] = reply{202, "Upgrade of pod default/camera-x2x9z scheduled for 02:00"}
	b.Press("camera", "Later …")
	b.Press("", "Schedule")
	hub.wantSent("POST " + cameraPath + "upgrade?window=02%3A00-05%3A00")
	b.Until("the dialog is still open", `!document.querySelector('dialog')`)

	b.Press("camera", "Later …")
	b.Until("no dialog", `Boolean(document.querySelector('dialog[open]'))`)
	b.Do(chromedp.Evaluate[chromedp.Void](`(() => {
		const at = document.querySelector('dialog input[name=at]');
		at.value = '2030-01-02T03:04';
		at.dispatchEvent(new Event('input', { bubbles: true })); // which chooses it
	})()`))
	at := browser.Get[string](b, `encodeURIComponent(new Date('2030-01-02T03:04').toISOString().replace('.000', ''))`)
	b.Press("", "Schedule")
	hub.wantSent("POST " + cameraPath + "upgrade?at=" + at)

	hub.update(func() {
		hub.apps[0] = waiting(here(camera()), api.Scheduled, "")
		hub.apps[0].Upgrade.TimeZone = "Asia/Shanghai"
		hub.upgrades = someUpgrades(hub.apps)
	})
	b.Shows("default/camera-x2x9z: Upgrade begins", "(02:00-05:00 Asia/Shanghai)", "default/lights-4kk2v: Upgrade dropped\nthere is a newer revision than the one that was asked for")
	b.Press("camera", "Cancel")
	hub.wantSent("DELETE " + cameraPath + "upgrade")
	hub.refuse["DELETE upgrade"] = reply{409, "the upgrade or rollback of pod default/camera-x2x9z has begun"}
	b.Refused = true
	b.Do(chromedp.Evaluate[chromedp.Void](`document.querySelector('.queue button').click()`))
	b.Until("the queue does not show why", `document.querySelector('.queue [role=alert]')?.textContent === 'the upgrade or rollback of pod default/camera-x2x9z has begun'`)
}

// A node's clock may show UTC where its owner does not. Then the owner chooses whose night it is.
func TestAWindowIsByTheClockThatIsChosen(t *testing.T) {
	hub, b := one(t, camera()) // the hub pulls the images until then
	hub.update(func() { hub.node.Time = now.UTC() })
	hub.refuse["POST upgrade"] = reply{202, "Upgrade of pod default/camera-x2x9z scheduled for 02:00"}
	browser.Call(b, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Shanghai"})
	b.Do(chromedp.Reload())
	schedule := func(zone string) {
		b.Press("camera", "Later …")
		b.Until("the clocks do not differ", `document.querySelector('dialog select[name=tz]')?.options.length === 2`)
		b.Do(chromedp.Evaluate[chromedp.Void](`document.querySelector('dialog select[name=tz]').value = ` + browser.Quote(zone)))
		b.Press("", "Schedule")
		b.Until("the dialog is still open", `!document.querySelector('dialog')`)
	}
	schedule("")
	hub.wantSent("POST " + cameraPath + "upgrade?window=02%3A00-05%3A00")
	schedule("Asia/Shanghai")
	hub.wantSent("POST " + cameraPath + "upgrade?window=02%3A00-05%3A00&tz=Asia%2FShanghai")
	browser.Call(b, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "UTC"})
	b.Do(chromedp.Reload())
	b.Press("camera", "Later …")
	b.Shows("by the node’s clock, which shows " + now.UTC().Format("15:04"))
	if asks := browser.Get[bool](b, `Boolean(document.querySelector('dialog select[name=tz]'))`); asks {
		t.Error("it asks whose clock, although both show the same")
	}
}

func TestAnAppIsHeldAndReleased(t *testing.T) {
	hub, b := one(t, here(camera()))
	b.Press("camera", "Not now …")
	b.Until("no dialog", `Boolean(document.querySelector('dialog[open]'))`)
	b.Do(chromedp.SendKeys(chromedp.CSS(`dialog input[name=reason]`), "unloading & more"))
	b.Press("", "Put on hold")
	hub.wantSent("POST " + cameraPath + "hold?for=2h&reason=unloading+%26+more")
	hub.update(func() {
		hub.apps[0].Hold = &api.Hold{Until: now.Add(2 * time.Hour), Reason: "unloading & more"}
	})
	b.ShowsIn("camera", "unloading & more (the cloud does not know yet)")
	if buttons := b.Buttons("camera"); strings.Contains(buttons, "Upgrade now") {
		t.Errorf("an app on hold has the buttons %s", buttons)
	}
	b.Press("camera", "End the hold")
	hub.wantSent("DELETE " + cameraPath + "hold")
	hub.update(func() { hub.apps[0].Hold = nil })
	b.Until("nothing is announced", `document.querySelector('[role=status]').textContent === 'camera is not on hold any more'`)
}

func TestARollbackIsConfirmed(t *testing.T) {
	hub, b := one(t, camera())
	hub.update(func() {
		hub.history = []api.Revision{
			{Revision: "r3", Since: now, Current: true, Images: []string{"camera:v1"}, Retained: true},
			{Revision: "r2", Since: now, Images: []string{"camera:v0"}, Retained: true},
			{Revision: "r1", Since: now, Images: []string{"camera:beta"}},
		}
	})
	b.Press("camera", "Go back …")
	b.Shows("Take camera back to camera:v0?")
	b.Press("", "Close")
	b.Until("the dialog is still open", `!document.querySelector('dialog')`)
	hub.wantSent()
	b.Press("camera", "Go back …")
	b.Press("", "Go back")
	hub.wantSent("POST " + cameraPath + "rollback")

	b.Press("camera", "Details and history")
	b.ShowsIn("camera", "camera:beta r1 · since ")
	b.ShowsIn("camera", "not on the node any more")
	b.Do(chromedp.Evaluate[chromedp.Void](`document.querySelector('.history button').click()`))
	b.Press("", "Go back")
	hub.wantSent("POST " + cameraPath + "rollback?revision=r2")
}

func TestARefusalIsShownWhereItWasAskedFor(t *testing.T) {
	hub, b := one(t, here(camera()))
	b.Refused = true
	hub.refuse["POST upgrade"] = reply{409, "pod default/camera-x2x9z is on hold until 12:00: the door is open"}
	hub.refuse["POST hold"] = reply{403, "the admin does not permit holds of this app"}
	b.Press("camera", "Upgrade now")
	b.ShowsIn("camera", "pod default/camera-x2x9z is on hold until 12:00: the door is open")
	b.Press("camera", "Not now …")
	b.Press("", "Put on hold")
	b.Until("the dialog does not show why", `document.querySelector('dialog [role=alert]')?.textContent === 'the admin does not permit holds of this app'`)
}

func TestTheSupportBundleIsDownloaded(t *testing.T) {
	hub, b := one(t, camera())
	folder := t.TempDir()
	browser.Call(b, cdpbrowser.SetDownloadBehavior, cdpbrowser.SetDownloadBehaviorParams{
		Behavior: cdpbrowser.SetDownloadBehaviorBehaviorAllow, DownloadPath: folder, BrowserContextID: chromedp.FromContext(b.Context).BrowserContextID,
	})
	b.Press("", "Download support bundle")
	hub.wantSent("GET bundle")
	poll.Until(t, browser.Patience, "the bundle is in the folder for downloads", func() bool {
		names, _ := filepath.Glob(filepath.Join(folder, "edgehub-gate-17-*.tar.gz"))
		if len(names) != 1 {
			return false
		}
		data, err := os.ReadFile(names[0])
		return err == nil && string(data) == "a bundle"
	})
}

// The hub is restarted underneath, as an upgrade of the hub does.
func TestARestartOfTheHubIsSeenAndEnds(t *testing.T) {
	hub, b := one(t, here(camera()))
	b.Refused = true
	hub.stop()
	b.Shows("The hub does not answer since")
	b.ShowsIn("camera", "Update ready") // what was last known
	b.Press("camera", "Upgrade now")
	b.ShowsIn("camera", "The hub does not answer. Nothing may have been done.")
	hub.update(func() { hub.apps[0] = pulling(camera(), 1*mib, 40*mib) })
	hub.start()
	b.Shows("Connected to the cloud", "Downloading: 1 MiB of 40 MiB")
}

func TestTabsShareTheirToken(t *testing.T) {
	hub := newFakeHub(t).full()
	reader := chromium.Open(t, hub.url(), browser.Settings{})
	reader.Shows("This page is read-only")
	owner := reader.Another(hub.link(), browser.Settings{})
	owner.Shows("Upgrade now")
	reader.Shows("Upgrade now")
	reader.Lacks("read-only")
}
