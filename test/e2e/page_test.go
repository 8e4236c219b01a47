package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/edgehub-io/edgehub/ota/nodeapi"
	"github.com/edgehub-io/edgehub/test/internal/browser"
	"github.com/edgehub-io/edgehub/test/internal/rawclient"
)

// slowly is a rate at which an image of as many bytes lasts until a test changes the rate, however slow
// the browser is.
func slowly(size int) int { return size / 500 }

// TestOwnerUpgradesOnThePage is the whole way, online: an update is offered, downloaded, and runs.
func TestOwnerUpgradesOnThePage(t *testing.T) {
	const size = 20 * megabyte
	d := newDaemon(t, "page", "node1")
	d.release("v2", size)
	tab := d.openPage()
	tab.ShowsIn("app", "Update ready page:v2")
	tab.ShowsIn("app", "19 MiB to download") // 20 MB

	env.Registry().SetRate(slowly(size))
	tab.Press("app", "Download")
	tab.ShowsIn("app", "Downloading: ")
	tab.Until("no progress", browser.Card("app")+`?.querySelector('progress')?.position > 0`)
	answers(t, d.pod, "v1")
	env.Registry().SetRate(0)
	tab.ShowsIn("app", "The images are here: about ")
	d.awaitCondition()

	env.Registry().Forget()
	thaw := d.freezeKubelet() // the pod stays until the page has shown that it goes
	tab.Press("app", "Upgrade now")
	tab.ShowsIn("app", "Upgrading")
	thaw()
	d.pod = readyPodOn(t, d.ns, d.node.Name(), d.pod.UID)
	answers(t, d.pod, "v2")
	tab.ShowsIn("app", "Upgraded: the new version runs since ")
	tab.ShowsIn("app", "Running")
	tab.LacksIn("app", "Update ready")
	d.expectNothingFetched()
}

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
	d.expect(http.MethodPost, nodeapi.UpgradePath(d.ns, d.pod.Name), http.StatusConflict, "on hold until ")
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

// TestOwnersPageShowsWhyADownloadFails has an image that does not exist yet, and a registry that is away.
func TestOwnersPageShowsWhyADownloadFails(t *testing.T) {
	d := newDaemon(t, "page-failed", "node3")
	setImage(t, d.ns, "app", env.Registry().Reference(d.ns, "v2"))
	d.awaitMark()
	tab := d.openPage()
	tab.Press("app", "Download")
	tab.ShowsIn("app", "Download failed (ImageNotFound): ")
	tab.ShowsIn("app", "What to do: this image does not exist in the registry; the admin publishes it")
	tab.Press("app", "Cancel download")
	pushApp(t, d.ns, "v2", megabyte)
	tab.Press("app", "Download")
	tab.ShowsIn("app", "The images are here")

	d.release("v3", megabyte)
	t.Cleanup(func() {
		if err := env.Registry().Up(); err != nil {
			t.Error(err)
		}
	})
	if err := env.Registry().Down(); err != nil {
		t.Fatal(err)
	}
	tab.Press("app", "Download")
	tab.ShowsIn("app", "Download failed (RegistryUnreachable): ")
	tab.ShowsIn("app", "What to do: check the node’s connection to the registry")
	tab.ShowsIn("app", "Next attempt at ")
	tab.Press("app", "Try again")
	tab.ShowsIn("app", "Download failed (RegistryUnreachable): ")
	if err := env.Registry().Up(); err != nil {
		t.Fatal(err)
	}
	tab.ShowsIn("app", "The images are here") // by itself
	answers(t, d.pod, "v1")
}

// TestOwnersPageGoesOn reloads one of two tabs, and restarts the hub, while images are downloaded.
func TestOwnersPageGoesOn(t *testing.T) {
	const size = 20 * megabyte
	d := newDaemon(t, "page-goes-on", "node1")
	d.release("v2", size)
	first := d.openPage()
	second := first.Another(d.node.APIURL()+nodeapi.Page, browser.Settings{})
	first.Refused, second.Refused = true, true // while there is no hub
	tabs := []*browser.Tab{first, second}
	all := func(text string) {
		t.Helper()
		for _, tab := range tabs {
			tab.ShowsIn("app", text)
		}
	}
	all("Update ready")

	env.Registry().SetRate(slowly(size))
	first.Press("app", "Download")
	all("Downloading: ")
	first.Do(chromedp.Reload())
	all("Downloading: ")

	if err := d.node.HubProcess().Kill(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.node.HubProcess().Start(context.Background()) }) // fails if it runs
	for _, tab := range tabs {
		tab.Shows("The hub does not answer since ")
	}
	if err := d.node.HubProcess().Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitUpstream(t, d.node, 1)
	for _, tab := range tabs {
		tab.Shows("Connected to the cloud since ")
	}
	all("Downloading: ")
	env.Registry().SetRate(0)
	all("The images are here")

	// The second tab, too, has the token of the first, and the hub has it after its restart.
	second.Press("app", "Upgrade now")
	d.pod = readyPodOn(t, d.ns, d.node.Name(), d.pod.UID)
	answers(t, d.pod, "v2")
	all("Upgraded: the new version runs since ")
	for _, tab := range tabs {
		tab.LacksIn("app", "Update ready")
	}
}

// openPage opens the owner's page of the daemon's node in Chromium, with a link as `edgehubctl web` prints it.
// The daemon's is the only app of that name there.
func (d *daemon) openPage() *browser.Tab {
	d.t.Helper()
	eventually(d.t, "the apps of earlier tests are gone from "+d.node.Name(), d.othersOnNode)
	code, body := rawclient.Ask(d.t.Context(), http.MethodPost, d.node.APIURL()+nodeapi.WebCodes)
	var link nodeapi.Code
	if err := json.Unmarshal([]byte(body), &link); code != http.StatusOK || err != nil {
		d.t.Fatalf("POST %s: %d %s", nodeapi.WebCodes, code, body)
	}
	chromium, stop, err := browser.Start()
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(stop)
	tab := chromium.Open(d.t, d.node.APIURL()+nodeapi.Page+"#code="+link.Code, browser.Settings{})
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

// freezeKubelet stops the node's kubelet where it is, until thaw or the end of the test.
func (d *daemon) freezeKubelet() (thaw func()) {
	d.t.Helper()
	thaw = func() {
		if err := d.node.KubeletProcess().Cont(); err != nil {
			d.t.Error(err)
		}
	}
	d.t.Cleanup(thaw)
	if err := d.node.KubeletProcess().Freeze(); err != nil {
		d.t.Fatal(err)
	}
	return thaw
}
