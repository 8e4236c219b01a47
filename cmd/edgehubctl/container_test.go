package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/edgehub-io/edgehub/cmd/edgehubctl/cri"
)

// None of these gets so far as to ask containerd, nor the hub.
func TestWordsForContainers(t *testing.T) {
	none := "unix://" + filepath.Join(t.TempDir(), "none.sock")
	tests := map[string]struct {
		args []string
		code exitCode
		out  string
		err  string
	}{
		"help of logs":                 {[]string{"logs", "--help"}, exitDone, "--previous", ""},
		"help of exec":                 {[]string{"help", "exec"}, exitDone, "Ctrl-C", ""},
		"help of restart":              {[]string{"restart", "-h"}, exitDone, "preStop hook does not run", ""},
		"no pod":                       {[]string{"logs"}, exitUsage, "", "want POD behind logs, got 0 words"},
		"a log of the past that comes": {[]string{"logs", "-fp", "a/b"}, exitUsage, "", "leave one out"},
		"fewer lines than none":        {[]string{"logs", "--tail=-2", "a/b"}, exitUsage, "", "want a number of lines"},
		"a time to come":               {[]string{"logs", "--since=-1m", "a/b"}, exitUsage, "", "such as 10m"},
		"logs as JSON":                 {[]string{"logs", "-o", "json", "a/b"}, exitUsage, "", "--output is no flag of logs"},
		"no command":                   {[]string{"exec", "a/b"}, exitUsage, "", "want POD -- COMMAND behind exec"},
		"a command without --":         {[]string{"exec", "a/b", "ls"}, exitUsage, "", "want POD -- COMMAND behind exec"},
		"a command without a pod":      {[]string{"exec", "--", "ls", "-l"}, exitUsage, "", "want POD -- COMMAND behind exec"},
		"two pods":                     {[]string{"exec", "a/b", "c/d", "--", "ls"}, exitUsage, "", "want POD -- COMMAND behind exec"},
		"a terminal without stdin":     {[]string{"exec", "-t", "a/b", "--", "sh"}, exitUsage, "", "write -it"},
		"to wait and not":              {[]string{"restart", "--no-wait", "--timeout=1m", "a/b"}, exitUsage, "", "leave it out, or --no-wait"},
		"to wait less than nothing":    {[]string{"restart", "--timeout=-1m", "a/b"}, exitUsage, "", "want a duration such as"},
		"a flag of logs":               {[]string{"exec", "--tail=1", "a/b", "--", "ls"}, exitUsage, "", "--tail is no flag of exec"},
		"a pod that is none":           {[]string{"restart", "a/b/c"}, exitUsage, "", "want a pod as NAMESPACE/POD"},
		"a socket that is none":        {[]string{"logs", "--container-runtime-endpoint=x", "a/b"}, exitUsage, "", "is no socket"},
		"in a container":               {[]string{"logs", "--container-runtime-endpoint=" + none, "a/b"}, exitFailed, "", "run this on the node itself, not in a container"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			code := run(t.Context(), tt.args, streams{out: &out, err: &errs}, usualTiming())
			result{code, out.String(), errs.String()}.has(t, tt.code, tt.out, tt.err)
			if strings.Count(errs.String(), "\n") > 1 {
				t.Errorf("more than one line on stderr: %s", &errs)
			}
		})
	}
}

func TestExitCodesOfContainers(t *testing.T) {
	if err := endingOf(&cri.Exited{Code: 42}); codeOf(err) != 42 || !errors.Is(err, errSilent) {
		t.Errorf("a command that ends with 42: exit code %d, %v", codeOf(err), err)
	}
	_, err := cri.Open("x", 0)
	if got := codeOf(endingOf(fmt.Errorf("in words: %w", err))); got != exitUsage {
		t.Errorf("wrong use: exit code %d", got)
	}
	if got := codeOf(endingOf(os.ErrInvalid)); got != exitFailed {
		t.Errorf("any other error: exit code %d", got)
	}
	if endingOf(nil) != nil {
		t.Error("no error has become one")
	}
}

// hostileRuntime has a pod with containers that no apiserver would take.
type hostileRuntime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
}

const hostile = "\x1b[2Ja\nb\u009b"

func (hostileRuntime) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	return &runtimeapi.ListPodSandboxResponse{Items: []*runtimeapi.PodSandbox{{Id: "pod"}}}, nil
}

func (hostileRuntime) ListContainers(context.Context, *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	c := func(name string) *runtimeapi.Container {
		return &runtimeapi.Container{Id: name, Labels: map[string]string{"io.kubernetes.container.name": name}}
	}
	return &runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{c(hostile), c("app")}}, nil
}

func (hostileRuntime) ContainerStatus(_ context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	if r.ContainerId == "app" {
		return nil, grpcstatus.Error(codes.Internal, hostile)
	}
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{State: runtimeapi.ContainerState_CONTAINER_RUNNING}}, nil
}

// Nothing that a runtime, or whoever gives names, has chosen reaches a terminal as it is.
func TestNamesOfContainersAreNoCommandsForATerminal(t *testing.T) {
	dir, err := os.MkdirTemp("", "cri") // a socket's path has 107 bytes at most, and a test's folder its name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "cri.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, hostileRuntime{})
	done := make(chan error, 1) // Serve's result
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	hub := newFakeHub(t).on("GET", "/pods", podList())
	tests := map[string]struct {
		args []string
		code exitCode
		err  string
	}{
		"a choice of containers": {[]string{"logs", "shop/" + hostile}, exitUsage, `\u001b[2Ja b\u009b (running)`},
		"a runtime's error":      {[]string{"exec", "shop/web", "-c", "app", "--", "ls"}, exitFailed, `containerd: \u001b[2Ja b\u009b`},
		"a container":            {[]string{"restart", "shop/web", "-c", hostile}, exitNotNow, `container \u001b[2Ja b\u009b of pod shop/web was not stopped: it is not known`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := hub.edgehubctl(t, append([]string{"--container-runtime-endpoint", socket}, tt.args...)...)
			r.has(t, tt.code, "", tt.err)
			if strings.ContainsAny(r.out+r.err, "\x1b\u009b") || strings.Count(r.err, "\n") != 1 {
				t.Errorf("stdout %q, stderr %q", r.out, r.err)
			}
		})
	}
}
