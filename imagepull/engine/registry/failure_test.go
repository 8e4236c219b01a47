package registry

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	remoteerrors "github.com/containerd/containerd/v2/core/remotes/errors"
	"github.com/containerd/errdefs"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

func TestRegistryFailure(t *testing.T) {
	asked := func(cause error) error {
		return fmt.Errorf("failed to do request: %w", &url.Error{Op: "Get", URL: "https://storage.example.com/x?Signature=s3cr3t", Err: &connError{cause: cause}})
	}
	answered := func(code int) error {
		return remoteerrors.ErrUnexpectedStatus{
			Status: fmt.Sprintf("%d %s", code, http.StatusText(code)), StatusCode: code, RequestMethod: "GET",
			RequestURL: "https://me:s3cr3t@storage.example.com/x?token=s3cr3t",
		}
	}
	tests := map[string]struct {
		err    error
		reason engineapi.Reason
		says   string
	}{
		"nobody listens":             {asked(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), engineapi.Unreachable, "nobody takes the connection"},
		"no route":                   {asked(&net.OpError{Op: "dial", Err: syscall.EHOSTUNREACH}), engineapi.Unreachable, "no route to host"},
		"no answer":                  {asked(&net.OpError{Op: "dial", Err: syscall.ETIMEDOUT}), engineapi.Unreachable, "does not answer in time"},
		"sent to the node itself":    {asked(&localAddressError{host: "minio:9000", address: "127.0.0.1:9000"}), engineapi.Unreachable, `sends the node to "minio:9000", which is at 127.0.0.1:9000`},
		"storage is down":            {asked(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), engineapi.Unreachable, `at "storage.example.com" cannot be reached`},
		"storage refuses":            {answered(http.StatusForbidden), engineapi.Unauthorized, `at "storage.example.com" refuses`},
		"no such name":               {asked(&net.DNSError{Name: "registry.example.com", IsNotFound: true}), engineapi.Unreachable, "its name is not known"},
		"no name server":             {asked(&net.DNSError{Name: "registry.example.com", IsTimeout: true}), engineapi.Unreachable, "cannot be looked up"},
		"breaks":                     {&connError{cause: syscall.ECONNRESET, midway: true}, engineapi.Unreachable, "the connection breaks"},
		"hangs":                      {&connError{cause: errStalled, midway: true}, engineapi.Unreachable, "open, but dead"},
		"unknown authority":          {asked(x509.UnknownAuthorityError{}), engineapi.Untrusted, "/certs/registry.example.com/ca.crt"},
		"plain HTTP":                 {asked(errors.New("http: server gave HTTP response to HTTPS client")), engineapi.Unreachable, "/certs/registry.example.com/hosts.toml"},
		"401":                        {answered(http.StatusUnauthorized), engineapi.Unauthorized, "secret a/b"},
		"403":                        {answered(http.StatusForbidden), engineapi.Unauthorized, "secret a/b"},
		"a token that is not enough": {fmt.Errorf("server message: insufficient_scope: %w", docker.ErrInvalidAuthorization), engineapi.Unauthorized, "insufficient_scope"},
		"404":                        {fmt.Errorf("x: %w", errdefs.ErrNotFound), engineapi.NotFound, "no such image"},
		"429":                        {&busyError{status: "429 Too Many Requests"}, engineapi.RegistryBusy, "429"},
		"502":                        {answered(http.StatusBadGateway), engineapi.RegistryBusy, "502"},
		"418":                        {answered(http.StatusTeapot), engineapi.Other, "418"},
		"an echo of the password":    {errors.New("you said hunter2,\nwhich is wrong"), engineapi.Other, "you said …, which is wrong"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := &Client{name: "registry.example.com/app:1", folders: []string{"/certs", "/more"}, credentials: []engineapi.Credential{
				{Username: "me", Password: "hunter2", Source: "secret a/b", Namespace: "a"},
			}}
			got := r.Failure(tt.err)
			text := got.Error()
			if got.Reason != tt.reason || !strings.Contains(text, tt.says) || !strings.Contains(text, "registry.example.com") {
				t.Errorf("got %s: %s; want %s, and that it says %q", got.Reason, text, tt.reason, tt.says)
			}
			if strings.Contains(text, "hunter2") || strings.Contains(text, "s3cr3t") || strings.Contains(text, "\n") {
				t.Errorf("not one line without a password: %q", text)
			}
		})
	}
}

// Text about a Secret is only for those who may know of its namespace.
func TestFor(t *testing.T) {
	r := &Client{name: "registry.example.com/app:1", folders: []string{"/certs"}, tried: 2, credentials: []engineapi.Credential{
		{Username: "a", Source: "secret shop/one", Namespace: "shop"},
		{Username: "b", Source: "secret bank/two", Namespace: "bank"},
		{Username: "c", Source: "file /config.json"},
	}}
	err := r.named(engineapi.Errorf(engineapi.Unauthorized, "refused: %s", r.presented())).
		Explain("bank", errors.New("secret bank/three cannot be read")).ForImage("app")
	tests := map[string]string{
		"shop":  "image app: refused: all 3 credentials for it were tried; check them; secret shop/one was tried; file /config.json was tried",
		"bank":  "image app: refused: all 3 credentials for it were tried; check them; secret bank/two was tried; file /config.json was tried; secret bank/three cannot be read",
		"other": "image app: refused: all 3 credentials for it were tried; check them; file /config.json was tried",
	}
	for namespace, want := range tests {
		if got := err.For(namespace); got != want {
			t.Errorf("%s is told %q, want %q", namespace, got, want)
		}
	}
	for _, name := range []string{"shop/one", "bank/two", "bank/three"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("the node's log is not told of %s: %v", name, err)
		}
	}
}
