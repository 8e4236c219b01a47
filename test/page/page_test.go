// Package page tests the owner's page in Chromium, against a fake hub: what it shows, in which language
// and theme, what its buttons do, and that everybody can use it.
package page

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/internal/browser"
)

// chromium is started once for all tests.
var chromium *browser.Browser

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var stop func()
	var err error
	chromium, stop, err = browser.Start()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer stop()
	return m.Run()
}

func TestNothingMovesWhileThePageIsUsed(t *testing.T) {
	hub := newFakeHub(t).full()
	b := chromium.Open(t, hub.url(), browser.Settings{})
	b.Shows("camera")
	const shifts = `new Promise((done) => {
		let sum = 0;
		const observer = new PerformanceObserver((list) => { for (const e of list.getEntries()) sum += e.value; });
		observer.observe({ type: 'layout-shift', buffered: true });
		requestAnimationFrame(() => requestAnimationFrame(() => { observer.disconnect(); done(sum); }));
	})`
	for done := range int64(9) {
		hub.update(func() { hub.apps[2] = pulling(hub.apps[2], (done+1)*mib, 40*mib) })
		b.Shows(fmt.Sprintf("%d MiB of 40 MiB", done+1))
	}
	if shift := browser.Get[float64](b, shifts); shift > 0.01 {
		t.Errorf("layout shifts of %.3f while the page loads and a pull goes on, want none", shift)
	}
}

func TestItSpeaksTheBrowsersLanguage(t *testing.T) {
	hub := newFakeHub(t).full()
	tests := map[string]struct{ accept, lang, want string }{
		"English":                       {"en-GB,en", "en", "Connected to the cloud since"},
		"Chinese":                       {"zh-CN,zh,en", "zh-CN", "已连接云端"},
		"a language that it lacks":      {"fr-FR,fr", "en", "Connected to the cloud since"},
		"the second one, as it lacks 1": {"fr,zh-TW,en", "zh-CN", "已连接云端"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := chromium.Open(t, hub.link(), browser.Settings{Language: test.accept})
			b.Shows(test.want)
			if lang := browser.Get[string](b, `document.documentElement.lang`); lang != test.lang {
				t.Errorf("the document's language is %q, want %q", lang, test.lang)
			}
		})
	}
}

func TestTheLanguageIsSwitchedAndStaysSo(t *testing.T) {
	hub := newFakeHub(t).full()
	b := chromium.Open(t, hub.link(), browser.Settings{})
	b.Press("", "中文")
	b.Shows("已连接云端", "立即升级") // the link's code has been exchanged
	b.Do(chromedp.Reload())
	b.Shows("已连接云端", "立即升级")
	b.Press("", "English")
	b.Shows("Upgrade now")
}

// Everything has words in both languages, and no placeholder is left.
func TestNothingIsLeftUntranslated(t *testing.T) {
	hub := newFakeHub(t).full()
	b := chromium.Open(t, hub.link(), browser.Settings{Language: "zh-CN"})
	b.Shows("立即升级")
	const english = `[...document.querySelectorAll('h2, h3 + p.state, dt, button, summary, option, .status, .state')]
		.filter((e) => !e.lang && !/[\u4e00-\u9fff]/.test(e.textContent)).map((e) => e.textContent)`
	for _, text := range browser.Get[[]string](b, english) {
		if text != "Pod" {
			t.Errorf("%q has no Chinese words", text)
		}
	}
	if text := b.Text(); strings.ContainsAny(text, "{}") || strings.Contains(text, "undefined") || strings.Contains(text, "NaN") {
		t.Errorf("the page has a hole: %s", text)
	}
}

func TestTheThemeFollowsTheSystemUntilItIsChosen(t *testing.T) {
	hub := newFakeHub(t).full()
	const background = `getComputedStyle(document.body).backgroundColor`
	light := browser.Get[string](chromium.Open(t, hub.url(), browser.Settings{}), background)
	b := chromium.Open(t, hub.url(), browser.Settings{Dark: true})
	dark := browser.Get[string](b, background)
	if light == dark {
		t.Fatalf("light and dark have the same background %s", light)
	}
	b.Shows("camera")
	choose := func(theme string) {
		b.Do(chromedp.Evaluate[chromedp.Void](`(() => { const s = document.querySelector('header select'); s.value = '` + theme + `'; s.dispatchEvent(new Event('change', { bubbles: true })); })()`))
	}
	choose("light")
	b.Until("it is not light", background+` === '`+light+`'`)
	b.Do(chromedp.Reload())
	b.Until("it is not light after a reload", background+` === '`+light+`'`)
	b.Until("the choice is not shown", `document.querySelector('header select')?.value === 'light'`)
	choose("auto")
	b.Until("it does not follow the system", background+` === '`+dark+`'`)
}

func TestItFitsAPhone(t *testing.T) {
	hub := newFakeHub(t).full()
	hub.update(func() {
		hub.apps[0].Workload = strings.Repeat("a-very-long-name-", 10)
		hub.apps[0].Images = []string{"registry.example/" + strings.Repeat("x", 200) + ":v1"}
	})
	for _, width := range []int64{320, 390, 768} {
		b := chromium.Open(t, hub.link(), browser.Settings{Width: width})
		b.Shows("Upgrade now")
		if over := browser.Get[int](b, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); over > 0 {
			t.Errorf("at %d pixels the page is %d pixels too wide", width, over)
		}
		if small := browser.Get[[]string](b, `[...document.querySelectorAll('button')].filter((b) => b.offsetHeight < 40).map((b) => b.textContent)`); len(small) > 0 {
			t.Errorf("too small for a finger: %q", small)
		}
	}
}

func TestItShowsEachState(t *testing.T) {
	hub := newFakeHub(t)
	b := chromium.Open(t, hub.link(), browser.Settings{})
	b.Shows("No pods on this node.", "No upgrade waits.", "No events so far.")

	show := func(a api.App) { hub.update(func() { hub.apps = []api.App{a} }) }
	show(camera())
	b.ShowsIn("camera", "Update ready camera:v2\n\n34 MiB to download")
	show(pulling(camera(), 12*mib, 40*mib))
	b.ShowsIn("camera", "Downloading: 12 MiB of 40 MiB")
	b.Until("no progress", `document.querySelector('progress').position === 0.3`)
	show(pullFailed(camera()))
	b.ShowsIn("camera", "Download failed (Unauthorized): registry.example refuses to let the node pull site/camera: 401")
	b.ShowsIn("camera", "the registry refuses the credentials; the admin renews the pull secret. It is not tried again by itself")
	show(here(camera()))
	b.ShowsIn("camera", "The images are here: about 4 s of interruption")
	show(waiting(here(camera()), api.WaitingForCloud, "it starts when the cloud can be reached"))
	b.ShowsIn("camera", "Upgrade waits for the cloud\nit starts when the cloud can be reached")
	show(waiting(here(camera()), api.InProgress, ""))
	b.ShowsIn("camera", "Upgrading …")
	show(waiting(here(camera()), api.Dropped, "there is a newer revision"))
	b.ShowsIn("camera", "Upgrade dropped\nthere is a newer revision")
	back := waiting(here(camera()), api.InProgress, "")
	back.Upgrade.Action = api.RollbackAction
	show(back)
	b.ShowsIn("camera", "Going back")
	back.Upgrade.State, back.Upgrade.Ended = api.Done, &now
	show(back)
	b.ShowsIn("camera", "Rollback done")

	const undone = "in place, without the cloud; the earlier version runs again: container camera has ended 3 times"
	show(inPlace(here(camera()), api.InProgress, api.InProbation, "", "in place"))
	b.ShowsIn("camera", "Upgrading offline, in place; whether it works is known by "+now.Add(4*time.Minute).Format("15:04"))
	if buttons := b.Buttons("camera"); !strings.Contains(buttons, "Go back") || strings.Contains(buttons, "Upgrade") {
		t.Errorf("an app on probation has the buttons %s", buttons)
	}
	show(inPlace(app("camera", "x2x9z", "camera:v2"), api.Done, api.Passed, "", "in place"))
	b.ShowsIn("camera", "Upgraded offline, in place; the cloud will be told")
	b.Until("it is not announced", `document.querySelector('[role=status]').textContent === 'camera: Upgraded offline, in place; the cloud will be told'`)
	show(inPlace(app("camera", "x2x9z", "camera:v2"), api.Done, api.Reconciled, "", "in place"))
	b.ShowsIn("camera", "Upgraded offline, in place; the cloud has followed")
	show(inPlace(here(camera()), api.Dropped, api.Undoing, api.ReasonCrashed, undone))
	b.ShowsIn("camera", "Offline upgrade: being undone\n"+undone)
	show(inPlace(here(camera()), api.Dropped, api.Undone, api.ReasonCrashed, undone))
	b.ShowsIn("camera", "Offline upgrade: undone\n"+undone)

	blocked := here(camera())
	blocked.Update.Blocked = "the pod has no owner that would replace it"
	show(blocked)
	b.ShowsIn("camera", "It cannot be upgraded now: the pod has no owner that would replace it")
	if buttons := b.Buttons("camera"); strings.Contains(buttons, "Upgrade") {
		t.Errorf("what is blocked has the buttons %s", buttons)
	}

	hub.update(func() { hub.node.Online = false })
	b.Shows("Offline since")
	hub.update(func() { hub.node.Ready = "the cache's disk is read-only" })
	b.Shows("The hub cannot serve the node: the cache's disk is read-only")
	hub.update(func() {
		hub.node.Certificates[0].Expires = *ago(48e12)
		hub.node.Cache.Trouble = "the cache is in memory: no space left on device"
	})
	b.Shows("Node: expired", "the cache is in memory: no space left on device")
}

func TestOffline(t *testing.T) {
	hub := newFakeHub(t).full()
	hub.update(func() { hub.node.Online = false })
	b := chromium.Open(t, hub.link(), browser.Settings{})
	b.Shows("Offline since", "Back-off restarting failed container sensor in pod sensor-7hq2p", "44 more")
	b.ShowsIn("camera", "Upgrade when the cloud is back")
	if events := browser.Get[int](b, `document.querySelectorAll('.events li').length`); events != 50 {
		t.Errorf("%d Events are shown, want 50", events)
	}
	hub.refuse["POST upgrade"] = reply{202, "Upgrade of pod default/camera-x2x9z queued: it starts when the cloud can be reached"}
	b.Press("camera", "Upgrade when the cloud is back")
	hub.wantSent("POST " + cameraPath + "upgrade")
	hub.update(func() { hub.apps[0] = waiting(hub.apps[0], api.WaitingForCloud, "") })
	b.ShowsIn("camera", "Upgrade waits for the cloud")
	b.Press("sensor", "Go back …")
	b.Shows("The cloud is away: it begins when the cloud is back.")
}

func TestTheNodesHealthIsShown(t *testing.T) {
	hub := newFakeHub(t)
	clock := hub.node.Time
	b := chromium.Open(t, hub.url(), browser.Settings{})
	b.Shows("11 GiB free of 28 GiB", "6 GiB free of 64 GiB", "12 MiB on disk, 41 views", "Node: until ", "This API: until ", "214 MiB received, 31 MiB sent",
		clock.Format("2006-01-02 15:04")+" (UTC"+strings.TrimPrefix(clock.Format("Z07:00"), "Z")+")")
	b.Lacks("It differs from the clock of this browser")
	hub.update(func() { hub.node.Time = now.AddDate(0, 0, -1) })
	b.Shows("It differs from the clock of this browser by 1,4")
}

// What has ended does not push away what waits.
func TestALongQueueIsFolded(t *testing.T) {
	hub := newFakeHub(t)
	hub.update(func() {
		hub.apps = []api.App{waiting(here(camera()), api.WaitingForCloud, "")}
		hub.upgrades = []api.Upgrade{*hub.apps[0].Upgrade}
		for i := range 200 {
			ended := someUpgrades(nil)[0]
			ended.Requested, ended.Message = now.Add(time.Duration(i)*time.Second), fmt.Sprintf("reason %d", i)
			hub.upgrades = append(hub.upgrades, ended)
		}
	})
	b := chromium.Open(t, hub.url(), browser.Settings{})
	b.Shows("default/camera-x2x9z: Upgrade waits for the cloud", "reason 199", "reason 195", "195 more")
	b.Lacks("reason 194")
}

// A name or a message is text, whatever is in it.
func TestWhatTheAPISendsIsText(t *testing.T) {
	hub := newFakeHub(t)
	evil := `<img src=x onerror="window.owned = 1"><script>window.owned = 1</script>`
	a := pullFailed(camera())
	a.Namespace, a.Pod, a.Workload, a.Trouble, a.Images, a.Previous = evil, evil, evil, evil, []string{evil}, []string{evil}
	a.Ready, a.Update.Images, a.Update.Blocked = false, []string{evil}, evil
	a.Update.Pull.Images[0].Reason, a.Update.Pull.Images[0].LastError = evil, evil
	waits := waiting(here(camera()), api.UpgradeState(evil), evil)
	waits.UID, waits.Upgrade.Action, waits.Upgrade.Window, waits.Upgrade.TimeZone = evil, api.Action(evil), evil, evil
	held := here(app2("held", "held:1", "held:2"))
	held.Hold = &api.Hold{Until: now, Reason: evil}
	hub.update(func() {
		hub.apps, hub.upgrades = []api.App{a, waits, held}, []api.Upgrade{*waits.Upgrade}
		hub.events = []api.Event{{Namespace: evil, Kind: evil, Name: evil, Type: evil, Reason: evil, Message: evil, Last: now}}
		hub.node.Node, hub.node.Version, hub.node.Disks[0].Path, hub.node.Ready, hub.node.Cache.Trouble = evil, evil, evil, evil, evil
		hub.node.Certificates[0].Name = evil
		hub.history = []api.Revision{{Revision: evil, Since: now, Images: []string{evil}, Retained: true}}
	})
	b := chromium.Open(t, hub.link(), browser.Settings{})
	b.ShowsIn(evil, evil)
	b.Press(evil, "Details and history")
	b.ShowsIn(evil, "since")
	b.Press(evil, "Go back …")
	b.Until("no dialog", `Boolean(document.querySelector('dialog[open]'))`)
	if n := browser.Get[int](b, `document.querySelectorAll('img, body script').length + (window.owned ?? 0)`); n > 0 {
		t.Errorf("text became elements, or ran: %d", n)
	}
}

// The page loads nothing from elsewhere, and could not: a script that got into it would reach nobody.
func TestNothingComesFromElsewhere(t *testing.T) {
	hub := newFakeHub(t).full()
	var asked atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Access-Control-Allow-Origin", "*")
	}))
	defer other.Close()
	b := chromium.Open(t, hub.link(), browser.Settings{})
	b.Refused = true
	b.Shows("Upgrade now")
	for _, url := range browser.Get[[]string](b, `performance.getEntriesByType('resource').map((e) => e.name)`) {
		if !strings.HasPrefix(url, hub.url()) {
			t.Errorf("the page has loaded %s", url)
		}
	}
	blocked := browser.Get[[]string](b, `(async () => {
		const other = `+browser.Quote(other.URL)+`, blocked = [];
		document.addEventListener('securitypolicyviolation', (e) => blocked.push(e.effectiveDirective));
		await fetch(other).catch(() => {});
		await import(other).catch(() => {});
		const image = new Image();
		await new Promise((done) => { image.onerror = done; image.src = other; });
		const script = document.createElement('script');
		script.textContent = 'window.owned = 1';
		document.body.append(script);
		await new Promise(requestAnimationFrame);
		return [...new Set(blocked)].sort();
	})()`)
	if want := []string{"connect-src", "img-src", "script-src-elem"}; !slices.Equal(blocked, want) {
		t.Errorf("the policy has blocked %q, want %q", blocked, want)
	}
	if owned := browser.Get[bool](b, `'owned' in window`); owned || asked.Load() > 0 {
		t.Errorf("a script ran: %v; another server was asked %d times", owned, asked.Load())
	}
}

// A website that the owner visits in the same browser, in which the page has a token.
func TestAnotherWebsiteGetsNothing(t *testing.T) {
	hub, b := one(t, here(camera()))
	b.Do(chromedp.Navigate("about:blank")) // which ends the page's stream
	hub.update(func() { hub.answered = 0 })
	website := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<!doctype html><link rel="icon" href="data:,"><title>elsewhere</title>`)
	}))
	defer website.Close()
	other := b.Another(website.URL, browser.Settings{})
	other.Refused = true
	got := browser.Get[[]string](other, `(async () => {
		const hub = `+browser.Quote(strings.TrimSuffix(hub.url(), "/"))+`, got = [];
		const tried = (what, promise) => promise.then((answer) => got.push(what + ' ' + answer.type), () => {});
		await tried('read', fetch(hub + '/openyurt.io/v1/apps'));
		await tried('token', fetch(hub + '/openyurt.io/v1/`+cameraPath+`upgrade', { method: 'POST', headers: { 'Edgehub-Token': 'x' } }));
		await fetch(hub + '/openyurt.io/v1/`+cameraPath+`upgrade', { method: 'POST', mode: 'no-cors' });
		await fetch(hub + '/openyurt.io/v1/web/codes', { method: 'POST', mode: 'no-cors' });
		const frame = document.createElement('iframe');
		frame.src = hub;
		document.body.append(frame);
		await new Promise((done) => { frame.onload = frame.onerror = done; });
		const script = document.createElement('script');
		script.src = hub + '/page/app.js';
		document.body.append(script);
		await new Promise((done) => { script.onload = script.onerror = done; });
		return got;
	})()`)
	hub.wantSent()
	if len(got) > 0 || hub.answered > 0 {
		t.Errorf("a website got %q, and %d answers", got, hub.answered)
	}
	// A name that means this machine, as after DNS rebinding. Chromium resolves it by itself.
	other.Do(chromedp.Navigate(strings.Replace(hub.url(), "127.0.0.1", "rebound.localhost", 1)))
	other.Shows("refused: its Host is")
}

// Anybody on the node may listen on [::1], which is localhost, too: the link leads to the address, with its code, and a
// page of the origin localhost, however it came there, reads and changes nothing.
func TestLocalhostLeadsToTheAddress(t *testing.T) {
	hub := newFakeHub(t)
	hub.update(func() { hub.apps = []api.App{here(camera())} })
	localhost := func(url string) string { return strings.Replace(url, "127.0.0.1", "localhost", 1) }
	b := chromium.Open(t, localhost(hub.link()), browser.Settings{})
	b.Until("it is not at the address", `location.hostname === '127.0.0.1'`)
	b.Until("it has no token", `Boolean(localStorage.getItem('edgehub-token'))`)

	// A squatter's page; then it stops to listen, and the browser reaches the hub by the same origin.
	_, port, err := net.SplitHostPort(hub.address)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "[::1]:"+port)
	if err != nil {
		t.Fatal(err)
	}
	squatter := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<!doctype html><link rel="icon" href="data:,"><title>squatter</title>`)
	}))
	squatter.Listener.Close()
	squatter.Listener = listener
	squatter.Start()
	other := b.Another(localhost(hub.url()), browser.Settings{})
	other.Until("the squatter's page is not shown", `document.title === 'squatter'`)
	squatter.CloseClientConnections()
	squatter.Close()
	other.Refused = true
	got := browser.Get[[]int](other, `(async () => {
		const code = `+browser.Quote(hub.code())+`, got = [];
		for (const [method, path, body] of [
			['GET', 'apps'], ['GET', 'bundle'], ['POST', 'web/tokens', JSON.stringify({ code })], ['POST', '`+cameraPath+`upgrade'],
		]) got.push((await fetch('/openyurt.io/v1/' + path, { method, body })).status);
		return got;
	})()`)
	if !slices.Equal(got, []int{403, 403, 403, 403}) {
		t.Errorf("the squatter's page was answered %v", got)
	}
	hub.wantSent()
}

// A hub has 16 streams.
func TestATabTooMuchShowsWhy(t *testing.T) {
	hub := newFakeHub(t).full()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	for range 16 {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(hub.url(), "/")+api.Stream, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
	}
	b := chromium.Open(t, hub.url(), browser.Settings{})
	b.Refused = true
	b.Shows("This page is not kept up to date: 16 tabs and programs follow this node already: close one of them")
	end()
	b.Shows("Connected to the cloud since", "camera")
}
