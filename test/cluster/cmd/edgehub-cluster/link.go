package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/cluster/link"
)

// linkSocket is where serve takes the requests of changeLink.
func linkSocket(dir string) string { return filepath.Join(dir, cluster.LinkSocket) }

// changeLink asks the cluster in the background to break or mend the link of a node.
func changeLink(ctx context.Context, args []string) error {
	fs := pflag.NewFlagSet("link", pflag.ContinueOnError)
	dir := dirFlag(fs)
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() != 2 {
		return errors.New("link takes the name of a node, and down or up")
	}
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", linkSocket(*dir))
	}}}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://cluster/", nil)
	if err != nil {
		return err
	}
	request.URL = request.URL.JoinPath(fs.Arg(0), fs.Arg(1))
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("ask the cluster in %s: %w", *dir, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("link %s %s: %s; name a node of the cluster, and down or up", fs.Arg(0), fs.Arg(1), response.Status)
	}
	return nil
}

// serveLinks serves changeLink until closed is called.
func serveLinks(ctx context.Context, dir string, links map[string]*link.Link) (closed func(), err error) {
	_ = os.Remove(linkSocket(dir)) // of a cluster that was killed
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", linkSocket(dir))
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: linkHandler(links), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	return func() { _ = server.Close() }, nil
}

// linkHandler takes PUT /NODE/down and PUT /NODE/up. A link that is down refuses, and breaks what is established.
func linkHandler(links map[string]*link.Link) http.Handler {
	mux := http.NewServeMux()
	handle := func(mode string, set func(*link.Link) error) {
		mux.HandleFunc("PUT /{node}/"+mode, func(w http.ResponseWriter, r *http.Request) {
			l := links[r.PathValue("node")]
			if l == nil {
				http.NotFound(w, r)
			} else if err := set(l); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		})
	}
	handle("up", (*link.Link).Up)
	handle("down", func(l *link.Link) error {
		err := l.Refuse()
		l.Reset()
		return err
	})
	return mux
}
