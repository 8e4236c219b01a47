package engine

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestWhatAPullAsksFor of many layers is no more than what CRI does: connections and
// tokens are used again.
func TestWhatAPullAsksFor(t *testing.T) {
	const layers = 40
	const connections, tokens = 8, 2 // CRI's, of containerd 1.6
	each(t, func(r *rig) {
		r.registry.UseTokens(5 * time.Minute)
		r.must(r.registry.WriteHosts(r.containerd.HostsDir(), r.registry.Addr()))
		push := func(seed uint64, repository string) string {
			r.registry.Require(repository, "me", secret+"me")
			reference, _ := r.push(repository, "1", r.ballast(seed, slices.Repeat([]int64{1000}, layers)...)...)
			return reference
		}
		reference := push(1, "ours")
		ours := r.costOf(func() { r.pull(reference, credential("me", "secret default/me")) })
		reference = push(2, "theirs")
		theirs := r.costOf(func() {
			_, err := r.cri.PullImage(r.Context(), &cri.PullImageRequest{
				Image: &cri.ImageSpec{Image: reference}, Auth: &cri.AuthConfig{Username: "me", Password: secret + "me"},
			})
			r.must(err)
		})
		r.Logf("%d layers: a pull costs %v, one of CRI %v", layers, ours, theirs)
		if ours.connections > connections || ours.tokens > tokens {
			r.Errorf("a pull costs %v", ours)
		}
	})
}

// cost is what a registry sees of a pull.
type cost struct{ connections, tokens, requests int }

func (c cost) String() string {
	return fmt.Sprintf("%d connections, %d tokens and %d requests", c.connections, c.tokens, c.requests)
}

func (r *rig) costOf(pull func()) cost {
	r.Helper()
	r.registry.Forget()
	before := r.registry.Connections()
	pull()
	c := cost{connections: int(r.registry.Connections() - before)}
	for _, request := range r.registry.Requests() {
		c.requests++
		if request.Path == "/token" {
			c.tokens++
		}
	}
	return c
}

// TestTokenThatRunsOutSilently is one whose lifetime the registry omits: the pull asks for
// another one.
func TestTokenThatRunsOutSilently(t *testing.T) {
	each(t, func(r *rig) {
		reference, _ := r.push("private", "1", r.ballast(1, 3<<20, 1<<20)...)
		r.registry.Require("private", "me", secret+"me")
		r.registry.UseTokens(time.Second)
		r.registry.HideTokenLife()
		r.registry.SetRate(2 << 20)
		r.pull(reference, credential("me", "secret default/me"))
		r.shows(reference, "there", func(i *cri.Image) bool { return i != nil })
	})
}

// TestLayerThatCRIFetches is waited for, and does not come twice.
func TestLayerThatCRIFetches(t *testing.T) {
	each(t, func(r *rig) {
		layers := r.ballast(1, 8<<20)
		theirs, _ := r.push("theirs", "1", layers...)
		ours, _ := r.push("ours", "1", append(layers, r.ballast(2, 1000)...)...)
		r.must(r.registry.WriteHosts(r.containerd.HostsDir(), r.registry.Addr()))
		r.registry.SetRate(4 << 20)
		done := make(chan error, 1) // so that it can end when the test has failed
		go func() {
			_, err := r.cri.PullImage(r.Context(), &cri.PullImageRequest{Image: &cri.ImageSpec{Image: theirs}})
			done <- err
		}()
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		r.must(r.registry.AwaitBytes(ctx, r.digest(layers[0]), 1<<20))
		r.pull(ours)
		r.must(<-done)
		r.atMost(1.05, layers...)
	})
}
