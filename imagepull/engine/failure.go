package engine

import (
	"context"
	"errors"
	"io"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// failure is err as an *Error that names the image, if it is of one, or as ctx's if
// that has ended.
func (e *Engine) failure(ctx context.Context, name string, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	f, ok := errors.AsType[*engineapi.Error](err)
	if !ok {
		f = e.runtimeFailure(err)
	}
	if name == "" {
		return f
	}
	return f.ForImage(name)
}

// runtimeFailure classifies an error of containerd. What comes over gRPC has a code,
// but for errors of the system, which are text.
func (e *Engine) runtimeFailure(err error) *engineapi.Error {
	text := err.Error()
	switch {
	case isUnavailable(err):
		return engineapi.Errorf(engineapi.RuntimeUnavailable, "containerd at %s does not answer (%s); look whether it runs; the image is tried again once it does", e.opts.Address, engineapi.Quote(tail(text)))
	case strings.Contains(text, syscall.ENOSPC.Error()):
		return engineapi.Errorf(engineapi.NoSpace, "containerd has run out of disk space (%s); remove what is not needed on the node, images or logs, or give it more room", engineapi.Quote(text))
	case errdefs.IsNotImplemented(err) && strings.Contains(text, "runtime.v1"):
		return engineapi.Errorf(engineapi.Other, "containerd at %s has no CRI, so kubelet cannot use it; enable its plugin, or give the socket of the one that kubelet uses", e.opts.Address)
	case strings.Contains(text, "wrong diff id"):
		return engineapi.Errorf(engineapi.Corrupt, "a layer holds something else than the configuration says (%s); push the image again", engineapi.Quote(text))
	}
	return engineapi.Errorf(engineapi.Other, "containerd at %s: %s", e.opts.Address, engineapi.Quote(text))
}

// isUnavailable reports whether containerd is away or ended amid a call. A stream that
// is broken shows as the end of a file, of which its client may leave the text only.
func isUnavailable(err error) bool {
	return errdefs.IsUnavailable(err) || errdefs.IsCanceled(err) || errdefs.IsDeadlineExceeded(err) ||
		errors.Is(err, io.EOF) || strings.HasSuffix(err.Error(), ": EOF") || strings.Contains(err.Error(), "server is not initialized yet")
}

// tail is what an error's text ends with, the cause; gRPC puts it between quotes.
func tail(text string) string {
	if i := strings.LastIndex(text, ": "); i >= 0 {
		text = text[i+2:]
	}
	return strings.Trim(text, `"`)
}
