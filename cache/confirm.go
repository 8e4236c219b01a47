package cache

import (
	"context"
	"time"

	"github.com/edgehub-io/edgehub/cache/confirm"
	"github.com/edgehub-io/edgehub/cache/pause"
)

// confirm asks the apiservers again whose the known tokens are, and what the node was told yes
// to, until ctx ends. See package confirm.
func (w *writes) confirm(ctx context.Context) {
	w.takeTurns(ctx, confirm.Pause, func(since time.Time) bool {
		ofToken := w.cache.tokens.Confirm(ctx, since)
		ofReview := w.answers.ConfirmReview(ctx, since)
		return ofToken || ofReview
	})
}

// takeTurns calls turn again and again until ctx ends, after a pause while it returns true: something was asked
// for. It begins when an apiserver has answered the node: before, a hub that has just started cannot know whether
// the cloud is there.
func (w *writes) takeTurns(ctx context.Context, between time.Duration, turn func(since time.Time) bool) {
	select {
	case <-w.answered:
	case <-ctx.Done():
		return
	}
	since, wait := time.Now(), confirm.Idle
	for pause.Sleep(ctx, wait/2+pause.Jitter(wait)) {
		wait = confirm.Idle
		if turn(since) {
			wait = between
		}
	}
}
