package binding

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/edgehub-io/edgehub/proxy/authn"
	"github.com/edgehub-io/edgehub/proxy/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cloud is what a Binding stands before. An answer takes a round trip of 10 ms.
type cloud struct {
	mu            sync.Mutex
	service, node string // UIDs; "": 404, a number: that status; "hang": no answer
	up, down      chan struct{}
	asked         int      // requests for the two objects
	sent          []string // paths of others
}

func newCloud(service, node string) *cloud {
	c := &cloud{service: service, node: node, up: make(chan struct{}), down: make(chan struct{})}
	close(c.up)
	return c
}

func (c *cloud) is(service, node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.service, c.node = service, node
}

func (c *cloud) hangs() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.service == "hang"
}

func (c *cloud) lose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.down)
	c.up = make(chan struct{})
}

func (c *cloud) back(service, node string) {
	c.is(service, node)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = make(chan struct{})
	close(c.up)
}

func (c *cloud) Lost(context.Context) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.down
}

func (c *cloud) WaitUp(ctx context.Context) error {
	c.mu.Lock()
	up := c.up
	c.mu.Unlock()
	select {
	case <-up:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *cloud) IsUndecided(context.Context) bool { return false }

func (c *cloud) RoundTrip(r *http.Request) (*http.Response, error) {
	if isClosed(c.Lost(r.Context())) {
		return nil, &upstream.UnreachableError{Attempts: []error{errors.New("refused")}}
	}
	time.Sleep(10 * time.Millisecond) //nolint:forbidigo // of synctest's clock
	if path.Base(r.URL.Path) == "kubernetes" && c.hangs() {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	uid := c.service
	switch r.URL.Path {
	case "/api/v1/nodes/n1":
		uid = c.node
	case "/api/v1/namespaces/default/services/kubernetes":
	default:
		c.sent = append(c.sent, r.URL.Path)
		return answer(http.StatusOK, "{}"), nil
	}
	c.asked++
	if authn.IdentityOf(r.Context()) != authn.Node {
		return answer(http.StatusUnauthorized, ""), nil
	}
	switch uid {
	case "":
		return answer(http.StatusNotFound, `{"kind":"Status","reason":"NotFound"}`), nil
	case "403":
		return answer(http.StatusForbidden, `{"kind":"Status","reason":"Forbidden"}`), nil
	case "503":
		return answer(http.StatusServiceUnavailable, `{}`), nil
	}
	return answer(http.StatusOK, fmt.Sprintf(`{"metadata":{"name":%q,"uid":%q}}`, path.Base(r.URL.Path), uid)), nil
}

func answer(code int, body string) *http.Response {
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body))}
}

// rig is a Binding that runs.
type rig struct {
	*Binding
	t     *testing.T
	cloud *cloud
	log   bytes.Buffer
	ended chan error
}

// start runs a Binding within a synctest bubble, until the test ends.
func start(t *testing.T, c *cloud, r Record, ca []byte) *rig {
	g := &rig{t: t, cloud: c, ended: make(chan error, 1)}
	g.Binding = New(r, Options{
		File: filepath.Join(t.TempDir(), "cluster.json"), Upstream: c, CAs: func() []byte { return ca }, Logger: slog.New(slog.NewTextHandler(&g.log, nil)),
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { g.ended <- g.Run(ctx) }()
	t.Cleanup(cancel)
	return g
}

// send sends a client's request, and returns how long that took.
func (g *rig) send() (time.Duration, error) {
	began := time.Now()
	r, err := http.NewRequestWithContext(g.t.Context(), http.MethodGet, "/api/v1/pods", http.NoBody)
	if err != nil {
		g.t.Fatal(err)
	}
	res, err := g.RoundTrip(r)
	if err == nil {
		res.Body.Close()
	}
	return time.Since(began), err
}

// end returns what Run returns.
func (g *rig) end() error {
	select {
	case err := <-g.ended:
		return err
	case <-time.After(time.Hour): // of synctest's clock
		return errors.New("not within an hour: the hub ends")
	}
}

func (g *rig) file() string {
	text, err := os.ReadFile(g.File)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		g.t.Error(err)
	}
	return string(text)
}

func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // of synctest's clock
	synctest.Wait()
}

func TestAReturnCostsOneRoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud("s1", "n1")
		g := start(t, c, Record{Node: "n1"}, nil)
		if took, err := g.send(); err != nil || took != 20*time.Millisecond {
			t.Errorf("the first request took %v: %v", took, err)
		}
		if took, err := g.send(); err != nil || took != 10*time.Millisecond || c.asked != 2 {
			t.Errorf("the second took %v: %v; asked %d times", took, err, c.asked)
		}
		c.lose()
		if g.MaySend() {
			t.Error("something may be sent while the cloud is away")
		}
		if _, err := g.send(); !isUnreachable(err) {
			t.Errorf("while the cloud is away: %v", err)
		}
		c.back("s1", "n2") // the Node was made anew
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if took, err := g.send(); err != nil || took != 20*time.Millisecond {
					t.Errorf("a request after the return took %v: %v", took, err)
				}
			})
		}
		all.Wait()
		if c.asked != 4 || !g.MaySend() || g.log.Len() > 0 || g.file() != `{"node":"n1","service":"s1","nodeUID":"n2"}` {
			t.Errorf("asked %d times, may send %v, log %q, file %s", c.asked, g.MaySend(), g.log.String(), g.file())
		}
		// Once an hour it is asked again, so that both may be made anew one after the other.
		c.is("s2", "n2")
		pass(61 * time.Minute)
		if c.asked != 6 || g.file() != `{"node":"n1","service":"s2","nodeUID":"n2"}` {
			t.Errorf("after an hour: asked %d times, file %s", c.asked, g.file())
		}
	})
}

func isUnreachable(err error) bool {
	_, ok := errors.AsType[*upstream.UnreachableError](err)
	return ok
}

func TestAnotherClusterGetsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud("s1", "n1")
		g := start(t, c, Record{Node: "n1", Service: "s1", UID: "n1"}, nil)
		pass(time.Second)
		c.lose()
		pass(time.Second)
		c.back("s2", "n2")
		for range 3 {
			if _, err := g.send(); !isUnreachable(err) || !errors.Is(err, ErrAnother) {
				t.Errorf("a request to another cluster: %v", err)
			}
		}
		if err := g.end(); !errors.Is(err, ErrAnother) {
			t.Errorf("Run: %v", err)
		}
		if len(c.sent) > 0 || g.MaySend() || g.Withheld() == "" || !strings.Contains(g.file(), `"another":true`) {
			t.Errorf("sent %v, may send %v, withheld %q, file %s", c.sent, g.MaySend(), g.Withheld(), g.file())
		}
	})
}

// A cluster that has begun anew has no Node before kubelet has registered it.
func TestADoubtfulClusterIsReadAndGetsNothingThatWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud("s2", "")
		g := start(t, c, Record{Node: "n1", Service: "s1", UID: "n1"}, nil)
		if _, err := g.send(); err != nil || len(c.sent) != 1 {
			t.Errorf("a client's request: %v, sent %v", err, c.sent)
		}
		pass(10 * time.Minute)
		if g.MaySend() || g.Withheld() != doubtful || !strings.Contains(g.file(), `"doubted":true`) || strings.Count(g.log.String(), "\n") != 1 || c.asked > 50 {
			t.Errorf("may send %v, withheld %q, file %s, asked %d times, log:\n%s", g.MaySend(), g.Withheld(), g.file(), c.asked, g.log.String())
		}
		if again := New(g.record, g.Options); again.Withheld() != doubtful {
			t.Error("a hub that starts without the cloud serves what is cached")
		}
		c.is("s2", "n2")
		if err := g.end(); !errors.Is(err, ErrAnother) {
			t.Errorf("once the Node is there, Run: %v", err)
		}
	})
}

func TestWhatIsNotKnownChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud("403", "403")
		g := start(t, c, Record{Node: "n1", Service: "s1", UID: "n1"}, nil)
		if _, err := g.send(); err != nil {
			t.Error(err)
		}
		pass(time.Minute)
		if !g.MaySend() || g.Withheld() != "" || g.file() != "" || strings.Count(g.log.String(), "\n") != 1 || c.asked != 2 {
			t.Errorf("may send %v, withheld %q, file %s, asked %d times, log:\n%s", g.MaySend(), g.Withheld(), g.file(), c.asked, g.log.String())
		}
	})
}

// An apiserver that is starting says nothing yet: what waits goes on waiting, and clients do not.
func TestAnApiserverThatIsStartingIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud("503", "503")
		g := start(t, c, Record{Node: "n1", Service: "s1", UID: "n1"}, nil)
		if _, err := g.send(); err != nil || g.MaySend() {
			t.Errorf("%v, may send %v", err, g.MaySend())
		}
		c.is("s1", "n1")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := g.AwaitMaySend(ctx); err != nil {
			t.Error(err)
		}
	})
}

// An apiserver takes requests before it has made its Service: an empty etcd is no cluster yet, and what waits goes on waiting.
func TestAnEmptyClusterIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud("", "")
		g := start(t, c, Record{Node: "n1", Service: "s1", UID: "n1"}, nil)
		pass(time.Minute)
		if g.MaySend() {
			t.Error("what waited may be sent to a cluster that has not said which it is")
		}
		c.is("s2", "n2")
		if err := g.end(); !errors.Is(err, ErrAnother) {
			t.Errorf("Run: %v", err)
		}
	})
}

// A hub that cannot write down that the cluster is another goes on, and gives it nothing: its next start would serve what is cached.
func TestAFullDiskKeepsAHubFromEnding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud("s2", "n2")
		g := start(t, c, Record{Node: "n1", Service: "s1", UID: "n1"}, nil)
		file := filepath.Dir(g.File)
		if err := os.Remove(file); err != nil { // it cannot be written, by root either
			t.Fatal(err)
		}
		pass(10 * time.Minute)
		if _, err := g.send(); !errors.Is(err, ErrAnother) || len(c.sent) > 0 || len(g.ended) > 0 {
			t.Errorf("%v, sent %v, the hub has ended %d times", err, c.sent, len(g.ended))
		}
		if err := os.Mkdir(file, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := g.end(); !errors.Is(err, ErrAnother) || !strings.Contains(g.file(), `"another":true`) {
			t.Errorf("once it can be written, Run: %v, file %s", err, g.file())
		}
	})
}

// A check that hangs keeps requests for 10 s, all together, and the hub's end for no time.
func TestACheckThatHangsIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud("hang", "n1")
		g := &rig{t: t, cloud: c}
		g.Binding = New(Record{Node: "n1"}, Options{File: filepath.Join(t.TempDir(), "cluster.json"), Upstream: c, CAs: func() []byte { return nil }, Logger: slog.New(slog.DiscardHandler)})
		for _, want := range []time.Duration{mostWait, 10 * time.Millisecond} {
			if took, err := g.send(); err != nil || took > want+10*time.Millisecond || took < want {
				t.Errorf("a request took %v: %v; want %v", took, err, want)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if g.renew(ctx); time.Since(began) > time.Second {
			t.Errorf("the hub's end took %v", time.Since(began))
		}
		pass(checkTimeout)
	})
}

func TestAStartWithTheCAOfAnotherClusterServesNothingUntilTheCloudSaysWhoItIs(t *testing.T) {
	old, _ := newCA(t)
	other, _ := newCA(t)
	for name, tt := range map[string]struct {
		service, node string
		err           error
	}{"the same after all": {"s1", "n1", nil}, "another": {"s2", "n2", ErrAnother}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCloud("", "")
				c.lose()
				g := start(t, c, Record{Node: "n1", Service: "s1", UID: "n1", CAs: KeysOf(old)}, other)
				pass(time.Hour)
				if g.Withheld() == "" || g.file() != "" {
					t.Errorf("withheld %q, file %s", g.Withheld(), g.file())
				}
				c.back(tt.service, tt.node)
				pass(time.Minute)
				if tt.err == nil {
					if g.Withheld() != "" || !g.MaySend() || !strings.Contains(g.file(), KeysOf(other)[0]) {
						t.Errorf("withheld %q, may send %v, file %s", g.Withheld(), g.MaySend(), g.file())
					}
					return
				}
				if err := g.end(); !errors.Is(err, tt.err) {
					t.Errorf("Run: %v", err)
				}
			})
		})
	}
}
