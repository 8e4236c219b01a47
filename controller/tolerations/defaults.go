package tolerations

import (
	"context"
	"time"

	"github.com/edgehub-io/edgehub/controller/autonomy"
	"github.com/edgehub-io/edgehub/controller/podclient"
)

// How often the apiserver is asked for the default seconds: after an answer and after none. One that is given others has
// to be restarted, and pods keep the seconds that they have.
const (
	askEvery = time.Hour
	askAgain = time.Minute
)

// fleet returns Fleet, with the default seconds as the apiserver has said them last, if it has.
func (c *Controller) fleet() autonomy.Fleet {
	f := c.Fleet
	if d := c.defaults.Load(); d != nil {
		f.Defaults = *d
	}
	return f
}

// askDefaults asks the apiserver for the default seconds. It returns when to ask again.
func (c *Controller) askDefaults(ctx context.Context) time.Duration {
	asking, cancel := context.WithTimeout(ctx, podclient.Timeout)
	defer cancel()
	pod, err := c.BarePod(asking)
	var d autonomy.Defaults
	if err == nil {
		d, err = autonomy.DefaultsOf(pod)
	}
	before := c.fleet().Defaults
	switch {
	case ctx.Err() != nil:
	case err != nil:
		if text := err.Error(); text != c.unasked && !before.Asked {
			c.unasked = text
			c.Logger.Info("the apiserver does not say which tolerationSeconds it gives pods: those of --default-toleration-seconds count",
				"notReady", before.NotReady, "unreachable", before.Unreachable, "why", text)
		}
	case d != before:
		if d.NotReady != before.NotReady || d.Unreachable != before.Unreachable {
			c.Logger.Warn("the apiserver gives pods other tolerationSeconds than were known: these count, and not --default-toleration-seconds",
				"notReady", d.NotReady, "unreachable", d.Unreachable, "notReadyBefore", before.NotReady, "unreachableBefore", before.Unreachable)
		}
		c.defaults.Store(&d)
		c.queueNodes()
	}
	if err != nil {
		return askAgain
	}
	return askEvery
}

// keepAsking asks until ctx ends, for the first time after a while.
func (c *Controller) keepAsking(ctx context.Context, after time.Duration) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(after):
			after = c.askDefaults(ctx)
		}
	}
}
