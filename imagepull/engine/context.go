package engine

import (
	"context"
	"io"
	"time"

	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/log"
	"github.com/sirupsen/logrus"
)

// namespace is containerd's for what CRI manages.
const namespace = "k8s.io"

// criContext is ctx for calls of containerd, in CRI's namespace. The log of containerd's
// libraries is left out: it has requests with their headers, and what matters of it
// comes back as an error, too.
func criContext(ctx context.Context) context.Context {
	ctx = namespaces.WithNamespace(ctx, namespace)
	return log.WithLogger(ctx, logrus.NewEntry(&logrus.Logger{Out: io.Discard, Level: logrus.PanicLevel}))
}

// answerAtMost is for calls that containerd answers without work of its own. One that
// hangs counts as unavailable, and is not waited for forever.
const answerAtMost = 30 * time.Second

func briefContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(criContext(ctx), answerAtMost)
}
