// Package bundlefile writes support bundles, which are tar.gz files, as a hub sends them.
package bundlefile

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// most is more than a hub sends, in bytes: what has taken its port must not fill the disk.
const most = 256 << 20

// Name is that of a bundle of a node, in the present folder.
func Name(node string, now time.Time) string {
	return fmt.Sprintf("edgehub-%s-%s.tar.gz", fileName(node), now.UTC().Format("20060102T150405Z"))
}

// fileName is the name of a node, without what leads to another folder.
func fileName(node string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '.' {
			return r
		}
		return '_'
	}, node)
}

// Save writes a file that does not exist yet, of mode 0600, and removes it if that fails. It returns its
// bytes once they are on disk.
func Save(path string, from io.Reader) (n int64, err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, fmt.Errorf("write the bundle: %w", err)
	}
	if n, err = Copy(f, from); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return 0, errors.Join(err, os.Remove(path))
	}
	return n, nil
}

// Copy writes a bundle to to, and returns its bytes. It fails unless all of a bundle has come. Only its end
// shows that: a hub that fails on the way cannot change its answer of 200.
func Copy(to io.Writer, from io.Reader) (int64, error) {
	count := &counter{to: to}
	from = io.TeeReader(io.LimitReader(from, most), count)
	compressed, err := gzip.NewReader(from)
	if err == nil {
		_, err = io.Copy(io.Discard, compressed) //nolint:gosec // kept nowhere, and ends with the answer
	}
	switch {
	case count.err != nil:
		return 0, fmt.Errorf("write the bundle: %w", count.err)
	case err != nil:
		return 0, fmt.Errorf("the hub has not sent a whole bundle: %w", err)
	}
	return count.n, nil
}

// counter counts what it writes, and keeps the error.
type counter struct {
	to  io.Writer
	n   int64
	err error
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.n += int64(n)
	c.err = err
	return n, err
}
