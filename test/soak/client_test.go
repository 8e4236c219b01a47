package soak_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/test/internal/rawclient"
)

// patience is how long any answer may take: a black hole is distinguished from a slow apiserver
// within three seconds, and the machine may be busy.
const patience = 15 * time.Second

// client is one program on the node, with connections of its own.
type client struct {
	w     *world
	name  string
	index int       // of the pod; -1: the kubelet
	uid   types.UID // of the pod
	base  string    // URL of the port
	token string    // empty: the node's identity is lent to it
	http  *http.Client
	kube  kubernetes.Interface
}

// newNodeClient is the kubelet: plain HTTP, no credentials.
func newNodeClient(w *world) *client {
	c := &client{w: w, name: "kubelet", index: -1, base: w.hub.Plain, http: rawclient.New(nil, false)}
	w.must(c.prepare("application/vnd.kubernetes.protobuf"))
	return c
}

// newPodClient is a pod: every other one speaks HTTP/2 over TLS, the rest plain HTTP. Of
// either, half want JSON.
func newPodClient(w *world, i int, pod *corev1.Pod) (*client, error) {
	c := &client{w: w, name: pod.Name, index: i, uid: pod.UID, base: w.hub.Plain, http: rawclient.New(nil, false)}
	if i%2 == 0 {
		c.base = fmt.Sprintf("https://127.0.0.1:%d", w.hub.SecurePort)
		roots := rawclient.Roots(w.t, filepath.Join(w.hub.Root, "pki", "serving.crt"))
		c.http = rawclient.New(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, true)
	}
	var issued authenticationv1.TokenRequest
	var a answer
	asked := w.within(patience, func() bool {
		a = w.node.do(w.t.Context(), request{
			method: http.MethodPost, path: "/api/v1/namespaces/" + namespace + "/serviceaccounts/" + accountName(i) + "/token",
			body: tokenRequest(pod.Name, pod.UID),
		})
		return a.code != http.StatusNotFound && a.code != http.StatusForbidden // admission and authorization hear of the pod a moment later
	})
	if a.err != nil {
		return nil, a.err
	}
	if !asked || a.code != http.StatusCreated {
		return nil, fmt.Errorf("token for %s: %d %.300s", pod.Name, a.code, a.body)
	}
	if err := json.Unmarshal(a.body, &issued); err != nil {
		return nil, err
	}
	c.token = issued.Status.Token
	encoding := "application/vnd.kubernetes.protobuf"
	if i/accounts%2 == 0 {
		encoding = "application/json"
	}
	err := c.prepare(encoding)
	return c, err
}

// prepare makes the client-go client over the same connections.
func (c *client) prepare(encoding string) error {
	plain := c.http.Transport
	c.http.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		if c.token != "" {
			r = r.Clone(r.Context())
			r.Header.Set("Authorization", "Bearer "+c.token)
		}
		return plain.RoundTrip(r)
	})
	watched := &http.Client{Transport: roundTripper(c.watched)}
	config := &rest.Config{Host: c.base, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: encoding, AcceptContentTypes: encoding + ",application/json"}}
	var err error
	c.kube, err = kubernetes.NewForConfigAndClient(config, watched)
	return err
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// watched carries the requests of reflectors, which must all succeed, and whose streams
// must not break.
func (c *client) watched(r *http.Request) (*http.Response, error) {
	res, err := c.http.Transport.RoundTrip(r)
	switch {
	case r.Context().Err() != nil:
	case err != nil:
		c.w.problems.add("no answer to a reflector", "%s: %s: %v", c.name, r.URL, err)
	case res.StatusCode != http.StatusOK && res.StatusCode != http.StatusGone: // see follower.failed
		body, _ := io.ReadAll(io.LimitReader(res.Body, 2000))
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(body), res.Body), res.Body}
		c.w.problems.add(fmt.Sprintf("%d to a reflector", res.StatusCode), "%s: %s: %s", c.name, r.URL, body)
	default:
		res.Body = &stream{ReadCloser: res.Body, ended: func(err error) {
			if r.Context().Err() == nil {
				c.w.problems.add("a stream that broke", "%s: %s: %v", c.name, r.URL, err)
			}
		}}
	}
	return res, err
}

// stream is a body that reports when it breaks before its reader has closed it.
type stream struct {
	io.ReadCloser
	closed atomic.Bool
	ended  func(error)
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) && !s.closed.Load() {
		s.ended(err)
	}
	return n, err
}

func (s *stream) Close() error {
	s.closed.Store(true)
	return s.ReadCloser.Close()
}

// request is one that is no watch.
type request struct {
	method, path string
	content      string // type of the body, JSON if empty
	accept       string // JSON if empty
	body         any
}

type answer struct {
	code   int
	header http.Header
	body   []byte
	err    error
	began  time.Time
	ended  time.Time
}

// do carries out a request, which must be answered within patience.
func (c *client) do(ctx context.Context, r request) (a answer) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	a.began = time.Now()
	defer func() { a.ended = time.Now() }()
	var body io.Reader = http.NoBody
	if r.body != nil {
		content, err := json.Marshal(r.body)
		if err != nil {
			a.err = err
			return a
		}
		body = bytes.NewReader(content)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, c.base+r.path, body)
	if err != nil {
		a.err = err
		return a
	}
	req.Header.Set("Content-Type", orJSON(r.content))
	req.Header.Set("Accept", orJSON(r.accept))
	res, err := c.http.Do(req)
	if err != nil {
		a.err = err
		return a
	}
	defer res.Body.Close()
	a.code, a.header = res.StatusCode, res.Header
	a.body, a.err = io.ReadAll(res.Body)
	return a
}

func orJSON(contentType string) string {
	if contentType == "" {
		return "application/json"
	}
	return contentType
}
