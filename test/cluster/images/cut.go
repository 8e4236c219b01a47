package images

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"time"
)

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
		_ = tcp.Close()
		return errCut
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
