package main

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/test/cluster/link"
	"github.com/edgehub-io/edgehub/test/internal/fakeapiserver"
)

const (
	fleet = 100
	// awayFor is longer than the hubs need to notice, and than they wait for each other
	// when they come back.
	awayFor = 4 * time.Second
)

// watchedBy are what each hub's clients watch.
func watchedBy(node string) []string {
	return []string{
		"/api/v1/pods?fieldSelector=spec.nodeName%3D" + node,
		"/api/v1/services",
		"/apis/discovery.k8s.io/v1/endpointslices",
		"/api/v1/namespaces/a/configmaps?fieldSelector=metadata.name%3Dn-1",
		"/api/v1/namespaces/a/configmaps?fieldSelector=metadata.name%3Dn-2",
	}
}

// reconnect takes the cloud from a fleet of hubs and gives it back, while the
// apiserver still has all versions and when it has not, and counts what it is asked.
func (b *bench) reconnect(ctx context.Context) (err error) {
	cloud := fakeapiserver.New()
	cloud.Bookmarks = time.Second
	fillCloud(cloud)
	server := httptest.NewUnstartedServer(cloud)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	l, err := link.Listen("127.0.0.1:0", server.Listener.Addr().String())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	kubeconfig, err := b.writeKubeconfig("https://"+l.Addr(), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	if err != nil {
		return err
	}
	watching, leave := context.WithCancel(ctx)
	defer leave()
	hubs, err := b.startFleet(ctx, watching, l.Addr(), kubeconfig)
	defer func() {
		leave()
		for _, e := range hubs {
			err = errors.Join(err, e.close())
		}
	}()
	if err != nil {
		return err
	}
	var memory []float64
	for _, e := range hubs {
		n, err := e.resident()
		if err != nil {
			return err
		}
		memory = append(memory, megabytes(n))
	}
	views := len(watchedBy("")) + 1 // the hub itself watches the node's pods
	b.showDetail(fmt.Sprintf("resident, each of %d hubs with %d watches", fleet, views), "MB", median(memory))

	resumed := newReconnects("still there", 0)
	expired := newReconnects("forgotten", float64(fleet*views))
	for range min(b.rounds, 3) {
		for _, r := range []*reconnects{resumed, expired} {
			asked, took, err := outage(ctx, cloud, l, fleet*views, r == expired)
			if err != nil {
				return err
			}
			r.add(asked, took)
		}
	}
	for _, m := range slices.Concat(resumed.measures(), expired.measures()) {
		b.show(m.row())
	}
	return nil
}

// reconnects are the outages of one kind, and what each of them cost the apiserver.
type reconnects struct{ lists, watches, versions, took bounded }

func newReconnects(versions string, limit float64) *reconnects {
	return &reconnects{
		lists:    bounded{name: fmt.Sprintf("LISTs of %d hubs, versions %s", fleet, versions), limit: &limit},
		watches:  bounded{name: "watches, versions " + versions},
		versions: bounded{name: "LISTs of one object, versions " + versions},
		took:     bounded{name: "until the last request, versions " + versions, unit: "s"},
	}
}

func (r *reconnects) add(a asked, took time.Duration) {
	r.lists.values = append(r.lists.values, float64(a.lists))
	r.watches.values = append(r.watches.values, float64(a.watches))
	r.versions.values = append(r.versions.values, float64(a.versions))
	r.took.values = append(r.took.values, took.Round(10*time.Millisecond).Seconds())
}

func (r *reconnects) measures() []*bounded {
	return []*bounded{&r.lists, &r.watches, &r.versions, &r.took}
}

// asked is what has reached the apiserver.
type asked struct{ lists, watches, versions int }

func askedOf(cloud *fakeapiserver.Server) asked {
	return asked{cloud.Requests("list"), cloud.Requests("watch"), cloud.Requests("version")}
}

// outage cuts the link, changes something, and lifts it. It returns what the cloud was
// asked until it was asked no more, and how long that took.
func outage(ctx context.Context, cloud *fakeapiserver.Server, l *link.Link, watches int, forget bool) (asked, time.Duration, error) {
	if err := l.Refuse(); err != nil {
		return asked{}, 0, err
	}
	l.Reset()
	if err := pause(ctx, awayFor); err != nil {
		return asked{}, 0, err
	}
	fillCloud(cloud)
	if forget {
		cloud.Forget()
	}
	before := askedOf(cloud)
	if err := l.Up(); err != nil {
		return asked{}, 0, err
	}
	began, settled := time.Now(), time.Now()
	for last := before; time.Since(settled) < awayFor; {
		if now := askedOf(cloud); now != last {
			last, settled = now, time.Now()
		}
		if time.Since(began) > 2*time.Minute {
			return asked{}, 0, errors.New("the hubs do not come to rest")
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return asked{}, 0, err
		}
	}
	after := askedOf(cloud)
	sum := asked{after.lists - before.lists, after.watches - before.watches, after.versions - before.versions}
	if sum.watches < watches {
		return asked{}, 0, fmt.Errorf("%d watches were opened again, of %d", sum.watches, watches)
	}
	return sum, settled.Sub(began), nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// startFleet starts the hubs, and their clients, which read until watching ends. With
// an error it returns those that were started, too.
func (b *bench) startFleet(ctx, watching context.Context, apiserver, kubeconfig string) ([]*edge, error) {
	hubs := make([]*edge, 0, fleet)
	for i := range fleet {
		e, err := b.newEdge(apiserver, kubeconfig, fmt.Sprint("fleet-", i))
		if err != nil {
			return hubs, err
		}
		hubs = append(hubs, e)
		e.args = append(e.args, "--server-addr=https://"+apiserver) // one link for all
	}
	g := new(errgroup.Group)
	g.SetLimit(8)
	for i, e := range hubs {
		g.Go(func() error {
			if err := e.start(ctx); err != nil {
				return err
			}
			for _, path := range watchedBy(fmt.Sprint("node-", i)) {
				if err := e.follow(watching, path, ""); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return hubs, g.Wait()
}

func (b *bench) writeKubeconfig(server string, ca []byte) (string, error) {
	caFile, file := filepath.Join(b.dir, "fleet.crt"), filepath.Join(b.dir, "fleet.kubeconfig")
	if err := os.WriteFile(caFile, ca, 0o600); err != nil {
		return "", err
	}
	return file, os.WriteFile(file, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: cloud, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: node, user: {token: node}}]
contexts: [{name: cloud, context: {cluster: cloud, user: node}}]
current-context: cloud
`, server, caFile), 0o600)
}

// fillCloud makes or changes what the hubs watch.
func fillCloud(cloud *fakeapiserver.Server) {
	about := func(i int) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "a", Name: fmt.Sprint("n-", i), Annotations: map[string]string{"written-at": time.Now().String()}}
	}
	for i := range 5 * fleet {
		cloud.Put("pods", &corev1.Pod{ObjectMeta: about(i), Spec: corev1.PodSpec{NodeName: fmt.Sprint("node-", i%fleet)}})
	}
	for i := range 50 {
		cloud.Put("services", &corev1.Service{ObjectMeta: about(i)})
		cloud.Put("endpointslices", &discoveryv1.EndpointSlice{ObjectMeta: about(i), AddressType: discoveryv1.AddressTypeIPv4})
		cloud.Put("configmaps", &corev1.ConfigMap{ObjectMeta: about(i)})
	}
}
