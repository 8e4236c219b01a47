package limits

import (
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// slowClient takes 1 MB a second, and notices when it is cut.
type slowClient struct {
	*httptest.ResponseRecorder
	cut bool
}

func (c *slowClient) Write(p []byte) (int, error) {
	time.Sleep(time.Duration(len(p)) * time.Microsecond)
	return c.ResponseRecorder.Write(p)
}

func (c *slowClient) SetWriteDeadline(time.Time) error {
	c.cut = true
	return nil
}

func TestAClientThatReadsALargeObjectSlowlyIsNotCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 4 << 20
		client := &slowClient{ResponseRecorder: httptest.NewRecorder()}
		n, err := NewResponseWriter(client, NewEviction(0, UnreadGrace)).Write(make([]byte, size))
		if n != size || err != nil || client.Body.Len() != size {
			t.Errorf("%d bytes written, %d arrived: %v", n, client.Body.Len(), err)
		}
		if client.cut {
			t.Error("it was cut, though it reads")
		}
		synctest.Wait()
		time.Sleep(2 * UnreadGrace) // the timer of the crowd ends
	})
}
