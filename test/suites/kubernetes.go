package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// background is Kubernetes while it is built beside the suites that do not need it, which takes
// minutes the first time on a machine.
type background struct {
	r        *runner
	activity *activity
	began    time.Time
	done     chan struct{} // closed once took and err are set
	took     time.Duration
	err      error
	waited   atomic.Int64 // nanoseconds in which no suite could run for it
}

// buildInBackground begins to build Kubernetes if a suite takes it.
func (r *runner) buildInBackground(ctx context.Context, suites []suite) {
	if !slices.ContainsFunc(suites, func(s suite) bool { return s.kubernetes }) {
		return
	}
	b := &background{r: r, began: time.Now(), done: make(chan struct{})}
	activity, end := r.out.begin("Kubernetes, in the background")
	b.activity = activity
	r.kubernetes = b
	go func() {
		defer close(b.done)
		_, b.err = r.build(ctx, b) // it ends with ctx
		b.took = time.Since(b.began)
		end()
	}()
}

// Write gets the lines of the build, which say how far it has come.
func (b *background) Write(p []byte) (int, error) {
	line := strings.TrimSpace(string(bytes.TrimSpace(p)))
	if _, what, found := strings.Cut(line, "  "); found {
		b.r.out.count(b.activity, "%s", what)
	}
	return b.r.log.Write(p)
}

// await waits until Kubernetes is built.
func (b *background) await(s suite) {
	began := time.Now()
	<-b.done
	if !s.waits {
		b.waited.Add(int64(time.Since(began)))
	}
}

// reportKubernetes puts what the build took into the table.
func (r *runner) reportKubernetes() {
	b := r.kubernetes
	if b == nil {
		return
	}
	<-b.done
	const enough = 5 * time.Second // it was there
	if b.err == nil && b.took < enough {
		return
	}
	s := suite{name: "kubernetes", what: "Kubernetes, built once on a machine"}
	res := result{suite: s, took: b.took}
	if b.err != nil {
		res.failures = []*failure{{suite: s, pkg: "build Kubernetes", output: b.err.Error() + "\n"}}
	}
	res.remark = fmt.Sprintf("beside the suites that do not need it; the others waited for %.0f s of it", time.Duration(b.waited.Load()).Seconds())
	r.say("\nKubernetes was built in %.0f s, %s", b.took.Seconds(), res.remark)
	r.ended(res)
}
