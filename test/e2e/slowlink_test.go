package e2e

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// A satellite's line.
const (
	slowDelay = 750 * time.Millisecond // each way
	slowRate  = 125_000                // bytes a second, 1 Mbit/s
)

// TestSlowLinkIsNeverTakenForALoss reads a list over a thin line for a long time.
// Whatever else is asked waits behind it; the hub never says that the cloud is lost,
// and the list comes whole.
func TestSlowLinkIsNeverTakenForALoss(t *testing.T) {
	e := newEdge(t, "slow-link", "node3")
	length := min(env.outage, time.Minute)
	path := e.fill(int(length.Seconds()) * slowRate)
	token := adminToken(t, e.ns) // a node may not list ConfigMaps
	direct, err := list(t.Context(), env.ServerURL()+path, token)
	if err != nil {
		t.Fatal(err)
	}

	e.slowDown()
	awaitUpstream(e.t, e.node, 1)
	changed, err := metric(t.Context(), e.node, "edgehub_upstream_last_change_timestamp_seconds")
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.Stat(e.node.HubProcess().LogFile())
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	done := make(chan struct{})
	var body string
	go func() { // sets body and err
		defer close(done)
		body, err = list(t.Context(), e.node.HubURL()+path, token)
	}()
	others := 0
	for reading := true; reading; {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		// On the list's connection, behind what has been sent of it.
		if _, err := list(ctx, e.node.HubURL()+path+"/kube-root-ca.crt", token); err != nil {
			t.Errorf("another request while the list comes: %v", err)
		}
		others++
		up, metricErr := metric(ctx, e.node, "edgehub_upstream_up")
		now, nowErr := metric(ctx, e.node, "edgehub_upstream_last_change_timestamp_seconds")
		cancel()
		if failed := errors.Join(metricErr, nowErr); failed != nil || up != 1 || now != changed {
			t.Fatalf("after %v the hub says that upstream is %v, since %v, before the list it was since %v; %v", time.Since(began), up, now, changed, failed)
		}
		select {
		case <-done:
			reading = false
		default:
		}
	}
	took := time.Since(began)
	t.Logf("%d bytes took %v; %d other requests were answered meanwhile", len(body), took.Round(time.Millisecond), others)
	if err != nil || items(body) != items(direct) {
		t.Errorf("the list has %d bytes, %v; the apiserver's has %d", len(body), err, len(direct))
	}
	if took < length*9/10 {
		t.Errorf("the line is not as thin as it should be")
	}
	e.expectNoLoss(log.Size())
}

// fill makes ConfigMaps that are so many bytes as a list, and returns its path.
func (e *edge) fill(size int) string {
	e.t.Helper()
	const each = 800_000
	for i := 0; size > 0; i++ {
		random := make([]byte, min(each, size)/2) // which no gzip makes smaller than half of its hex digits
		_, _ = rand.Read(random)
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("large-%d", i)}, Data: map[string]string{"data": hex.EncodeToString(random)}}
		if _, err := env.client.CoreV1().ConfigMaps(e.ns).Create(e.t.Context(), object, metav1.CreateOptions{}); err != nil {
			e.t.Fatal(err)
		}
		size -= each
	}
	return "/api/v1/namespaces/" + e.ns + "/configmaps"
}

// list reads a path as it is, with nothing compressed, from the apiserver or from a hub.
func list(ctx context.Context, url, token string) (string, error) {
	config := rest.AnonymousClientConfig(env.AdminConfig())
	config.BearerToken = token
	config.DisableCompression = true
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return "", err
	}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	res, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %.300s", res.Status, body)
	}
	return string(body), err
}

// items are a list without what it says of itself: its version is that of all that is
// written in the cluster.
func items(list string) string {
	_, items, _ := strings.Cut(list, `"items":`)
	return items
}

// slowDown makes the node's link slow until the test ends. The hub is restarted, so
// that its connections are such as the slow line would have from the beginning.
func (e *edge) slowDown() {
	e.t.Helper()
	link := e.node.Link()
	restart := func(ctx context.Context, delay time.Duration, rate int) error {
		err := e.node.HubProcess().Stop()
		link.SetDelay(delay)
		link.SetRate(rate)
		return errors.Join(err, e.node.HubProcess().Start(ctx))
	}
	e.t.Cleanup(func() {
		if err := restart(context.Background(), 0, 0); err != nil {
			e.t.Error(err)
		}
		awaitNode(e.t, e.node, true)
	})
	if err := restart(e.t.Context(), slowDelay, slowRate); err != nil {
		e.t.Fatal(err)
	}
}

func (e *edge) expectNoLoss(offset int64) {
	e.t.Helper()
	log, err := os.ReadFile(e.node.HubProcess().LogFile())
	if err != nil {
		e.t.Fatal(err)
	}
	for line := range strings.Lines(string(log[offset:])) {
		if strings.Contains(line, "cannot be reached") {
			e.t.Errorf("the hub has logged a loss: %s", line)
		}
	}
}
