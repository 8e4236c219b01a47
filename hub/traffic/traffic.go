// Package traffic counts the bytes that the hub and the cloud exchange in each month, and keeps that on
// disk.
//
// Months are those of the node's clock. While the clock shows a time that cannot be, as on a node
// without a battery that boots in 1970, bytes count for the month of before. A clock that was wrong
// for some time leaves what it counted under its month, and the right month goes on as it was.
package traffic

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/edgehub-io/edgehub/cache/durable"
	"github.com/edgehub-io/edgehub/ota/api"
)

const (
	// saveEvery is how often the file is written: a power cut loses as much. A node's leases alone are
	// traffic every ten seconds, and flash wears out.
	saveEvery = 10 * time.Minute
	// months is how many are kept.
	months = 3
)

// Options are the options of Open. All are required.
type Options struct {
	File string
	// Total returns the bytes sent to the apiservers and received from them since the hub's start.
	Total func() (sent, received int64)
	// Plausible reports whether a clock may show this time.
	Plausible func(time.Time) bool
	Logger    *slog.Logger
}

// Meter counts. It is safe for concurrent use.
type Meter struct {
	Options

	mu      sync.Mutex
	kept    kept
	counted api.Traffic // how much of Total is in kept
	dirty   bool
}

// kept is the contents of the file.
type kept struct {
	Current string                 `json:"current"` // the month that was counted for last; empty: none
	Months  map[string]api.Traffic `json:"months"`  // by 2006-01
}

// Open reads the file. One that cannot be read is logged, and counting begins anew.
func Open(o Options) *Meter {
	m := &Meter{Options: o}
	text, err := os.ReadFile(o.File)
	if err == nil {
		err = json.Unmarshal(text, &m.kept)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		o.Logger.Warn("the bytes that were exchanged with the cloud cannot be read, and are counted from now on", "file", o.File, "err", err)
	}
	if err != nil || m.kept.Months == nil {
		m.kept = kept{Months: map[string]api.Traffic{}}
	}
	return m
}

// Month returns what was exchanged in the present month.
func (m *Meter) Month() api.Traffic {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.countLocked(time.Now())
	return m.kept.Months[m.kept.Current]
}

// countLocked adds what was exchanged since the last call.
func (m *Meter) countLocked(now time.Time) {
	k := &m.kept
	if m.Plausible(now) || k.Current == "" {
		k.Current = now.Format("2006-01")
	}
	t, ok := k.Months[k.Current]
	if !ok {
		t.Since = now.Round(0)
	}
	sent, received := m.Total()
	if ok && sent == m.counted.Sent && received == m.counted.Received {
		return
	}
	t.Sent += sent - m.counted.Sent
	t.Received += received - m.counted.Received
	m.counted.Sent, m.counted.Received = sent, received
	k.Months[k.Current], m.dirty = t, true
	for _, month := range slices.Sorted(maps.Keys(k.Months)) {
		if len(k.Months) > months && month != k.Current {
			delete(k.Months, month)
		}
	}
}

// Run writes the file until ctx ends, and then once more.
func (m *Meter) Run(ctx context.Context) {
	ticker := time.NewTicker(saveEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			m.save()
			return
		case <-ticker.C:
			m.save()
		}
	}
}

func (m *Meter) save() {
	m.mu.Lock()
	m.countLocked(time.Now())
	text, err := json.Marshal(m.kept)
	dirty := m.dirty
	m.dirty = false
	m.mu.Unlock()
	if err == nil && dirty {
		err = durable.Write(m.File, text)
	}
	if err != nil {
		m.mu.Lock()
		m.dirty = true
		m.mu.Unlock()
		m.Logger.Warn("the bytes that were exchanged with the cloud cannot be written down; it is tried again", "file", m.File, "err", err)
	}
}
