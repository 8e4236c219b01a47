// Package cri reads the logs of containers of this node, runs commands in them and restarts them.
// It asks containerd by the CRI API, as kubelet does, and so needs neither the cloud nor the hub.
//
// A container is found by the labels that kubelet gives it: the pod's name, namespace and UID, and
// the container's name. CRI has several containers of one name, one for each restart; the newest
// counts. What is done to a container is done by its ID, so it never affects its successor.
//
// Access is that of containerd's socket: on a node, root's only. Whoever may open it may do
// anything on the node anyway. See openLog on log files that others may have replaced.
//
// CRI does not know whether kubelet starts a container again once it has ended: who calls Restart
// passes on how to find out.
package cri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
)

// DefaultEndpoint is containerd's socket, as kubelet and the hub have it.
const DefaultEndpoint = "unix:///run/containerd/containerd.sock"

// messageLimit is how large an answer of containerd may be, in bytes: kubelet's limit.
const messageLimit = 16 << 20

// Node is the container runtime of this node. Its methods may be called concurrently.
type Node struct {
	conn *grpc.ClientConn
	api  runtimeapi.RuntimeServiceClient
	// pace is the time between two looks at what may have changed.
	pace time.Duration
}

// Open connects to the runtime at endpoint, a path or unix:// and a path. It looks for changes
// once in pace. The caller closes the Node.
func Open(endpoint string, pace time.Duration) (*Node, error) {
	path := strings.TrimPrefix(endpoint, "unix://")
	if !filepath.IsAbs(path) {
		return nil, cli.WrongUse("%q is no socket: write %s", endpoint, DefaultEndpoint)
	}
	if err := probe(path); err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(messageLimit)))
	if err != nil {
		return nil, err
	}
	return &Node{conn: conn, api: runtimeapi.NewRuntimeServiceClient(conn), pace: pace}, nil
}

// Close ends the connection.
func (n *Node) Close() error { return n.conn.Close() }

// probe reports in plain words why the socket cannot be used: gRPC has the same in a long chain.
func probe(path string) error {
	conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(context.Background(), "unix", path)
	switch {
	case err == nil:
		return conn.Close()
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("permission denied: %s is for root; use sudo", path)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no containerd here, or its socket is not %s: run this on the node itself, not in a container; --container-runtime-endpoint names another socket", path)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("containerd does not run: nothing listens on %s; see systemctl status containerd", path)
	}
	return fmt.Errorf("connect to containerd: %w", err)
}

// asked is err of a call to the runtime, without gRPC's own words.
func asked(what string, err error) error {
	s := status.Convert(err)
	words := "containerd: " + s.Message()
	if s.Code() == codes.Unimplemented {
		words = "this runtime does not offer CRI's API v1: enable its CRI plugin"
	}
	return &answer{what + ": " + words, err}
}

// answer is an error of gRPC in better words.
type answer struct {
	words string
	err   error
}

func (a *answer) Error() string { return a.words }
func (a *answer) Unwrap() error { return a.err }

// away reports whether the runtime cannot be reached just now; its containers run on.
func away(err error) bool { return status.Code(err) == codes.Unavailable }
