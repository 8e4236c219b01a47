package engine

import (
	"context"
	"time"

	apievents "github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/v2/core/events"
	"github.com/containerd/typeurl/v2"
	"k8s.io/apimachinery/pkg/util/wait"
)

// listenAgain is how long Removals waits before it listens again.
const listenAgain = 3 * time.Second

// Removals calls each with the names of image records that are removed, until ctx ends. After
// containerd was away, when removals may have been missed, it calls each with the names of all
// retained images.
func (e *Engine) Removals(ctx context.Context, each func(name string)) {
	missed := false
	wait.UntilWithContext(criContext(ctx), func(ctx context.Context) {
		if err := e.listen(ctx, missed, each); ctx.Err() == nil {
			e.log.Debug("containerd's events have ended; it is listened to again", "err", err)
		}
		missed = true
	}, listenAgain)
}

// listen returns when containerd ends the stream of events.
func (e *Engine) listen(ctx context.Context, missed bool, each func(string)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream
	messages, failed := e.client.EventService().Subscribe(ctx, `topic=="/images/delete",namespace==`+namespace)
	if missed {
		names, err := e.leases.Retained(ctx)
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
