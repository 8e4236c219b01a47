package install

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/test/internal/poll"
)

const (
	hubURL      = "https://127.0.0.1:10268"
	openWatches = 3
)

// load is a pod's programs at work: requests at a fixed pace, each on a connection of
// its own or on one that is kept, and watches that are opened again when they end.
type load struct {
	node  *node
	token string
	stop  context.CancelFunc
	done  sync.WaitGroup

	mu       sync.Mutex
	requests int
	open     int           // watches
	watches  int           // that ended as a watch should
	slowest  time.Duration // of the requests
	wrong    []string
}

func (n *node) startLoad() *load {
	n.t.Helper()
	ctx, stop := context.WithCancel(n.t.Context())
	l := &load{node: n, token: n.podToken(), stop: stop}
	unverified := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // it is this test's hub
	kept := &http.Client{Transport: &http.Transport{DialContext: n.Dial, TLSClientConfig: unverified}}
	fresh := &http.Client{Transport: &http.Transport{DialContext: n.Dial, TLSClientConfig: unverified, DisableKeepAlives: true}}
	for _, client := range []*http.Client{kept, fresh} {
		l.done.Go(func() { l.ask(ctx, client) })
	}
	for range openWatches {
		l.done.Go(func() { l.watch(ctx, kept) })
	}
	return l
}

// podToken is one of a service account that may read pods.
func (n *node) podToken() string {
	n.t.Helper()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "load"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: "default", Namespace: "default"}},
	}
	if _, err := n.client.RbacV1().ClusterRoleBindings().Create(n.t.Context(), binding, metav1.CreateOptions{}); err != nil {
		n.t.Fatal(err)
	}
	token, err := n.client.CoreV1().ServiceAccounts("default").CreateToken(n.t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	return token.Status.Token
}

func (l *load) get(ctx context.Context, client *http.Client, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, hubURL+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+l.token)
	return client.Do(req)
}

// ask asks 25 times a second; one that is slow delays no other.
func (l *load) ask(ctx context.Context, client *http.Client) {
	tick := time.NewTicker(40 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		l.done.Go(func() {
			began := time.Now()
			res, err := l.get(context.WithoutCancel(ctx), client, "/api/v1/namespaces/default/pods")
			if err == nil {
				_, err = io.Copy(io.Discard, res.Body)
				res.Body.Close()
				if res.StatusCode != http.StatusOK {
					err = fmt.Errorf("%s", res.Status)
				}
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			l.requests++
			l.slowest = max(l.slowest, time.Since(began))
			if err != nil {
				l.wrong = append(l.wrong, fmt.Sprintf("%s GET: %v", time.Now().Format("15:04:05.000"), err))
			}
		})
	}
}

// watch keeps a watch open. It may end, but only as one that the server ends. One that was wrong is
// counted, and is the last.
func (l *load) watch(ctx context.Context, client *http.Client) {
	for ctx.Err() == nil {
		res, err := l.get(ctx, client, "/api/v1/namespaces/default/pods?watch=true")
		if err == nil && res.StatusCode != http.StatusOK {
			res.Body.Close()
			err = fmt.Errorf("%s", res.Status)
		}
		if err == nil {
			l.isOpen(+1)
			_, err = io.Copy(io.Discard, res.Body)
			res.Body.Close()
			l.isOpen(-1)
		}
		l.mu.Lock()
		switch {
		case errors.Is(err, context.Canceled):
		case err != nil:
			l.wrong = append(l.wrong, fmt.Sprintf("%s watch: %v", time.Now().Format("15:04:05.000"), err))
		default:
			l.watches++
		}
		l.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (l *load) isOpen(more int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open += more
}

// goesOn returns when a second's worth of requests more has been answered, and all watches are open.
func (l *load) goesOn() {
	l.node.t.Helper()
	state := func() (requests, open int, wrong []string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.requests, l.open, slices.Clone(l.wrong)
	}
	before, _, _ := state()
	poll.Check(l.node.t.Context(), l.node.t, "the load goes on", func(context.Context) error {
		if requests, open, wrong := state(); requests < before+50 || open < openWatches {
			return fmt.Errorf("%d requests were answered, %d watches are open; what went wrong: %v", requests-before, open, wrong)
		}
		return nil
	})
}

// end stops the load, and fails the test if a program of the pod's has seen an error.
func (l *load) end() {
	l.node.t.Helper()
	l.stop()
	l.done.Wait()
	l.node.t.Logf("%d requests, the slowest took %v; %d watches ended and were opened again", l.requests, l.slowest.Round(time.Millisecond), l.watches)
	if len(l.wrong) > 0 {
		l.node.t.Errorf("%d times a client saw an error, first: %s", len(l.wrong), l.wrong[0])
	}
	if l.watches == 0 {
		l.node.t.Error("no watch has ended: the upgrade was not tried")
	}
}
