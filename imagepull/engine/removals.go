package engine

import (
	"context"
	"time"

	apievents "github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/v2/core/events"
	"github.com/containerd/typeurl/v2"
)

// listenAgain is how long Removals waits before it listens again.
const listenAgain = 3 * time.Second

// Removals calls each with the names of image records that are removed, until ctx
// ends. Removals while containerd was away, or before it was
// listened to again, are not reported: each is called with the names of all images that
// are held then.
func (e *Engine) Removals(ctx context.Context, each func(name string)) {
	ctx = criContext(ctx)
	for first := true; ctx.Err() == nil; first = false {
		if err := e.listen(ctx, !first, each); ctx.Err() == nil {
			e.log.Debug("containerd's events have ended; it is listened to again", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(listenAgain):
		}
	}
}

// listen returns when containerd ends the stream.
func (e *Engine) listen(ctx context.Context, missed bool, each func(string)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream
	messages, failed := e.client.EventService().Subscribe(ctx, `topic=="/images/delete",namespace==`+namespace)
	if missed {
		names, err := e.leases().Retained(ctx)
		if err != nil {
			return err
		}
		for _, name := range names {
			each(name)
		}
	}
	for {
		select {
		case err := <-failed:
			return err
		case m := <-messages:
			if name := removed(m); name != "" {
				each(name)
			}
		}
	}
}

func removed(m *events.Envelope) string {
	if m == nil {
		return ""
	}
	event, err := typeurl.UnmarshalAny(m.Event)
	if err != nil {
		return ""
	}
	if deletion, ok := event.(*apievents.ImageDelete); ok {
		return deletion.Name
	}
	return ""
}
