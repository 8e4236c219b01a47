package install

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/edgehub-io/edgehub/cmd/edgehub/install/kubelet"
	"github.com/edgehub-io/edgehub/imagepull/engine"
)

// runtimeOf is a container runtime of this name, of which nothing but CRI answers.
type runtimeOf struct {
	cri.UnimplementedRuntimeServiceServer
	name string
}

func (r *runtimeOf) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{RuntimeName: r.name}, nil
}

func TestAnotherRuntimeThanContainerdIsNamed(t *testing.T) {
	for name, want := range map[string]string{"containerd": "  ok    container runtime at unix://", "cri-o": " is cri-o, and edgehub knows containerd: "} {
		socket := filepath.Join(t.TempDir(), "cri.sock")
		listener, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		server := grpc.NewServer()
		cri.RegisterRuntimeServiceServer(server, &runtimeOf{name: name})
		done := make(chan error, 1)
		go func() { done <- server.Serve(listener) }()
		runtime, err := engine.New(engine.Options{Address: socket})
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		known := (&checks{out: &out}).checkRuntime(t.Context(), &kubelet.Kubelet{Endpoint: "unix://" + socket}, runtime)
		if got := out.String(); known != (name == "containerd") || !strings.Contains(got, want) || strings.Count(got, "\n") != 1 {
			t.Errorf("%s: known %v, and %q does not say %q", name, known, got, want)
		}
		runtime.Close()
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
