package spool

import (
	"container/list"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	wal "github.com/edgehub-io/edgehub/cache/log"
)

// ErrFull is returned when an event would exceed a bound of the spool, and nobody holds more than
// its owner: 503, after which a recorder tries again for some minutes.
var ErrFull = errors.New("the spool of events is full")

// Options of a Spool. The zero value is usable.
type Options struct {
	MaxCount int // of events; 5,000 by default, negative for none

	// MaxBytes bounds the encoded events and the tokens that they are sent with: 4 MiB by
	// default, negative for none. An event has about 600 bytes, and a token 1,000.
	MaxBytes int64

	Logger     *slog.Logger          // none by default
	Registerer prometheus.Registerer // of metrics; none by default
}

// Table is the name of the log's table. It is to be kept if a file that is opened late is begun anew: nobody else has the
// events that are in it.
const Table = "events"

// Spool holds the events that wait for the cloud.
type Spool struct {
	table   *wal.Table
	opts    Options
	log     *slog.Logger
	metrics *metrics
	replays chan struct{} // holds one token while a Replay runs

	mu     sync.Mutex
	order  *list.List // of *entry, oldest first, but for those at which an apiserver has failed
	byName map[name]*list.Element
	bytes  int64
	last   uint64 // number of the newest event
}

// name names an event of a caller. What others post under the same name is another event: nobody has to be allowed
// anything to post one while the cloud is away.
type name struct {
	user, event string // the event is namespace/name
}

// entry is the index entry of an event.
type entry struct {
	number        uint64
	name          name
	size          int64  // of its record and its Authorization header
	authorization string // header of a caller that is not the node

	failures int // of apiservers at it
}

// New returns an empty spool, which keeps its events in t; Load reads those that are there.
func New(t *wal.Table, o Options) *Spool {
	if o.MaxCount == 0 {
		o.MaxCount = 5000
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 4 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Spool{
		table:   t,
		opts:    o,
		log:     o.Logger,
		metrics: newMetrics(o.Registerer),
		replays: make(chan struct{}, 1),
		order:   list.New(),
		byName:  make(map[name]*list.Element),
		// The numbers of this process must not be those of events in a file that is opened late, also where
		// the clock was set back. By time, they are in the right order after a restart.
		last: uint64(time.Now().UnixNano() + rand.Int64N(int64(time.Second))),
	}
}

// Len is the number of events that wait.
func (s *Spool) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.order.Len()
}

// pushLocked puts an entry before another one, or behind all if that is nil.
func (s *Spool) pushLocked(e *entry, before *list.Element) {
	element := s.order.PushBack(e)
	if before != nil {
		s.order.MoveBefore(element, before)
	}
	s.byName[e.name] = element
	s.last = max(s.last, e.number)
	s.addBytesLocked(e.size)
}

// addBytesLocked updates the size and the metrics.
func (s *Spool) addBytesLocked(n int64) {
	s.bytes += n
	s.metrics.bytes.Set(float64(s.bytes))
	s.metrics.events.Set(float64(s.order.Len()))
}

// remove removes an event, if it is still there.
func (s *Spool) remove(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeLocked(e)
}

func (s *Spool) removeLocked(e *entry) {
	element := s.byName[e.name]
	if element == nil || element.Value.(*entry).number != e.number {
		return
	}
	delete(s.byName, e.name)
	s.order.Remove(element)
	s.addBytesLocked(-element.Value.(*entry).size)
	s.table.Delete(key(e.number))
}

// first returns the event to send. It drops unreadable ones.
func (s *Spool) first() (entry, record, bool) {
	for {
		e, ok := s.front()
		if !ok {
			return entry{}, record{}, false
		}
		if r, ok := s.read(&e); ok {
			return e, r, true
		}
		s.metrics.dropped.WithLabelValues(reasonUnreadable).Inc()
		s.remove(&e)
	}
}

func (s *Spool) front() (entry, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if front := s.order.Front(); front != nil {
		return *front.Value.(*entry), true
	}
	return entry{}, false
}

func (s *Spool) read(e *entry) (record, bool) {
	value, _ := s.table.Get(key(e.number))
	r, err := parse(value)
	return r, err == nil
}
