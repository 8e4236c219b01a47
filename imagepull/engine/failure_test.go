package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

func TestRuntimeFailure(t *testing.T) {
	tests := map[string]struct {
		err    error
		reason engineapi.Reason
	}{
		"containerd is away":                       {fmt.Errorf("connection error: %w", errdefs.ErrUnavailable), engineapi.RuntimeUnavailable},
		"a stream breaks":                          {fmt.Errorf("failed to send write: %w", io.EOF), engineapi.RuntimeUnavailable},
		"only the text of a broken stream is left": {errors.New("failed to send write: EOF"), engineapi.RuntimeUnavailable},
		"containerd ends during a call":            {context.Canceled, engineapi.RuntimeUnavailable},
		"containerd hangs":                         {context.DeadlineExceeded, engineapi.RuntimeUnavailable},
		"containerd is still starting":             {errors.New("server is not initialized yet"), engineapi.RuntimeUnavailable},
		"the disk is full":                         {errors.New("write /x: no space left on device"), engineapi.NoSpace},
		"containerd has no CRI":                    {fmt.Errorf("unknown service runtime.v1.RuntimeService: %w", errdefs.ErrNotImplemented), engineapi.Other},
		"a layer has another diff ID":              {errors.New("wrong diff id calculated on extraction"), engineapi.Corrupt},
		"the error is unknown":                     {errors.New("strange"), engineapi.Other},
		"the error is an *Error already":           {engineapi.Errorf(engineapi.Gone, "it is gone"), engineapi.Gone},
	}
	e := &Engine{opts: Options{Address: "/run/c.sock"}}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := e.failure(t.Context(), "docker.io/library/nginx:1", tt.err)
			got, ok := errors.AsType[*engineapi.Error](err)
			if !ok || got.Reason != tt.reason || !strings.HasPrefix(got.Error(), "image docker.io/library/nginx:1: ") {
				t.Errorf("got %v, want the reason %s", err, tt.reason)
			}
		})
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.failure(ended, "x", io.EOF); err != context.Canceled { //nolint:errorlint // it is that and nothing else
		t.Errorf("a cancelled pull ended with %v", err)
	}
}

// Whatever is asked for, the failure names the socket that is missing.
func TestContainerdAbsent(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "none.sock")
	e, err := New(Options{Address: socket})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	_, pulled := e.Pull(t.Context(), engineapi.Request{Image: "nginx"})
	_, held := e.Retained(t.Context())
	for what, err := range map[string]error{"pull": pulled, "held": held, "release": e.Release(t.Context(), "x")} {
		got, ok := errors.AsType[*engineapi.Error](err)
		if !ok || got.Reason != engineapi.RuntimeUnavailable || !strings.Contains(got.Error(), socket) {
			t.Errorf("%s: got %v", what, err)
		}
	}
}
