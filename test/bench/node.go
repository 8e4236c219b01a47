package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// watchedLimit is how long a read may take that the hub answers by itself, because a watch keeps
// what it reads current.
const watchedLimit = 0.7

// node compares how kubelet reads its Node: at resourceVersion=0, while it watches it.
func (b *bench) node(ctx context.Context) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "bench"}}
	if _, err := b.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return err
	}
	watching, leave := context.WithCancel(ctx)
	defer leave()
	if err := b.overTLS[1].watchNode(watching); err != nil {
		return err
	}
	get, err := b.requests(ctx, "GET Node rv=0 as kubelet, watched, p50", "/api/v1/nodes/bench?resourceVersion=0", getsPerRound, b.overTLS, watchedLimit)
	if err != nil {
		return err
	}
	b.show(get.row())
	return nil
}

// watchNode opens a watch as kubelet's, until ctx ends, and returns when it has shown what there is.
func (t *target) watchNode(ctx context.Context) error {
	const path = "/api/v1/nodes?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&fieldSelector=metadata.name%3Dbench"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.url+path, http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", protobuf)
	res, err := t.client.Do(req) //nolint:bodyclose // it ends with ctx
	if err != nil {
		return err
	}
	body := bufio.NewReader(res.Body)
	for text := ""; !strings.Contains(text, metav1.InitialEventsAnnotationKey); {
		b, err := body.ReadByte()
		if err != nil {
			return fmt.Errorf("%s, %s: %w", path, res.Status, err)
		}
		text += string(rune(b))
	}
	go io.Copy(io.Discard, body) //nolint:errcheck // it ends with ctx
	return nil
}
