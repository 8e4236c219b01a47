// Package testmain is for the TestMain of packages whose tests share a control plane: it
// gives them a folder, starts what they share, runs the tests, and takes everything
// down again.
//
//	func TestMain(m *testing.M) { os.Exit(testmain.Main(m, "cache", prepare)) }
//
//	func prepare(ctx context.Context, s *testmain.Env) (err error) {
//		if env.hubBin, err = hubproc.Build(ctx, productRoot, s.Dir); err != nil {
//			return err
//		}
//		env.cluster, err = s.StartCluster(ctx, cluster.Options{})
//		return err
//	}
//
// The logs of the control plane go when all tests have passed. Otherwise they stay, and
// stderr shows where. An Env is not for use from several goroutines.
package testmain

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/cluster/tempdir"
	"github.com/edgehub-io/edgehub/test/internal/fleet"
)

// limit is how long the tests and what they need may take. Kubernetes may have to be
// built.
const limit = 15 * time.Minute

// Env is what the tests of a package share.
type Env struct {
	// Dir is for programs and files. It goes after the tests, passed or not.
	Dir string

	passed   bool
	cleanups []func() error
}

// Main runs the tests of the package of this name when prepare has returned nil. It
// returns the exit code: not 0 either when something else than a test has failed, which
// it prints on stderr. The context of prepare ends after the tests.
func Main(m *testing.M, name string, prepare func(context.Context, *Env) error) (code int) {
	code, err := run(m, name, prepare)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		code = max(code, 1)
	}
	return code
}

func run(m *testing.M, name string, prepare func(context.Context, *Env) error) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	s := new(Env)
	dir, err := tempdir.Make(name + "-test")
	if err != nil {
		return 1, err
	}
	s.Dir = dir.Path
	defer func() { err = errors.Join(err, s.takeDown(), dir.Remove()) }()
	if err := prepare(ctx, s); err != nil {
		return 1, err
	}
	code = m.Run()
	s.passed = code == 0
	return code, nil
}

// Cleanup has f called after the tests, and when prepare fails: what was added last
// comes first. What f returns fails the tests.
func (s *Env) Cleanup(f func() error) { s.cleanups = append(s.cleanups, f) }

func (s *Env) takeDown() error {
	var errs []error
	for _, f := range slices.Backward(s.cleanups) {
		err := f()
		s.passed = s.passed && err == nil
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// StartCluster starts what o describes, with its steps on stderr, until the tests are over.
func (s *Env) StartCluster(ctx context.Context, o cluster.Options) (*cluster.Cluster, error) {
	o.Log = os.Stderr
	c, err := cluster.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	s.Cleanup(func() error {
		err := c.Stop()
		if err == nil && s.passed {
			return os.RemoveAll(c.Dir())
		}
		fmt.Fprintln(os.Stderr, "the logs of the control plane are in", c.LogDir())
		return err
	})
	return c, nil
}

// Play has a fleet play its nodes until the tests are over.
func (s *Env) Play(ctx context.Context, f *fleet.Fleet) {
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1) // one result
	go func() { ended <- f.Run(ctx) }()
	s.Cleanup(func() error { stop(); return <-ended })
}
