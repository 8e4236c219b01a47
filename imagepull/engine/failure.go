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

// failure returns err as an *Error that names the image, unless name is empty. If ctx has ended, it
// returns ctx's error.
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

// runtimeFailure classifies an error of containerd. Errors over gRPC have a code, except errors of
// the operating system, which are only text.
func (e *Engine) runtimeFailure(err error) *engineapi.Error {
	text := err.Error()
	switch {
	case isUnavailable(err):
		return engineapi.Errorf(engineapi.RuntimeUnavailable, "containerd at %s does not answer (%s); look whether it runs", e.opts.Address, engineapi.Quote(tail(text)))
	case strings.Contains(text, syscall.ENOSPC.Error()):
		return engineapi.Errorf(engineapi.NoSpace, "containerd has run out of disk space (%s); remove what is not needed on the node, images or logs, or give it more room", engineapi.Quote(text))
	case errdefs.IsNotImplemented(err) && strings.Contains(text, "runtime.v1"):
		return engineapi.Errorf(engineapi.Other, "containerd at %s has no CRI, so kubelet cannot use it; enable its plugin, or give the socket of the one that kubelet uses", e.opts.Address)
	case strings.Contains(text, "wrong diff id"):
		return engineapi.Errorf(engineapi.Corrupt, "a layer holds something else than the configuration says (%s); push or save the image again", engineapi.Quote(text))
	}
	return engineapi.Errorf(engineapi.Other, "containerd at %s: %s", e.opts.Address, engineapi.Quote(text))
}

// isUnavailable reports whether containerd is away, or ended during a call. A stream that breaks
// fails with io.EOF, of which containerd's client may keep only the text.
func isUnavailable(err error) bool {
	return errdefs.IsUnavailable(err) || errdefs.IsCanceled(err) || errdefs.IsDeadlineExceeded(err) ||
		errors.Is(err, io.EOF) || strings.HasSuffix(err.Error(), ": EOF") || strings.Contains(err.Error(), "server is not initialized yet")
}

// tail returns the end of an error's text, which is the cause. gRPC puts it in quotes.
func tail(text string) string {
	if i := strings.LastIndex(text, ": "); i >= 0 {
		text = text[i+2:]
	}
	return strings.Trim(text, `"`)
}
