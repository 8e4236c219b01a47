package cache_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/edgehub-io/edgehub/test/cluster/link"
	"github.com/edgehub-io/edgehub/test/internal/fakeapiserver"
	"github.com/edgehub-io/edgehub/test/internal/freeport"
	"github.com/edgehub-io/edgehub/test/internal/hubproc"
)

const (
	nodeName = "node1"
	// startTimeout is how long a hub may take until it serves, whatever its files are
	// like: far longer than on any machine, and only spent when something is wrong.
	startTimeout = 2 * time.Minute
	// diskSize is that of the small disk, in bytes: what the cache of a round fits in.
	diskSize = 24 << 20
)

// world is one hub with its apiserver, its disk and its clients.
type world struct {
	t      *testing.T
	binary string
	rand   *rand.Rand // of the player; others have their own, made from it
	total  *tally
	views  []*view
	// written is the version from which on all views are on disk; 0: not known.
	written int

	cloud *fakeapiserver.Server
	link  *link.Link
	root  string // the hub's --root-dir, on a disk of its own as root
	own   bool   // it is on a disk of its own
	args  []string
	proxy string // URL
	api   string // URL

	hub    *exec.Cmd // nil while it does not run
	gone   <-chan struct{}
	output *os.File
}

func newWorld(t *testing.T, binary string, seed int, total *tally) *world {
	t.Helper()
	w := &world{t: t, binary: binary, rand: rand.New(rand.NewPCG(uint64(seed), 0)), total: total, views: newViews(), cloud: fakeapiserver.New()}
	w.cloud.Bookmarks = 100 * time.Millisecond
	server := httptest.NewUnstartedServer(w.cloud)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	var err error
	if w.link, err = link.Listen(freeport.Address(t), server.Listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.link.Close() })

	dir := t.TempDir()
	w.root = filepath.Join(dir, "hub")
	w.mountDisk()
	config := filepath.Join(dir, "kubeconfig")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	w.write(filepath.Join(dir, "ca.crt"), string(ca))
	w.write(config, fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: cloud, cluster: {server: "https://%s", certificate-authority: %q}}]
users: [{name: node, user: {token: node-token}}]
contexts: [{name: cloud, context: {cluster: cloud, user: node}}]
current-context: cloud
`, w.link.Addr(), filepath.Join(dir, "ca.crt")))
	if w.output, err = os.Create(filepath.Join(dir, "hub.log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.end)
	proxy, api := strconv.Itoa(freeport.On127(t)), strconv.Itoa(freeport.On127(t))
	w.proxy, w.api = "http://127.0.0.1:"+proxy, "http://127.0.0.1:"+api
	w.args = []string{"--node-name=" + nodeName, "--kubeconfig=" + config, "--root-dir=" + w.root,
		"--proxy-port=" + proxy, "--serve-port=" + api, "--proxy-secure-port=0"}
	return w
}

// mountDisk makes the hub's folder, on a small disk that no one else fills. Without
// root it is a plain folder.
func (w *world) mountDisk() {
	w.t.Helper()
	if err := os.Mkdir(w.root, 0o700); err != nil {
		w.t.Fatal(err)
	}
	if w.own = os.Getenv(inside) != ""; !w.own {
		return
	}
	if err := unix.Mount("tmpfs", w.root, "tmpfs", 0, fmt.Sprintf("size=%d", diskSize)); err != nil {
		w.t.Fatalf("mount a small disk: %v", err)
	}
	w.t.Cleanup(func() {
		if err := unix.Unmount(w.root, unix.MNT_DETACH); err != nil {
			w.t.Error(err)
		}
	})
}

func (w *world) write(file, content string) {
	w.t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// launch starts the hub, and waits for nothing.
func (w *world) launch() {
	w.t.Helper()
	cmd := exec.Command(w.binary, w.args...) // killed by the round
	cmd.Stdout, cmd.Stderr = w.output, w.output
	gone, err := hubproc.StartAndWait(cmd)
	if err != nil {
		w.t.Fatal(err)
	}
	w.hub, w.gone = cmd, gone
}

// start starts the hub and waits until it serves.
func (w *world) start() time.Duration {
	w.t.Helper()
	began := time.Now()
	w.launch()
	for {
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
		code, _ := get(ctx, w.api+"/v1/healthz", "", "")
		cancel()
		if code == http.StatusOK {
			return time.Since(began)
		}
		select {
		case <-w.gone:
			w.fatal("the hub has ended instead of serving")
		case <-time.After(5 * time.Millisecond):
		}
		if time.Since(began) > startTimeout {
			w.fatal("the hub does not serve")
		}
	}
}

// kill ends the hub as a crash would. It must have lived until then.
func (w *world) kill() {
	w.t.Helper()
	if w.hub == nil {
		return
	}
	select {
	case <-w.gone:
		w.fatal("the hub has ended by itself")
	default:
	}
	if err := w.hub.Process.Kill(); err != nil {
		w.t.Fatal(err)
	}
	<-w.gone
	w.hub = nil
}

// fatal keeps what there is to look at.
func (w *world) fatal(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("%s\n%s", fmt.Sprintf(format, args...), w.tail())
}

func (w *world) tail() string {
	text, err := os.ReadFile(w.output.Name())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return "The end of the hub's log:\n" + strings.Join(lines[max(0, len(lines)-25):], "\n")
}

// end stops the hub, and keeps a failed round's files.
func (w *world) end() {
	if w.hub != nil {
		_ = w.hub.Process.Kill() // it may have ended
		<-w.gone
	}
	_ = w.output.Close()
	if !w.t.Failed() {
		return
	}
	kept, err := os.MkdirTemp("", "edgehub-crash-")
	if err == nil {
		err = os.CopyFS(filepath.Join(kept, "hub"), os.DirFS(w.root))
	}
	if err == nil {
		err = os.Rename(w.output.Name(), filepath.Join(kept, "hub.log"))
	}
	w.t.Logf("the hub's files and its log are in %s (%v)", kept, err)
}

// get is one request; the code is 0, and the body the reason, where there is no answer.
func get(ctx context.Context, url, accept, token string) (code int, body []byte) {
	res, err := open(ctx, url, accept, token)
	if err != nil {
		return 0, []byte(err.Error())
	}
	defer res.Body.Close()
	body, err = io.ReadAll(res.Body)
	if err != nil {
		return 0, []byte(err.Error())
	}
	return res.StatusCode, body
}

func open(ctx context.Context, url, accept, token string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return http.DefaultClient.Do(req)
}
