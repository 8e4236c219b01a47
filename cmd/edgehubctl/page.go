package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/edgehub-io/edgehub/cmd/edgehubctl/bundlefile"
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
	if err := orTooOld(c.hub.Decode(ctx, http.MethodPost, api.WebCodes, &code)); err != nil {
		return err
	}
	if code.Code == "" {
		return errors.New("the hub has sent no code, it may be of another version")
	}
	link := webLink{c.hub.URL() + api.Page + "#code=" + url.QueryEscape(code.Code), code.Expires}
	if c.output == "json" {
		return printJSON(c.out, link)
	}
	fmt.Fprintln(c.out, link.Link)
	fmt.Fprintf(c.err, "Open it in a browser on this node, once, until %s.\nFrom another computer: see %s web --help.\n", link.Expires.Local().Format(time.TimeOnly), name)
	return nil
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
	if _, isTerminal := cli.Terminal(c.out); c.file == "-" && isTerminal {
		return wrongUse("a bundle is no text for a terminal: leave --output-file=- out, or send it to a program")
	}
	path, err := c.bundlePath(ctx)
	if err != nil {
		return interrupted(ctx, err)
	}
	limited, cancel := context.WithTimeoutCause(ctx, bundleTimeout, fmt.Errorf("the hub has not sent a whole bundle within %v", bundleTimeout))
	defer cancel()
	response, err := c.hub.Do(limited, http.MethodGet, api.Bundle)
	if err != nil {
		return interrupted(ctx, orTooOld(err))
	}
	defer response.Body.Close()
	if path == "-" {
		_, err = bundlefile.Copy(cli.Raw(c.out), response.Body)
		return interrupted(ctx, err)
	}
	n, err := bundlefile.Save(path, response.Body)
	switch {
	case err != nil:
		return interrupted(ctx, err)
	case c.output == "json":
		return printJSON(c.out, written{path, n})
	}
	fmt.Fprintf(c.out, "%s: %s\n", path, cli.Size(n))
	return nil
}

// interrupted returns err, or that somebody has interrupted the command if that is why.
func interrupted(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return endf(exitUndone, "interrupted: the bundle was not written")
	}
	return err
}

// bundlePath is --output-file, or a name with that of the node and the time.
func (c *call) bundlePath(ctx context.Context) (string, error) {
	if c.file != "" {
		return c.file, nil
	}
	var node api.NodeState
	if err := orTooOld(c.hub.Read(ctx, api.Node, &node)); err != nil {
		return "", err
	}
	return bundlefile.Name(node.Node, time.Now()), nil
}
