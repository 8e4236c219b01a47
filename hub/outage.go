package hub

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/edgehub-io/edgehub/cache/durable"
	"github.com/edgehub-io/edgehub/proxy/upstream"
)

// minOutage is how long an outage has to last before it is written to disk, so that short
// ones do not wear out flash.
const minOutage = 10 * time.Second

// outage keeps the beginning of an outage across restarts of the hub, for "offline since". The
// file is written when an outage begins or ends, and when the hub stops.
type outage struct {
	file     string
	upstream *upstream.Upstream
	log      *slog.Logger
	loaded   time.Time // read from the file at the start; zero: none
}

// outageFile is the contents of the file. One of the two is set.
type outageFile struct {
	Lost     time.Time `json:"lost,omitzero"`     // when the current outage began
	Answered time.Time `json:"answered,omitzero"` // when an apiserver is known to have answered last
}

// loadOutage reads the file and passes the outage to upstream. A file that cannot be read
// counts as no outage.
func loadOutage(root string, upstream *upstream.Upstream, log *slog.Logger) *outage {
	o := &outage{file: filepath.Join(root, "outage.json"), upstream: upstream, log: log}
	text, err := os.ReadFile(o.file)
	if os.IsNotExist(err) {
		return o
	}
	var was outageFile
	if err == nil {
		err = json.Unmarshal(text, &was)
	}
	if err != nil {
		log.Warn("it cannot be read since when the cloud is away", "file", o.file, "err", err)
		return o
	}
	o.loaded = cmp.Or(was.Lost, was.Answered)
	upstream.Recall(o.loaded)
	return o
}

// run keeps the file current until ctx ends. An outage from before the start stays in the file
// until an apiserver answers, whatever the clock shows meanwhile.
func (o *outage) run(ctx context.Context) {
	if upstream.Plausible(o.loaded) {
		select {
		case <-ctx.Done():
			return
		case <-o.upstream.Answered():
			o.remove()
		}
	}
	o.follow(ctx)
	o.save()
}

// follow records outages that begin from now on.
func (o *outage) follow(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.upstream.Lost(ctx):
		}
		short, cancel := context.WithTimeout(ctx, minOutage)
		err := o.upstream.WaitUp(short)
		cancel()
		if err == nil {
			continue
		}
		if ctx.Err() != nil {
			return
		}
		o.save()
		if o.upstream.WaitUp(ctx) != nil {
			return
		}
		o.remove()
	}
}

// save writes the present state. It writes nothing if the state is unknown: no apiserver has
// answered since the start, and none counts as lost.
func (o *outage) save() {
	var now outageFile
	answered := false
	select {
	case <-o.upstream.Answered():
		answered = true
	default:
	}
	switch state := o.upstream.State(); {
	case !state.Up:
		now.Lost = state.Since.UTC().Round(0)
	case answered:
		now.Answered = time.Now().UTC().Round(0)
	default:
		return
	}
	text, err := json.Marshal(now)
	if err == nil {
		err = durable.Write(o.file, text)
	}
	if err != nil {
		o.log.Warn("it cannot be written down since when the cloud is away", "file", o.file, "err", err)
	}
}

func (o *outage) remove() {
	if err := durable.Remove(o.file); err != nil {
		o.log.Warn("an outage that is over cannot be forgotten", "file", o.file, "err", err)
	}
}
