package page

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// maxStreams is how many tabs may look at a time. Each costs a connection, and a comparison a second.
	maxStreams = 16
	// quiet is after which time without a change a comment is sent, so that the hub notices who is gone.
	quiet = 15 * time.Second
	// writeTimeout is how long a reader may take to take what is sent.
	writeTimeout = 30 * time.Second
)

// names are the names of the stream's events, in the order of latest.content.
var names = [...]string{"apps", "node", "events"}

// latest has what all streams send: sources are read once for all of them.
type latest struct {
	mu      sync.Mutex // held while the sources are read, so that others wait for that
	at      time.Time  // when they were read
	keys    [len(names)][]byte
	content [len(names)][]byte // a slice is replaced, and not changed
}

// read returns what the sources have, as JSON, each in one line.
func (p *Page) read() [len(names)][]byte {
	l := &p.latest
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.at) < p.Interval/2 {
		return l.content
	}
	apps, node, events := p.Apps(), p.Node(), p.Events()
	l.set(0, apps, apps)
	unchanged := node
	unchanged.Time = node.Time.Truncate(time.Minute) // it changes always
	l.set(1, unchanged, node)
	l.set(2, events, events)
	l.at = time.Now()
	return l.content
}

// set replaces the content if key has changed.
func (l *latest) set(i int, key, content any) {
	before := l.keys[i]
	now, err := json.Marshal(key)
	if err != nil || l.content[i] != nil && bytes.Equal(before, now) {
		return
	}
	if encoded, err := json.Marshal(content); err == nil {
		l.keys[i], l.content[i] = now, encoded
	}
}

// stream sends each source at first, and whenever it has changed, until the caller is gone or the hub stops.
func (p *Page) stream(w http.ResponseWriter, r *http.Request) {
	select {
	case p.streams <- struct{}{}:
		defer func() { <-p.streams }()
	default:
		http.Error(w, fmt.Sprintf("%d tabs and programs follow this node already: close one of them", maxStreams), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	ticker := time.NewTicker(p.Interval)
	defer ticker.Stop()
	client := listener{w: w, control: http.NewResponseController(w)}
	for client.send(p.read()) == nil {
		select {
		case <-ticker.C:
		case <-r.Context().Done():
			return
		case <-p.drained:
			return
		}
	}
}

// listener is one caller of the stream.
type listener struct {
	w       io.Writer
	control *http.ResponseController
	sent    [len(names)][]byte
	last    time.Time // when something was sent; zero: nothing
}

// send sends what has changed.
func (l *listener) send(content [len(names)][]byte) error {
	var out bytes.Buffer
	if l.last.IsZero() {
		out.WriteString("retry: 1000\n\n") // ms until a browser connects again after a restart of the hub
	} else if time.Since(l.last) >= quiet {
		out.WriteString(":\n\n")
	}
	for i, now := range content {
		if !bytes.Equal(now, l.sent[i]) {
			fmt.Fprintf(&out, "event: %s\ndata: %s\n\n", names[i], now)
			l.sent[i] = now
		}
	}
	if out.Len() == 0 {
		return nil
	}
	l.last = time.Now()
	if err := l.control.SetWriteDeadline(l.last.Add(writeTimeout)); err != nil {
		return err
	}
	if _, err := out.WriteTo(l.w); err != nil {
		return err
	}
	return l.control.Flush()
}

// Drain ends all streams, and those that begin later. Browsers connect again.
func (p *Page) Drain() { p.drain.Do(func() { close(p.drained) }) }
