package autonomy

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// expose makes a Service of its pods, and returns when its endpoints are ready.
func (a *app) expose(t *testing.T) {
	t.Helper()
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: a.name}}
	service.Spec.Selector, service.Spec.Ports = map[string]string{"app": a.name}, []corev1.ServicePort{{Port: 80}}
	if _, err := env.client.CoreV1().Services("default").Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	a.awaitEndpoints(t, true)
}

// endpoints selects the EndpointSlice of its Service.
func (a *app) endpoints() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + a.name}
}

func (a *app) awaitEndpoints(t *testing.T, ready bool) {
	t.Helper()
	poll.Check(t.Context(), t, fmt.Sprintf("%s: endpoints of its Service are ready: %v", a.name, ready), func(ctx context.Context) error {
		list, err := env.client.DiscoveryV1().EndpointSlices("default").List(ctx, a.endpoints())
		if err != nil {
			return err
		}
		if len(list.Items) != 1 || len(list.Items[0].Endpoints) != 1 || serves(&list.Items[0]) != ready {
			return fmt.Errorf("they are %+v", list.Items)
		}
		return nil
	})
}

// serves reports whether a slice has endpoints that are ready.
func serves(slice *discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool { return e.Conditions.Ready != nil && *e.Conditions.Ready })
}

// followReturn returns a function that waits until the cloud has seen the first heartbeats of a node, and an endpoint of the
// Service as ready, and logs how long after a time each was.
func (a *app) followReturn(t *testing.T, node string) func(time.Time) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), poll.Patience)
	t.Cleanup(cancel)
	seen := map[string]<-chan time.Time{}
	follow := func(what string, w watch.Interface, err error, is func(watch.Event) bool) {
		if err != nil {
			t.Fatal(err)
		}
		at := make(chan time.Time, 1) // one result
		seen[what] = at
		go func() {
			defer close(at)
			if _, err := watchtools.UntilWithoutRetry(ctx, w, func(e watch.Event) (bool, error) { return is(e), nil }); err == nil {
				at <- time.Now()
			}
		}()
	}
	named := metav1.ListOptions{FieldSelector: "metadata.name=" + node}
	w, err := env.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Watch(ctx, named)
	follow("the node's Lease is renewed", w, err, func(e watch.Event) bool { return e.Type == watch.Modified })
	w, err = env.client.CoreV1().Nodes().Watch(ctx, named)
	follow("the node is Ready", w, err, func(e watch.Event) bool {
		n, ok := e.Object.(*corev1.Node)
		return ok && slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
	})
	w, err = env.client.DiscoveryV1().EndpointSlices("default").Watch(ctx, a.endpoints())
	follow("an endpoint of "+a.name+" is ready", w, err, func(e watch.Event) bool {
		slice, ok := e.Object.(*discoveryv1.EndpointSlice)
		return ok && serves(slice)
	})
	return func(returned time.Time) {
		t.Helper()
		for what, at := range seen {
			when, ok := <-at
			if !ok {
				t.Fatalf("not within %s: %s", poll.Patience, what)
			}
			t.Logf("%s %v after the return", what, when.Sub(returned).Round(10*time.Millisecond))
		}
	}
}
