package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
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
		"away":               {fmt.Errorf("connection error: %w", errdefs.ErrUnavailable), engineapi.RuntimeUnavailable},
		"a broken stream":    {fmt.Errorf("failed to send write: %w", io.EOF), engineapi.RuntimeUnavailable},
		"the text of one":    {errors.New("failed to send write: EOF"), engineapi.RuntimeUnavailable},
		"ended amid a call":  {context.Canceled, engineapi.RuntimeUnavailable},
		"hangs":              {context.DeadlineExceeded, engineapi.RuntimeUnavailable},
		"still starting":     {errors.New("server is not initialized yet"), engineapi.RuntimeUnavailable},
		"a full disk":        {errors.New("write /x: no space left on device"), engineapi.NoSpace},
		"without CRI":        {fmt.Errorf("unknown service runtime.v1.RuntimeService: %w", errdefs.ErrNotImplemented), engineapi.Other},
		"a layer that lies":  {errors.New("wrong diff id calculated on extraction"), engineapi.Corrupt},
		"anything else":      {errors.New("strange"), engineapi.Other},
		"one that has words": {engineapi.Errorf(engineapi.Gone, "it is gone"), engineapi.Gone},
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
