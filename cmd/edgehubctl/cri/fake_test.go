package cri

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// web is the pod of the tests.
var web = types.NamespacedName{Namespace: "shop", Name: "web-1"} //nolint:gochecknoglobals // it does not change

// fakeRuntime is a CRI server on a socket, with containers that a test makes and ends. Its streams
// are served by the code that containerd serves them with.
type fakeRuntime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	*Node
	dir    string
	stream streaming.Server
	// run is what a command does.
	run func(cmd []string, in io.Reader, out, errs io.Writer) error
	// runOnTerminal is what a command with a terminal does.
	runOnTerminal func(in io.Reader, out io.Writer, sizes <-chan remotecommand.TerminalSize) error

	mu         sync.Mutex
	sandboxes  []*runtimeapi.PodSandbox
	containers []*runtimeapi.ContainerStatus
	attempts   map[string]uint32
	stopped    []*runtimeapi.StopContainerRequest
	// onStop is what kubelet does next.
	onStop func()
	clock  int64
	// down is while containerd restarts: it answers nothing about containers, or lists none.
	down, noLists bool
}

func newFake(t *testing.T) *fakeRuntime {
	t.Helper()
	f := &fakeRuntime{dir: t.TempDir(), attempts: map[string]uint32{}, onStop: func() {}}
	f.serveStreams(t)
	sockets, err := os.MkdirTemp("", "cri") // a socket's path has 107 bytes at most, and a test's folder its name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(sockets) })
	socket := filepath.Join(sockets, "cri.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, f)
	done := make(chan error, 1) // Serve's result
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if f.Node, err = Open("unix://"+socket, 2*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *fakeRuntime) serveStreams(t *testing.T) {
	t.Helper()
	var handler http.Handler
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) }))
	t.Cleanup(server.Close)
	config := streaming.DefaultConfig
	var err error
	if config.BaseURL, err = url.Parse(server.URL); err == nil {
		f.stream, err = streaming.NewServer(config, commands{f})
	}
	if err != nil {
		t.Fatal(err)
	}
	handler = f.stream
}

// addPod makes a sandbox of the pod with this UID.
func (f *fakeRuntime) addPod(uid string, annotations map[string]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clock++
	f.sandboxes = append(f.sandboxes, &runtimeapi.PodSandbox{
		Id: fmt.Sprintf("sandbox-%d", f.clock), CreatedAt: f.clock, Annotations: annotations,
		Labels: map[string]string{podNameLabel: web.Name, podNamespaceLabel: web.Namespace, podUIDLabel: uid},
	})
}

// start makes a container that runs, whose log is a file with text.
func (f *fakeRuntime) start(t *testing.T, uid, name, text string) *runtimeapi.ContainerStatus {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clock++
	c := &runtimeapi.ContainerStatus{
		Id: fmt.Sprintf("container-%d", f.clock), CreatedAt: f.clock, State: runtimeapi.ContainerState_CONTAINER_RUNNING,
		Metadata: &runtimeapi.ContainerMetadata{Name: name, Attempt: f.attempts[name]},
		Labels:   map[string]string{podUIDLabel: uid, containerNameLabel: name}, Annotations: map[string]string{},
		LogPath: filepath.Join(f.dir, fmt.Sprintf("%s-%d.log", name, f.clock)),
	}
	f.attempts[name]++
	write(t, c.LogPath, text)
	f.containers = append(f.containers, c)
	return c
}

// end has a container end.
func (f *fakeRuntime) end(c *runtimeapi.ContainerStatus, code int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c.State, c.ExitCode = runtimeapi.ContainerState_CONTAINER_EXITED, code
}

// restarting begins or ends a restart of containerd.
func (f *fakeRuntime) restarting(down, noLists bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down, f.noLists = down, noLists
}

// forget removes all that is left of the pod.
func (f *fakeRuntime) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sandboxes, f.containers = nil, nil
}

func (f *fakeRuntime) ListPodSandbox(_ context.Context, r *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	found := slices.DeleteFunc(slices.Clone(f.sandboxes), func(s *runtimeapi.PodSandbox) bool { return !selects(r.Filter.LabelSelector, s.Labels) })
	return &runtimeapi.ListPodSandboxResponse{Items: found}, nil
}

func (f *fakeRuntime) ListContainers(_ context.Context, r *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down || f.noLists {
		return nil, status.Error(codes.Unavailable, "down")
	}
	answer := &runtimeapi.ListContainersResponse{}
	for _, c := range f.containers {
		if selects(r.Filter.LabelSelector, c.Labels) {
			answer.Containers = append(answer.Containers, &runtimeapi.Container{Id: c.Id, CreatedAt: c.CreatedAt, State: c.State, Metadata: c.Metadata, Labels: c.Labels})
		}
	}
	return answer, nil
}

func selects(selector, labels map[string]string) bool {
	for k, v := range maps.All(selector) {
		if labels[k] != v {
			return false
		}
	}
	return true
}

func (f *fakeRuntime) ContainerStatus(_ context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return nil, status.Error(codes.Unavailable, "down")
	}
	for _, c := range f.containers {
		if c.Id == r.ContainerId {
			return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{
				Id: c.Id, State: c.State, ExitCode: c.ExitCode, LogPath: c.LogPath, Annotations: c.Annotations, CreatedAt: c.CreatedAt,
			}}, nil
		}
	}
	return nil, status.Error(codes.NotFound, "no such container")
}

func (f *fakeRuntime) StopContainer(_ context.Context, r *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	f.mu.Lock()
	f.stopped = append(f.stopped, r)
	for _, c := range f.containers {
		if c.Id == r.ContainerId {
			c.State, c.ExitCode = runtimeapi.ContainerState_CONTAINER_EXITED, 143
		}
	}
	f.mu.Unlock()
	f.onStop()
	return &runtimeapi.StopContainerResponse{}, nil
}

func (f *fakeRuntime) Exec(_ context.Context, r *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	return f.stream.GetExec(r)
}

// commands runs what Exec is asked for.
type commands struct{ f *fakeRuntime }

func (c commands) Exec(_ context.Context, _ string, cmd []string, in io.Reader, out, errs io.WriteCloser, tty bool, sizes <-chan remotecommand.TerminalSize) error {
	if tty {
		return c.f.runOnTerminal(in, out, sizes)
	}
	return c.f.run(cmd, in, out, errs)
}

func (commands) Attach(context.Context, string, io.Reader, io.WriteCloser, io.WriteCloser, bool, <-chan remotecommand.TerminalSize) error {
	return status.Error(codes.Unimplemented, "attach")
}

func (commands) PortForward(context.Context, string, int32, io.ReadWriteCloser) error {
	return status.Error(codes.Unimplemented, "port forward")
}

func write(t *testing.T, path, text string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = file.WriteString(text)
	}
	if err == nil {
		err = file.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// lineTime is when lines of logs were written.
var lineTime = time.Date(2026, 11, 23, 10, 0, 0, 123456789, time.UTC) //nolint:gochecknoglobals // it does not change

// line is a line of a log in CRI's format.
func line(text string) string {
	return lineTime.Format(time.RFC3339Nano) + " stdout F " + text + "\n"
}
