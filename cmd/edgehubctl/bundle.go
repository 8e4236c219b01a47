package main

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/ota/api"
)

// webLink is the output of web as JSON, an interface to scripts.
type webLink struct {
	Link    string    `json:"link"`
	Expires time.Time `json:"expires"`
}

// web prints a link for a browser. The code is behind #, which a browser sends nowhere. Only the link is
// on stdout.
func web(ctx context.Context, c *call) error {
	var code api.Code
	if err := c.hub.Decode(ctx, http.MethodPost, api.WebCodes, &code); err != nil {
		return err
	}
	if code.Code == "" {
		return errors.New("the hub has sent no code, it may be of another version")
	}
	link := webLink{c.hub.URL() + api.Page + "#code=" + url.QueryEscape(code.Code), code.Expires}
	if c.output == "" {
		fmt.Fprintf(c.err, "Open it in a browser on this node, once, until %s.\nFrom another computer: see %s web --help.\n", link.Expires.Local().Format(time.TimeOnly), name)
	}
	return c.print(link, link.Link+"\n")
}

// written is the output of bundle as JSON, an interface to scripts.
type written struct {
	File  string `json:"file"`
	Bytes int64  `json:"bytes"`
}

// bundleTimeout is enough for a few MiB over a slow port forward.
const bundleTimeout = 5 * time.Minute

// writeBundle writes a support bundle to a new file, or to stdout.
func writeBundle(ctx context.Context, c *call) error {
	_, isTerminal := cli.Terminal(c.out)
	switch {
	case c.file == "-" && c.output != "":
		return cli.WrongUse("--output-file=- writes the bundle to stdout: leave --output out")
	case c.file == "-" && isTerminal:
		return cli.WrongUse("a bundle is no text for a terminal: leave --output-file=- out, or send it to a program")
	}
	limited, cancel := context.WithTimeoutCause(ctx, bundleTimeout, fmt.Errorf("the hub has not sent a whole bundle within %v", bundleTimeout))
	defer cancel()
	path, n, err := c.fetchBundle(limited)
	switch {
	case err != nil && ctx.Err() != nil:
		return cli.Errorf(cli.Undone, "interrupted: the bundle was not written")
	case err != nil || path == "-":
		return err
	}
	return c.print(written{path, n}, fmt.Sprintf("%s: %s\n", path, cli.Size(n)))
}

// fetchBundle writes a bundle to --output-file, or to a file with the name of the node and the time, and returns which.
func (c *call) fetchBundle(ctx context.Context) (path string, n int64, err error) {
	path = c.file
	if path == "" {
		var node api.NodeState
		if err := c.hub.Read(ctx, api.Node, &node); err != nil {
			return "", 0, err
		}
		path = bundleName(node.Node, time.Now())
	}
	response, err := c.hub.Do(ctx, http.MethodGet, api.Bundle)
	if err != nil {
		return "", 0, err
	}
	defer response.Body.Close()
	if path == "-" {
		n, err = copyBundle(cli.Raw(c.out), response.Body)
	} else {
		n, err = saveBundle(path, response.Body)
	}
	return path, n, err
}

// maxBundle is more than a hub sends, in bytes: what has taken its port must not fill the disk.
const maxBundle = 256 << 20

// bundleName is that of a bundle of a node, in the present folder.
func bundleName(node string, now time.Time) string {
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

// saveBundle writes a file that does not exist yet, of mode 0600, and removes it if that fails. It returns its
// bytes once they are on disk.
func saveBundle(path string, from io.Reader) (n int64, err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, fmt.Errorf("write the bundle: %w", err)
	}
	if n, err = copyBundle(f, from); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return 0, errors.Join(err, os.Remove(path))
	}
	return n, nil
}

// copyBundle writes a bundle to to, and returns its bytes. It fails unless all of a bundle has come. Only its end
// shows that: a hub that fails on the way cannot change its answer of 200.
func copyBundle(to io.Writer, from io.Reader) (int64, error) {
	count := &counter{to: to}
	from = io.TeeReader(io.LimitReader(from, maxBundle), count)
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
