package certificate

import (
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/test/internal/audit"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// While the certificate is renewed, with itself, no request fails, and a watch does not even
// break. The renewed one can be renewed as well.
func TestACertificateIsRenewedWhileAWatchIsOpen(t *testing.T) {
	t.Parallel()
	n := newBootstrapped(t)
	n.Start()
	n.awaitOK()
	n.Stop()
	n.makeDue()
	n.remark()
	n.Start() // it asks, and nobody approves until the watch is open
	w := n.watch(n.plain())
	open, err := env.audit.Mark()
	if err != nil {
		t.Fatal(err)
	}
	stop := n.steady(n.plain(), n.plain())
	first := n.certificate()
	n.approveRenewals()
	poll.Eventually(t, "the certificate is renewed", func() bool { return n.certificate() != first })
	n.createPod("new")
	w.expect(t, "ADDED new")
	stop()
	since, err := env.audit.Since(open)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range since { // the hub's own watch is another
		if r.User.Username == n.User && r.Verb == "watch" && !strings.Contains(r.RequestURI, "sendInitialEvents") {
			t.Errorf("a watch was opened again: %v", r)
		}
	}
	if got := n.metric("edgehub_client_certificate_renewal_failures_total"); got != 0 {
		t.Errorf("%v failures", got)
	}

	n.Stop()
	n.makeDue()
	second := n.certificate()
	n.Start()
	poll.Eventually(t, "the renewed certificate is renewed", func() bool { return n.certificate() != second })
	if users := n.certificatesAskedFor(); !slices.Equal(users, []string{n.User, n.User}) {
		t.Errorf("certificates were asked for by %v", users)
	}
}

// An outage lasts longer than the certificate. The node is served from the cache all the
// time, on both ports; the first that the cloud grants the hub when it is back is another
// certificate, and then everything goes on.
func TestAnOutageLongerThanTheCertificate(t *testing.T) {
	t.Parallel()
	n := newBootstrapped(t)
	n.Start()
	n.awaitOK()
	n.Stop()
	end := time.Now().Add(life).Truncate(time.Second)
	n.replaceCertificate(end)
	n.Start()
	n.awaitOK()
	kubeletCert, kubeletKey, err := env.ClientCertUntil(end, n.User, "system:nodes")
	if err != nil {
		t.Fatal(err)
	}
	plain, kubelet := n.plain(), n.secure(kubeletCert, kubeletKey, "")
	w := n.watch(plain)
	if a := kubelet.get(t, n.podsPath()); a.code != http.StatusOK {
		t.Fatalf("kubelet's certificate: %v", a)
	}
	n.cut()
	stopPlain, stopKubelet := n.steady(n.plain()), n.steady(kubelet, n.secure(kubeletCert, kubeletKey, ""))
	poll.Eventually(t, "all certificates have expired", func() bool { return time.Now().After(end.Add(time.Second)) })
	n.createPod("meanwhile")
	stopKubelet()
	n.remark()
	n.connect()
	w.expect(t, "ADDED meanwhile")
	n.awaitOK()
	n.createPod("afterwards")
	w.expect(t, "ADDED afterwards")
	stopPlain()
	want, says := http.StatusUnauthorized, "counts only while the cloud is away"
	if os.Geteuid() == 0 { // as a program of the node's own, which kubelet is, it gets a new one with it
		want, says = http.StatusOK, "afterwards"
	}
	if a := kubelet.get(t, n.podsPath()); a.code != want || !strings.Contains(a.body, says) {
		t.Errorf("kubelet's expired certificate, online: %v", a)
	}
	all := n.asked(func(r audit.Request) bool {
		return r.ResponseStatus.Code/100 == 2 && (r.User.Username == n.User || strings.HasPrefix(r.User.Username, "system:bootstrap:"))
	})
	// Others' hubs bootstrap as well; of this one's node nothing comes before.
	first := slices.IndexFunc(all, func(r audit.Request) bool { return r.User.Username == n.User })
	renewal := slices.IndexFunc(all, func(r audit.Request) bool {
		return r.ObjectRef.Resource == "certificatesigningrequests" && r.Verb == "create" && r.User.Username == n.bootstrapUser()
	})
	if renewal < 0 || first >= 0 && first < renewal {
		t.Errorf("the renewal is request %d, the node's first is %d: %+v", renewal, first, all)
	}
}
