// Package browser drives Chromium as the user of a page does.
package browser

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// Patience is for a busy machine; nothing takes as long by itself.
const Patience = 5 * time.Minute

// A Browser is a Chromium that runs.
type Browser struct{ ctx context.Context }

// Start starts Chromium, without a sandbox: root has none in a container. It opens no page but those of
// the tests, on loopback. The caller calls stop.
func Start() (b *Browser, stop func(), err error) {
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WSURLReadTimeout(Patience),
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("no-proxy-server", true),
	)
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	if err := chromedp.Do(ctx); err != nil {
		end()
		return nil, nil, fmt.Errorf("start Chromium, of the package chromium: %w", err)
	}
	return &Browser{ctx}, func() { cancel(); end() }, nil
}

// Settings are those of a user.
type Settings struct {
	Language string // of Accept-Language; en-GB if empty
	Dark     bool
	Width    int64 // in CSS pixels; 1200 if 0
	Height   int64 // in CSS pixels; 900 if 0
}

// Tab is a tab of the browser. Its methods end the test if something takes longer than Patience.
type Tab struct {
	// Context is for chromedp.
	Context context.Context
	t       *testing.T

	// Refused is set where the hub, or Chromium for it, refuses something, or the hub is away: Chromium then
	// shows that in the console.
	Refused bool

	mu       sync.Mutex
	messages []chromedp.ConsoleMessage // errors and warnings
}

// Open opens a page as a user with a new profile. The test fails if the console then shows an error or a warning.
func (b *Browser) Open(t *testing.T, url string, with Settings) *Tab {
	t.Helper()
	return newTab(t, b.ctx, url, with, chromedp.WithNewBrowserContext())
}

// Another opens a further tab of the same user.
func (b *Tab) Another(url string, with Settings) *Tab {
	b.t.Helper()
	return newTab(b.t, b.Context, url, with, chromedp.WithExistingBrowserContext(chromedp.FromContext(b.Context).BrowserContextID))
}

func newTab(t *testing.T, browser context.Context, url string, with Settings, option chromedp.ContextOption) *Tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser, option)
	t.Cleanup(cancel)
	b := &Tab{t: t, Context: ctx}
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	go b.listen(chromedp.Console(ctx))
	scheme := "light"
	if with.Dark {
		scheme = "dark"
	}
	width := cmp.Or(with.Width, 1200)
	Call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	Call(b, emulation.SetUserAgentOverride, emulation.SetUserAgentOverrideParams{UserAgent: "Chromium", AcceptLanguage: cmp.Or(with.Language, "en-GB")})
	Call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: cmp.Or(with.Height, 900), DeviceScaleFactor: 1, Mobile: width < 600})
	t.Cleanup(func() {
		if lines := b.Console(); len(lines) > 0 {
			t.Errorf("the console shows %q", lines)
		}
	})
	b.Do(chromedp.Navigate(url))
	return b
}

func (b *Tab) listen(messages iter.Seq2[chromedp.ConsoleMessage, error]) {
	for m, err := range messages {
		if err != nil {
			return
		}
		if m.Type == chromedp.ConsoleError || m.Type == chromedp.ConsoleWarning || m.IsException() {
			b.mu.Lock()
			b.messages = append(b.messages, m)
			b.mu.Unlock()
		}
	}
}

// Console returns the errors and warnings of the console.
func (b *Tab) Console() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var lines []string
	for _, m := range b.messages {
		line := fmt.Sprintf("%s %s %s", m.Source, m, m.URL)
		refusal := m.Source == "network" || strings.Contains(line, "Content Security Policy") || strings.Contains(line, "blocked by CORS policy")
		if !b.Refused || !refusal {
			lines = append(lines, line)
		}
	}
	return lines
}

// Do does steps of chromedp.
func (b *Tab) Do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.Context, Patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatalf("%v; the page shows:\n%s", err, b.Text())
	}
}

// Call sends a command of the DevTools protocol.
func Call[P, R any](b *Tab, command cdp.Command[P, R], params P) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.Context, Patience)
	defer cancel()
	if _, err := chromedp.Call(ctx, command, params); err != nil {
		b.t.Fatalf("%s: %v", command.Method, err)
	}
}

// Get returns the value of JavaScript, which may be a promise.
func Get[T any](b *Tab, script string) T {
	b.t.Helper()
	value, err := evaluate[T](b, script)
	if err != nil {
		b.t.Fatalf("%s: %v", script, err)
	}
	return value
}

func evaluate[T any](b *Tab, script string) (T, error) {
	ctx, cancel := context.WithTimeout(b.Context, Patience)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
}

// Until waits until JavaScript is true. Poll of chromedp cannot: it needs a page that permits eval.
func (b *Tab) Until(what, script string) {
	b.t.Helper()
	var last error
	if !poll.Within(Patience, func() bool {
		var holds bool
		holds, last = evaluate[bool](b, script)
		return holds
	}) {
		b.t.Fatalf("%s: %v; console: %q; the page shows:\n%s", what, last, b.Console(), b.Text())
	}
}

// Text returns the page's text, or why there is none.
func (b *Tab) Text() string {
	text, err := evaluate[string](b, `document.body.innerText`)
	if err != nil {
		return err.Error()
	}
	return text
}

// Shows waits for text on the page, wherever it is.
func (b *Tab) Shows(texts ...string) {
	b.t.Helper()
	for _, text := range texts {
		b.Until("no "+text, `document.body.innerText.includes(`+Quote(text)+`)`)
	}
}

// ShowsIn waits for text in the card of an app.
func (b *Tab) ShowsIn(app, text string) {
	b.t.Helper()
	b.Until(fmt.Sprintf("no %q in the card of %s", text, app), Card(app)+`?.innerText.includes(`+Quote(text)+`)`)
}

// LacksIn waits until text is not in the card of an app, which is there.
func (b *Tab) LacksIn(app, text string) {
	b.t.Helper()
	b.Until(fmt.Sprintf("still %q in the card of %s", text, app), Card(app)+`?.innerText.includes(`+Quote(text)+`) === false`)
}

// Lacks waits until text is not on the page.
func (b *Tab) Lacks(text string) {
	b.t.Helper()
	b.Until("still "+text, `!document.body.innerText.includes(`+Quote(text)+`)`)
}

// Card is the script of an app's card.
func Card(app string) string {
	return `[...document.querySelectorAll('article')].find((c) => c.querySelector('h3').textContent === ` + Quote(app) + `)`
}

// buttonIn is the script of a button by its text, within an element's script.
func buttonIn(where, label string) string {
	return `[...(` + where + ` ?? document.createElement('p')).querySelectorAll('button, summary')].find((b) => b.textContent === ` + Quote(label) + ` && !b.hasAttribute('aria-disabled'))`
}

// Press presses a button by its text, in the card of an app or, if that is empty, anywhere.
func (b *Tab) Press(app, label string) {
	b.t.Helper()
	where := "document"
	if app != "" {
		where = Card(app)
	}
	b.Until(fmt.Sprintf("no button %q of %q", label, app), `Boolean(`+buttonIn(where, label)+`)`)
	b.Do(chromedp.Evaluate[chromedp.Void](buttonIn(where, label) + `.click()`))
}

// Buttons returns the texts of all buttons in the card of an app.
func (b *Tab) Buttons(app string) string {
	b.t.Helper()
	return strings.Join(Get[[]string](b, `[...`+Card(app)+`.querySelectorAll('button')].map((b) => b.textContent)`), " | ")
}

// Quote returns a string of JavaScript.
func Quote(s string) string {
	data, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// Screenshot writes a picture of what the tab shows if SCREENSHOTS names a folder.
func (b *Tab) Screenshot(name string) {
	b.t.Helper()
	folder := os.Getenv("SCREENSHOTS")
	if folder == "" {
		return
	}
	picture, err := chromedp.Run(b.Context, chromedp.CaptureScreenshot())
	if err == nil {
		picture, err = withPalette(picture)
	}
	if err == nil {
		err = os.WriteFile(folder+"/"+name+".png", picture, 0o644)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// Keys presses keys, one after the other.
func (b *Tab) Keys(keys ...string) {
	b.t.Helper()
	for _, key := range keys {
		b.Do(chromedp.KeyEvent(key))
	}
}

// TabTo presses Tab until a button with this text has the focus.
func (b *Tab) TabTo(label string) {
	b.t.Helper()
	for range 100 {
		if Get[string](b, `(document.activeElement.textContent || '').trim()`) == label {
			return
		}
		b.Keys(kb.Tab)
	}
	b.t.Fatalf("Tab never comes to %q; the page shows:\n%s", label, b.Text())
}
