// Package engine shows by its tests how images are pulled through a real containerd,
// of each version that nodes run, from a registry that counts what it serves and
// fails on demand. What a node has is asked of CRI, as kubelet does.
package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/edgehub-io/edgehub/test/cluster"
)

// patience is how long anything may take that has to happen at some time. It is long
// since the machine may be busy, and only spent when something is wrong.
const patience = 2 * time.Minute

// daemon is a containerd that is started when the first test needs it, and shared.
type daemon struct {
	version cluster.ContainerdVersion
	once    sync.Once
	started *cluster.Containerd
	err     error
}

func (d *daemon) get() (*cluster.Containerd, error) {
	d.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute) // it may have to be built
		defer cancel()
		d.started, d.err = cluster.StartContainerd(ctx, cluster.ContainerdOptions{Version: d.version, Log: os.Stderr})
	})
	return d.started, d.err
}

// daemons are one of each version, by its name.
var daemons = map[string]*daemon{ //nolint:gochecknoglobals // TestMain has no other way to hand them on
	"1.6": {version: cluster.ContainerdInstalled},
	"1.7": {version: cluster.Containerd17},
	"2":   {version: cluster.Containerd2},
}

func TestMain(m *testing.M) {
	code := m.Run()
	var errs []error
	for _, d := range daemons {
		if d.started != nil {
			errs = append(errs, d.started.Close())
		}
	}
	if err := errors.Join(append(errs, goleak.Find())...); err != nil {
		fmt.Fprintln(os.Stderr, "engine:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}
