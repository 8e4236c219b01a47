// Package engine tests pulls through a real containerd of each supported version, from a registry that
// counts what it serves and fails on demand. The tests look into containerd over CRI, like the kubelet.
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

// patience bounds the wait for anything that must happen. It is long because the machine may be busy.
const patience = 2 * time.Minute

// daemon is a shared containerd, which the first test starts.
type daemon struct {
	version cluster.ContainerdVersion
	once    sync.Once
	started *cluster.Containerd
	err     error
}

func (d *daemon) get() (*cluster.Containerd, error) {
	d.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute) // with time to build it
		defer cancel()
		d.started, d.err = cluster.StartContainerd(ctx, cluster.ContainerdOptions{Version: d.version, Log: os.Stderr})
	})
	return d.started, d.err
}

// installed is the version of Debian's package.
const installed = "1.6"

// daemons are the daemons by version.
var daemons = map[string]*daemon{ //nolint:gochecknoglobals // TestMain has no other way to pass them
	installed: {version: cluster.ContainerdInstalled},
	"1.7":     {version: cluster.Containerd17},
	"2":       {version: cluster.Containerd2},
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
