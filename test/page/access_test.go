package page

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/internal/browser"
)

// The whole of it, without a mouse.
func TestItIsUsedByKeyboardAlone(t *testing.T) {
	hub, b := one(t, camera())
	b.Keys(kb.Tab)
	if text := browser.Get[string](b, `document.activeElement.textContent`); text != "To the apps" {
		t.Errorf("the first Tab goes to %q, want the link to the apps", text)
	}
	b.Keys(kb.Enter)
	b.TabTo("Download")
	if outline := browser.Get[string](b, `getComputedStyle(document.activeElement).outlineStyle`); outline != "solid" {
		t.Errorf("the focus is not visible: outline %s", outline)
	}
	b.Keys(kb.Enter)
	hub.wantSent("POST " + cameraPath + "imagepull")

	// The button goes, and the focus stays at the app.
	hub.update(func() { hub.apps[0] = pulling(camera(), 5*mib, 40*mib) })
	b.ShowsIn("camera", "5 MiB of 40 MiB")
	b.Until("the focus has left the card", `document.activeElement === `+browser.Card("camera"))

	// A dialog gives the focus back, also if the card has changed meanwhile, or the button is gone.
	const noDialog = `!document.querySelector('dialog') && `
	later := func() {
		b.TabTo("Later …")
		b.Keys(kb.Enter)
		b.Until("the dialog has no focus", `document.querySelector('dialog')?.contains(document.activeElement)`)
	}
	later()
	hub.update(func() { hub.apps[0] = here(camera()) })
	b.ShowsIn("camera", "The images are here")
	b.Keys(kb.Escape)
	b.Until("the focus is not back", noDialog+`document.activeElement.textContent === 'Later …'`)
	later()
	hub.update(func() { hub.apps[0].Hold = &api.Hold{Until: now.Add(time.Hour)} })
	b.ShowsIn("camera", "On hold")
	b.Keys(kb.Escape)
	b.Until("the focus is not at the card", noDialog+`document.activeElement === `+browser.Card("camera"))
	hub.update(func() { hub.apps[0].Hold = nil })
	later()
	b.TabTo("Schedule")
	b.Keys(kb.Enter)
	hub.wantSent("POST " + cameraPath + "upgrade?window=02%3A00-05%3A00")
	b.Until("the dialog is still open", `!document.querySelector('dialog')`)

	b.TabTo("Details and history")
	b.Keys(kb.Enter)
	b.ShowsIn("camera", "Versions on this node")
	// Updates leave the focus where it is.
	hub.update(func() { hub.apps = append([]api.App{here(app2("barrier", "barrier:1", "barrier:2"))}, hub.apps...) })
	b.Shows("barrier")
	if text := browser.Get[string](b, `document.activeElement.textContent`); text != "Details and history" {
		t.Errorf("after an update the focus is at %q", text)
	}
	b.TabTo("Download support bundle")
	b.Keys(kb.Enter)
	hub.wantSent("GET bundle")
}

// Each action of the page: Tab to its buttons, Enter on each.
func TestEachActionIsDoneByKeyboard(t *testing.T) {
	held := here(camera())
	held.Hold = &api.Hold{Until: now.Add(time.Hour)}
	const upgrade = "POST " + cameraPath + "upgrade"
	for name, do := range map[string]struct {
		app   api.App
		press []string
		want  string
	}{
		"pull":            {camera(), []string{"Download"}, "POST " + cameraPath + "imagepull"},
		"pull again":      {pullFailed(camera()), []string{"Try again"}, "POST " + cameraPath + "imagepull"},
		"cancel a pull":   {pulling(camera(), 1, 2), []string{"Cancel download"}, "DELETE " + cameraPath + "imagepull"},
		"upgrade":         {here(camera()), []string{"Upgrade now"}, upgrade},
		"without images":  {camera(), []string{"Upgrade without downloading first …", "Upgrade now"}, upgrade},
		"tonight":         {here(camera()), []string{"Later …", "Schedule"}, upgrade + "?window=02%3A00-05%3A00"},
		"scheduled, now":  {waiting(here(camera()), api.Scheduled, ""), []string{"Upgrade now"}, upgrade},
		"cancel":          {waiting(here(camera()), api.WaitingForCloud, ""), []string{"Cancel"}, "DELETE " + cameraPath + "upgrade"},
		"not now":         {here(camera()), []string{"Not now …", "Put on hold"}, "POST " + cameraPath + "hold?for=2h"},
		"end a hold":      {held, []string{"End the hold"}, "DELETE " + cameraPath + "hold"},
		"go back":         {camera(), []string{"Go back …", "Go back"}, "POST " + cameraPath + "rollback"},
		"support bundle":  {camera(), []string{"Download support bundle"}, "GET bundle"},
		"leave a dialog":  {camera(), []string{"Go back …", "Close", "Download"}, "POST " + cameraPath + "imagepull"},
		"switch language": {camera(), []string{"中文", "下载"}, "POST " + cameraPath + "imagepull"},
	} {
		t.Run(name, func(t *testing.T) {
			hub, b := one(t, do.app)
			for _, label := range do.press {
				b.TabTo(label)
				b.Keys(kb.Enter)
			}
			hub.wantSent(do.want)
		})
	}
}

func TestTheThemeAndATimeAreChosenByKeyboard(t *testing.T) {
	hub, b := one(t, here(camera()))
	b.Keys(kb.Tab)
	for !browser.Get[bool](b, `document.activeElement.localName === 'select'`) {
		b.Keys(kb.Tab)
	}
	b.Keys(kb.ArrowDown, kb.ArrowDown) // auto, light, dark
	b.Until("it is not dark", `document.documentElement.dataset.theme === 'dark'`)

	b.TabTo("Later …")
	b.Keys(kb.Enter)
	b.Until("no dialog", `document.querySelector('dialog')?.contains(document.activeElement)`)
	for !browser.Get[bool](b, `document.activeElement.value === 'window'`) {
		b.Keys(kb.Tab)
	}
	b.Keys(kb.ArrowDown) // the other choice
	at := browser.Get[string](b, `encodeURIComponent(new Date(document.querySelector('dialog input[name=at]').value).toISOString().replace('.000', ''))`)
	b.TabTo("Schedule")
	b.Keys(kb.Enter)
	hub.wantSent("POST " + cameraPath + "upgrade?at=" + at)
}

// axe-core is the one of package-lock.json: make test-page installs it.
func axe(t *testing.T) string {
	t.Helper()
	source, err := os.ReadFile("node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Fatalf("%v: run npm ci in test/page", err)
	}
	return string(source)
}

func TestAxeFindsNothing(t *testing.T) {
	source := axe(t)
	check := func(t *testing.T, b *browser.Tab, what string) {
		t.Helper()
		b.Do(chromedp.Evaluate[chromedp.Void](source + "; null"))
		report := browser.Get[string](b, `axe.run(document, { resultTypes: ['violations'] }).then((r) => JSON.stringify({
			violations: r.violations.map((v) => v.id + ': ' + v.help + ': ' + v.nodes.map((n) => n.html + ' ' + n.failureSummary).join('; ')), passes: r.passes.length }))`)
		var result struct {
			Violations []string
			Passes     int
		}
		if err := json.Unmarshal([]byte(report), &result); err != nil || result.Passes < 10 {
			t.Fatalf("axe: %v: %s", err, report)
		}
		t.Logf("%s: %d rules pass, %d violations", what, result.Passes, len(result.Violations))
		for _, v := range result.Violations {
			t.Errorf("%s: %s", what, v)
		}
	}
	for name, with := range map[string]browser.Settings{
		"English, light": {}, "Chinese, dark": {Language: "zh-CN", Dark: true}, "English, phone, dark": {Dark: true, Width: 390},
	} {
		t.Run(name, func(t *testing.T) {
			hub := newFakeHub(t).full()
			b := chromium.Open(t, hub.url(), with)
			b.Refused = true
			b.Until("no apps", `document.querySelectorAll('article').length > 3`)
			check(t, b, "read-only")
			b.Do(chromedp.Evaluate[chromedp.Void](`location.hash = 'code=` + hub.code() + `'`))
			b.Until("no buttons", `document.querySelectorAll('article button').length > 3`)
			hub.update(func() {
				hub.apps[2] = pullFailed(hub.apps[2])
				hub.apps = append(hub.apps, waiting(here(app2("door", "door:1", "door:2")), api.Dropped, "there is a newer revision"))
				hub.node.Time = now.AddDate(0, 0, -1)
			})
			hub.refuse["POST upgrade"] = reply{409, "no"}
			b.Do(chromedp.Evaluate[chromedp.Void](`document.querySelector('article .primary').click(); document.querySelectorAll('details').forEach((d) => { d.open = true; })`))
			b.Until("no history or no error", `Boolean(document.querySelector('.history li') && document.querySelector('[role=alert]'))`)
			check(t, b, "with a token")
			for i := range 3 { // later, hold, rollback
				b.Do(chromedp.Evaluate[chromedp.Void](`[...document.querySelectorAll('article')][0].querySelectorAll('.actions button')[` + string(rune('1'+i)) + `].click()`))
				b.Until("no dialog", `Boolean(document.querySelector('dialog[open]'))`)
				check(t, b, "dialog "+browser.Get[string](b, `document.querySelector('dialog h2').textContent`))
				b.Keys(kb.Escape)
				b.Until("the dialog is still open", `!document.querySelector('dialog')`)
			}
			hub.stop()
			b.Until("it is not stale", `Boolean(document.querySelector('.status.bad'))`)
			check(t, b, "without a hub")
		})
	}
}
