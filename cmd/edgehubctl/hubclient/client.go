// Package hubclient sends requests to the API of the hub on this node. All of it is safe for concurrent
// use.
package hubclient

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/ota/api"
)

// answerTimeout bounds one answer. The hub itself gives up on the cloud after 30 s,
// and says so.
const answerTimeout = 40 * time.Second

// maxAnswer bounds one answer, in bytes. Of a node, the pods are the longest: 250 with 100 KB each would have 25 MB.
const maxAnswer = 64 << 20

// Client is the API of the hub on this node.
type Client struct {
	scheme  string
	address string
	client  *http.Client
}

// New returns a client of the hub that listens on address, HOST:PORT. It sends nothing yet. An error is about
// the command line.
func New(address string, files TLSFiles) (*Client, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "" {
		return nil, cli.WrongUse("--address=%q: want HOST:PORT, such as 127.0.0.1:10267", address)
	}
	if host == "" {
		address = net.JoinHostPort("127.0.0.1", port)
	}
	config, err := files.config()
	if err != nil {
		return nil, err
	}
	scheme := "http"
	if config != nil {
		scheme = "https"
	}
	// Not through a proxy, whatever the environment says: it is this node.
	return &Client{scheme, address, &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: config}}}, nil
}

// Address returns HOST:PORT of the hub.
func (h *Client) Address() string { return h.address }

// URL returns scheme://HOST:PORT of the hub.
func (h *Client) URL() string { return h.scheme + "://" + h.address }

// APIError is an answer other than 200 and 202; Text is the hub's message.
type APIError struct {
	Code int
	Text string
}

func (r *APIError) Error() string { return r.Text }

// exitCode is that of the program which the answer ends.
func (r *APIError) exitCode() int {
	switch r.Code {
	case http.StatusForbidden, http.StatusConflict, http.StatusServiceUnavailable:
		return cli.NotNow
	}
	return cli.Failed
}

// UnreachableError is returned when nothing answered.
type UnreachableError struct {
	address string
	err     error
}

func (s *UnreachableError) Error() string {
	if errors.Is(s.err, syscall.ECONNREFUSED) {
		return fmt.Sprintf("the hub does not answer on %s: is it running? systemctl status edgehub", s.address)
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](s.err); ok {
		return fmt.Sprintf("what answers on %s is not known to be the hub: %v; --certificate-authority names its certificate, ROOT-DIR/pki/serving.crt on the node, or the CA of --tls-cert-file", s.address, s.err)
	}
	return fmt.Sprintf("the hub does not answer on %s: %v", s.address, s.err)
}

func (s *UnreachableError) Unwrap() error { return s.err }

// Do returns an answer of 200 or 202, whose body the caller closes, or a *APIError, or a
// *UnreachableError.
func (h *Client) Do(ctx context.Context, method, path string) (*http.Response, error) {
	return h.do(ctx, method, path, nil)
}

func (h *Client) do(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, h.URL()+path, bytes.NewReader(body))
	if err != nil {
		return nil, cli.WrongUse("--address=%q: %w", h.address, err)
	}
	request.Header.Set("User-Agent", "edgehubctl/"+cli.Version())
	response, err := h.client.Do(request)
	if err != nil {
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil, &cli.Error{Code: cli.Undone, Err: context.Cause(ctx)}
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // without the URL, which nobody has typed
		}
		return nil, &UnreachableError{h.address, err}
	}
	if response.StatusCode == http.StatusOK || response.StatusCode == http.StatusAccepted {
		return response, nil
	}
	defer response.Body.Close()
	const enough = 4096
	text, _ := io.ReadAll(io.LimitReader(response.Body, enough)) // what arrived is shown
	line := strings.Join(strings.Fields(string(text)), " ")
	if line == "" {
		line = "the hub answered " + response.Status + " to " + method + " " + path
	}
	if h.scheme == "http" && response.StatusCode == http.StatusBadRequest && strings.Contains(line, "HTTPS server") {
		line = "the hub on " + h.address + " wants TLS and a client certificate: add --certificate-authority, --client-certificate and --client-key"
	}
	refusal := &APIError{response.StatusCode, line}
	return nil, &cli.Error{Code: refusal.exitCode(), Err: refusal}
}

// whole sends a body, which may be nil, and returns the whole body of the answer, its code, and its header.
func (h *Client) whole(ctx context.Context, method, path string, send []byte) (body []byte, code int, header http.Header, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTimeout, &UnreachableError{h.address, fmt.Errorf("no answer within %v", answerTimeout)})
	defer cancel()
	response, err := h.do(ctx, method, path, send)
	if err != nil {
		return nil, 0, nil, err
	}
	defer response.Body.Close()
	if body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer+1)); err != nil {
		err = &UnreachableError{h.address, fmt.Errorf("its answer broke off: %w", err)}
		if errors.Is(ctx.Err(), context.Canceled) { // it may have done what was asked
			err = &cli.Error{Code: cli.Undone, Err: err}
		}
		return nil, 0, nil, err
	}
	if len(body) > maxAnswer {
		return nil, 0, nil, fmt.Errorf("%s %s: what answers on %s is no hub: it sends more than %d MiB", method, path, h.address, maxAnswer>>20)
	}
	return body, response.StatusCode, response.Header, nil
}

// Ask sends a request and returns the hub's answer, a line of text, and one more for each warning.
func (h *Client) Ask(ctx context.Context, method, path string) (string, error) {
	answer, _, err := h.Send(ctx, method, path)
	return answer, err
}

// Send is Ask, and returns whether what was asked for waits, or goes on by itself: the answer is 202.
func (h *Client) Send(ctx context.Context, method, path string) (answer string, waits bool, err error) {
	body, code, header, err := h.whole(ctx, method, path, nil)
	switch {
	case err != nil && ctx.Err() != nil && method != http.MethodGet:
		return "", false, fmt.Errorf("%w; the hub may carry out %s %s all the same", err, method, path)
	case err != nil:
		return "", false, err
	}
	answer = strings.TrimSpace(string(body))
	warnings, _ := utilnet.ParseWarningHeaders(header.Values("Warning")) // those that can be read
	for _, w := range warnings {
		answer += "\nWarning: " + w.Text
	}
	return answer, code == http.StatusAccepted, nil
}

// Read decodes the answer to a GET.
func (h *Client) Read(ctx context.Context, path string, into any) error {
	return h.Decode(ctx, http.MethodGet, path, into)
}

// Decode sends a request, and decodes the answer.
func (h *Client) Decode(ctx context.Context, method, path string, into any) error {
	return h.decode(ctx, method, path, nil, into)
}

// Post sends a POST with a body, and decodes the answer.
func (h *Client) Post(ctx context.Context, path string, body []byte, into any) error {
	return h.decode(ctx, http.MethodPost, path, body, into)
}

func (h *Client) decode(ctx context.Context, method, path string, send []byte, into any) error {
	body, _, _, err := h.whole(ctx, method, path, send)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%s %s: what answers on %s is no hub, or of another version: %w", method, path, h.address, err)
	}
	return nil
}

// IsPassing reports whether a later attempt may succeed, as after a restart of the hub.
func IsPassing(err error) bool {
	if r, ok := errors.AsType[*APIError](err); ok {
		return r.Code >= http.StatusInternalServerError && r.Code != http.StatusNotImplemented
	}
	_, ok := errors.AsType[*UnreachableError](err)
	return ok
}

// Pods returns the pods of this node, by namespace and name.
func (h *Client) Pods(ctx context.Context) ([]*corev1.Pod, error) {
	var list corev1.PodList
	if err := h.Read(ctx, api.Pods, &list); err != nil {
		return nil, err
	}
	var pods []*corev1.Pod
	for i := range list.Items {
		pods = append(pods, &list.Items[i])
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return pods, nil
}

// ImagePulls returns the queue of images. A hub that pulls none has none.
func (h *Client) ImagePulls(ctx context.Context) ([]api.ImagePull, error) {
	var list api.ImagePullList
	err := h.Read(ctx, api.ImagePulls, &list)
	return list.Items, err
}

// Upgrades returns the upgrades and rollbacks that wait, are in progress, or have ended of late.
func (h *Client) Upgrades(ctx context.Context) (api.UpgradeList, error) {
	var list api.UpgradeList
	err := h.Read(ctx, api.Upgrades, &list)
	for i := range list.Items {
		list.Items[i].Message = strings.Join(strings.Fields(list.Items[i].Message), " ") // nothing in it looks like a line of ours
	}
	return list, err
}
