package page

import (
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/internal/browser"
)

// TestScreenshots writes the pictures of the docs, if SCREENSHOTS is their folder: make screenshots.
func TestScreenshots(t *testing.T) {
	offline := func(hub *fakeHub) {
		hub.node.Online, hub.node.Since = false, now.Add(-95*time.Minute)
		hub.apps[0] = waiting(hub.apps[0], api.WaitingForCloud, "")
		hub.upgrades = someUpgrades(hub.apps)
	}
	pull := func(hub *fakeHub) { hub.apps = hub.apps[2:3] }
	for name, with := range map[string]struct {
		settings browser.Settings
		change   func(*fakeHub)
	}{
		"page-light":   {},
		"page-dark":    {settings: browser.Settings{Dark: true}},
		"page-zh":      {settings: browser.Settings{Language: "zh-CN"}},
		"page-phone":   {settings: browser.Settings{Width: 390, Height: 844}},
		"page-offline": {settings: browser.Settings{Height: 700}, change: offline},
		"page-pull":    {settings: browser.Settings{Width: 700, Height: 420}, change: pull},
	} {
		t.Run(name, func(t *testing.T) {
			hub := newFakeHub(t).full()
			if with.change != nil {
				hub.update(func() { with.change(hub) })
			}
			b := chromium.Open(t, hub.link(), with.settings)
			b.Until("no buttons", `Boolean(document.querySelector('article button') && document.querySelector('.events li'))`)
			b.Do(chromedp.Evaluate[chromedp.Void](`document.activeElement.blur()`))
			b.Screenshot(name)
		})
	}
}
