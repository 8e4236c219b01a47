package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/internal/browser"
	"github.com/edgehub-io/edgehub/test/internal/rawclient"
)

// TestOwnersPageWithoutTheCloud queues an upgrade while the cloud is away, keeps the next one on hold, and
// goes back.
func TestOwnersPageWithoutTheCloud(t *testing.T) {
	d := newDaemon(t, "page-offline", "node2")
	d.release("two", megabyte)
	d.pull()
	d.awaitReady()
	d.awaitCondition()
	tab := d.openPage()
	tab.ShowsIn("app", "The images are here")

	d.cut("refused")
	tab.Shows("Offline since ")
	tab.Press("app", "Upgrade when the cloud is back")
	tab.ShowsIn("app", "Upgrade waits for the cloud")
	d.listed(tab, "Upgrade waits for the cloud")
	answers(t, d.pod, "v1")
	giveBack(t, d.node)
	tab.Shows("Connected to the cloud since ")
	d.listed(tab, "Upgrade done ")
	d.pod = readyPodOn(t, d.ns, d.node.Name(), d.pod.UID)
	answers(t, d.pod, "two")
	tab.LacksIn("app", "Update ready")
	image, revision := d.image, d.revision

	d.release("three", megabyte)
	tab.Press("app", "Not now …")
	tab.Until("no field for the reason", `Boolean(document.querySelector('dialog[open] [name=reason]'))`)
	tab.Do(chromedp.Evaluate[chromedp.Void](`document.querySelector('dialog [name=reason]').focus()`), chromedp.KeyEvent("unloading"))
	tab.Press("", "Put on hold")
	tab.ShowsIn("app", "On hold until ")
	tab.ShowsIn("app", ": unloading")
	d.awaitHold("unloading")
	tab.LacksIn("app", "the cloud does not know yet")
	d.post(api.UpgradePath(d.ns, d.pod.Name), http.StatusConflict, "on hold until ")
	tab.Press("app", "End the hold")
	tab.LacksIn("app", "On hold")
	d.awaitHold("")

	tab.Press("app", "Download")
	tab.Press("app", "Upgrade now") // once the images are there
	d.pod = readyPodOn(t, d.ns, d.node.Name(), d.pod.UID)
	answers(t, d.pod, "three")
	tab.ShowsIn("app", "Upgraded: the new version runs since ")

	tab.Press("app", "Go back …")
	tab.Shows("Take app back to page-offline:two?")
	tab.Press("", "Go back")
	answers(t, d.pod, "two")
	d.awaitRolledBack(image, revision)
	d.listed(tab, "Rollback done ")
	tab.ShowsIn("app", "page-offline:two")
	tab.ShowsIn("app", "Running")
	tab.ShowsIn("app", "Update ready page-offline:three")
}

// openPage opens the owner's page of the daemon's node in Chromium, with a link as `edgehubctl web` prints it.
// The daemon's is the only app of that name there.
func (d *daemon) openPage() *browser.Tab {
	d.t.Helper()
	eventually(d.t, "the apps of earlier tests are gone from "+d.node.Name(), d.othersOnNode)
	code, body := rawclient.Ask(d.t.Context(), http.MethodPost, d.node.APIURL()+api.WebCodes)
	var link api.Code
	if err := json.Unmarshal([]byte(body), &link); code != http.StatusOK || err != nil {
		d.t.Fatalf("POST %s: %d %s", api.WebCodes, code, body)
	}
	chromium, stop, err := browser.Start()
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(stop)
	tab := chromium.Open(d.t, d.node.APIURL()+api.Page+"#code="+link.Code, browser.Settings{})
	tab.Shows("Connected to the cloud since ")
	return tab
}

// othersOnNode returns the pods of the node that the page would show under the daemon's name.
func (d *daemon) othersOnNode(ctx context.Context) string {
	pods, err := podsOf(ctx, d.node)
	if err != nil {
		return err.Error()
	}
	var others []string
	for i := range pods.Items {
		if pod := &pods.Items[i]; pod.UID != d.pod.UID && pod.Labels["app"] == "app" {
			others = append(others, pod.Namespace+"/"+pod.Name)
		}
	}
	return strings.Join(others, ", ")
}

// listed waits until the page's list of upgrades has one of the daemon's pod, with this text.
func (d *daemon) listed(tab *browser.Tab, text string) {
	d.t.Helper()
	line := fmt.Sprintf("%s/%s: %s", d.ns, d.pod.Name, text)
	tab.Until("no "+line+" in the list of upgrades", `[...document.querySelectorAll('section')].some((s) =>
		s.querySelector('h2')?.textContent === 'Upgrades' && s.innerText.includes(`+browser.Quote(line)+`))`)
}
