package images

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/time/rate"
)

// answerChunk is how much of an answer is sent between two looks at the rate and
// at where it is to be cut.
const answerChunk = 16 << 10

// faults is what has been set to go wrong.
type faults struct {
	limit *rate.Limiter

	mu      sync.Mutex
	answers []override        // the latest first
	cuts    map[string][]*cut // by digest
}

// override is answered in place of what the registry has.
type override struct {
	part    string // of the path
	handler http.HandlerFunc
}

func newFaults() faults {
	return faults{limit: rate.NewLimiter(rate.Inf, answerChunk), cuts: map[string][]*cut{}}
}

// SetRate sends at most so many bytes a second, in all answers together; 0 is the
// start: as fast as it goes.
func (r *Registry) SetRate(bytesPerSecond int) {
	limit := rate.Limit(bytesPerSecond)
	if bytesPerSecond == 0 {
		limit = rate.Inf
	}
	r.faults.limit.SetLimit(limit)
}

// Answer has a handler answer requests whose path has part in it, whoever asks. A
// later Answer goes before earlier ones; with nil, the registry itself answers. The
// handler may be one that changes a request, or an answer, around Respond.
func (r *Registry) Answer(part string, handler http.HandlerFunc) {
	r.faults.mu.Lock()
	defer r.faults.mu.Unlock()
	r.faults.answers = append([]override{{part, handler}}, r.faults.answers...)
}

// Say answers with a code, a body, and a header in pairs.
func Say(code int, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	}
}

func (f *faults) answer(path string) http.HandlerFunc {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.answers {
		if strings.Contains(path, a.part) {
			return a.handler
		}
	}
	return nil
}

// Cut is a way in which an answer ends too early.
type Cut int

const (
	// Reset breaks the connection with a TCP reset.
	Reset Cut = iota
	// Finish closes the connection in an orderly way, as if all had been sent.
	Finish
	// Hang sends nothing more, and leaves the connection open until the client
	// closes it.
	Hang
)

// drainTimeout is how long the client may take to receive what was sent before the
// cut. It is more than a client that has hung is worth waiting for.
const drainTimeout = 5 * time.Second

var errCut = errors.New("the answer is cut, as asked for")

// cut is due in one answer.
type cut struct {
	after int64 // bytes
	way   Cut
}

// CutAfter cuts the next answer that holds the blob right behind its n-th byte, in
// the given way. Each further call is for one answer more.
func (r *Registry) CutAfter(digest v1.Hash, n int64, way Cut) {
	r.faults.mu.Lock()
	defer r.faults.mu.Unlock()
	key := digest.String()
	r.faults.cuts[key] = append(r.faults.cuts[key], &cut{after: n, way: way})
}

func (f *faults) nextCut(digest string) *cut {
	f.mu.Lock()
	defer f.mu.Unlock()
	due := f.cuts[digest]
	if len(due) == 0 {
		return nil
	}
	f.cuts[digest] = due[1:]
	return due[0]
}

// make cuts the answer once the client has received all of it so far.
func (c *cut) make(w http.ResponseWriter, req *http.Request) error {
	control := http.NewResponseController(w)
	if err := control.Flush(); err != nil {
		return err
	}
	if c.way == Hang {
		<-req.Context().Done()
		return errCut
	}
	conn, _, err := control.Hijack()
	if err != nil {
		return err
	}
	raw := conn
	if secure, ok := conn.(*tls.Conn); ok {
		raw = secure.NetConn()
	}
	tcp := raw.(*limitedConn)
	drain(req.Context(), tcp)
	if c.way == Reset {
		_ = tcp.SetLinger(0)
		conn = tcp
	}
	_ = conn.Close()
	return errCut
}

// drain returns when the client's kernel has all that was sent: a reset discards
// what is still here, and what is counted would be more than what was received.
func drain(ctx context.Context, conn *limitedConn) {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	ticker := time.NewTicker(awaitPeriod)
	defer ticker.Stop()
	for conn.unsent() > 0 {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
