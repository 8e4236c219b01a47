package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/edgehub-io/edgehub/cmd/internal/version"
)

// answerTimeout bounds one answer. The hub itself gives up on the cloud after 30 s,
// and says so.
const answerTimeout = 40 * time.Second

// hub is the API of the hub on this node.
type hub struct {
	scheme  string
	address string
	client  *http.Client
}

func newHub(address string, files tlsFiles) (*hub, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "" {
		return nil, wrongUse("--address=%q: want HOST:PORT, such as 127.0.0.1:10267", address)
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
	return &hub{scheme, address, &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: config}}}, nil
}

// apiError is an answer other than 200 and 202; text is the hub's message.
type apiError struct {
	code int
	text string
}

func (r *apiError) Error() string { return r.text }

// unreachableError is returned when nothing answered.
type unreachableError struct {
	address string
	err     error
}

func (s *unreachableError) Error() string {
	if errors.Is(s.err, syscall.ECONNREFUSED) {
		return fmt.Sprintf("the hub does not answer on %s: is it running? systemctl status edgehub", s.address)
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](s.err); ok {
		return fmt.Sprintf("what answers on %s is not known to be the hub: %v; --certificate-authority names its certificate, ROOT-DIR/pki/serving.crt on the node, or the CA of --tls-cert-file", s.address, s.err)
	}
	return fmt.Sprintf("the hub does not answer on %s: %v", s.address, s.err)
}

func (s *unreachableError) Unwrap() error { return s.err }

// do returns an answer of 200 or 202, whose body the caller closes, or a *apiError, or a
// *unreachableError.
func (h *hub) do(ctx context.Context, method, path string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, h.scheme+"://"+h.address+path, http.NoBody)
	if err != nil {
		return nil, wrongUse("--address=%q: %w", h.address, err)
	}
	request.Header.Set("User-Agent", name+"/"+version.Get().Version)
	response, err := h.client.Do(request)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // without the URL, which nobody has typed
		}
		return nil, &unreachableError{h.address, err}
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
	return nil, &apiError{response.StatusCode, line}
}

// whole returns the whole body of an answer, and its code.
func (h *hub) whole(ctx context.Context, method, path string) (body []byte, code int, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTimeout, &unreachableError{h.address, fmt.Errorf("no answer within %v", answerTimeout)})
	defer cancel()
	response, err := h.do(ctx, method, path)
	if err != nil {
		return nil, 0, err
	}
	defer response.Body.Close()
	if body, err = io.ReadAll(response.Body); err != nil {
		return nil, 0, &unreachableError{h.address, fmt.Errorf("its answer broke off: %w", err)}
	}
	return body, response.StatusCode, nil
}

// ask sends a request and returns the hub's answer, a line of text.
func (h *hub) ask(ctx context.Context, method, path string) (string, error) {
	answer, _, err := h.send(ctx, method, path)
	return answer, err
}

// send is ask, and returns whether what was asked for waits, or goes on by itself: the answer is 202.
func (h *hub) send(ctx context.Context, method, path string) (answer string, waits bool, err error) {
	body, code, err := h.whole(ctx, method, path)
	if method != http.MethodGet && (errors.Is(err, errTimeout) || errors.Is(err, context.Canceled)) {
		err = endf(exitUndone, "%w; the hub may carry out %s %s all the same", err, method, path)
	}
	return strings.TrimSpace(string(body)), code == http.StatusAccepted, err
}

// read decodes the answer to a GET.
func (h *hub) read(ctx context.Context, path string, into any) error {
	body, _, err := h.whole(ctx, http.MethodGet, path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("GET %s: what answers on %s is no hub, or of another version: %w", path, h.address, err)
	}
	return nil
}

// readIfKnown is read, and leaves into unchanged if the hub does not know path.
func (h *hub) readIfKnown(ctx context.Context, path string, into any) error {
	err := h.read(ctx, path, into)
	if r, ok := errors.AsType[*apiError](err); ok && r.code == http.StatusNotFound {
		return nil
	}
	return err
}

// askNew is ask for what older hubs do not have.
func (c *call) askNew(ctx context.Context, method, path string) (string, error) {
	answer, err := c.hub.ask(ctx, method, path)
	return answer, orTooOld(err)
}

// orTooOld returns err, or that the hub is too old if it failed because the hub has no such path or method.
func orTooOld(err error) error {
	r, ok := errors.AsType[*apiError](err)
	if ok && (r.code == http.StatusMethodNotAllowed || r.code == http.StatusNotFound && strings.HasPrefix(r.text, "no such path")) {
		return endf(exitFailed, "this hub cannot do that, it is older than %s: update edgehub on this node", name)
	}
	return err
}

// isPassing reports whether a later attempt may succeed, as after a restart of the hub.
func isPassing(err error) bool {
	if r, ok := errors.AsType[*apiError](err); ok {
		return r.code >= http.StatusInternalServerError && r.code != http.StatusNotImplemented
	}
	_, ok := errors.AsType[*unreachableError](err)
	return ok
}

// tlsFiles are PEM files for a hub that offers its API over TLS; all empty: it is
// plain HTTP.
type tlsFiles struct{ ca, cert, key string }

// config returns nil for plain HTTP.
func (f tlsFiles) config() (*tls.Config, error) {
	if f == (tlsFiles{}) {
		return nil, nil
	}
	if (f.cert == "") != (f.key == "") {
		return nil, wrongUse("--client-certificate goes with --client-key: give both or neither")
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.ca != "" {
		pem, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, wrongUse("--certificate-authority: %w", err)
		}
		config.RootCAs = x509.NewCertPool() // in place of the system's
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, wrongUse("--certificate-authority: %s holds no PEM certificate", f.ca)
		}
	}
	if f.cert != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return nil, wrongUse("--client-certificate, --client-key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
