package enroll

import (
	"bytes"
	"context"
	"crypto/x509"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	certificatesv1 "k8s.io/api/certificates/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/keyutil"

	"github.com/edgehub-io/edgehub/proxy/authn"
)

func isNode(ctx context.Context) bool { return authn.IdentityOf(ctx) == authn.Node }

// run runs an Enrollment in a bubble until the test ends it.
func run(t *testing.T, e *Enrollment, changed ...func()) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- e.Run(ctx, func() {
			for _, f := range changed {
				f()
			}
		})
	}()
	return func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func counter(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

// after lets time pass, and waits until everything that it causes has happened.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestACertificateIsRequestedOnceAndRenewedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t)
		e, _ := setUp(t, t.TempDir(), c, nil)
		stop := run(t, e)
		defer stop()
		after(time.Second)
		if got := c.askedBy(); got != "token" {
			t.Fatalf("asked by %q, want once with the token", got)
		}
		after(40 * time.Minute)
		if got := c.askedBy(); got != "token" {
			t.Errorf("asked by %q before 70 %% of the life had passed", got)
		}
		after(16 * time.Minute)
		if got := c.askedBy(); got != "token self" {
			t.Errorf("asked by %q after 90 %% of the life, want once with itself", got)
		}
		if n := counter(t, e.failures); n != 0 || e.Problem() != nil {
			t.Errorf("%v failures, problem %v", n, e.Problem())
		}
	})
}

// With a wrong clock, a node requests certificates neither all the time nor never.
func TestANodeWithAWrongClock(t *testing.T) {
	for name, late := range map[string]time.Duration{"it is two days ahead": 48 * time.Hour, "it is two days behind": -48 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCloud(t)
				c.late = late
				e, _ := setUp(t, t.TempDir(), c, nil)
				stop := run(t, e)
				defer stop()
				after(40 * time.Minute)
				if got := c.askedBy(); got != "token" {
					t.Errorf("asked by %.200q", got)
				}
				after(20 * time.Minute)
				if got := c.askedBy(); got != "token self" {
					t.Errorf("asked by %.200q after an hour", got)
				}
			})
		})
	}
}

func TestRenewalTime(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	hours := func(n float64) time.Time { return begin.Add(time.Duration(n * float64(time.Hour))) }
	leaf := &x509.Certificate{NotBefore: begin, NotAfter: hours(10)}
	tests := map[string]struct {
		since, now       time.Time
		earliest, latest time.Time
	}{
		"from its beginning":                        {begin, begin, hours(7), hours(9)},
		"from the middle on":                        {hours(5), hours(5), hours(8.5), hours(9.5)},
		"after a restart":                           {begin, hours(9), hours(7), hours(9)},
		"it was written by a clock that was ahead":  {hours(100), hours(1), hours(7), hours(9)},
		"the clock is ahead":                        {hours(100), hours(100), hours(107), hours(109)},
		"the clock is behind":                       {hours(-100), hours(-100), hours(-93), hours(-91)},
		"it was written by a clock that was behind": {hours(-100), hours(1), hours(-93), hours(-91)},
		"its end is near":                           {hours(10).Add(-time.Second), hours(10).Add(-time.Second), hours(10), hours(10).Add(5 * time.Second)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if due := dueAt(leaf, tt.since, tt.now); due.Before(tt.earliest) || due.After(tt.latest) {
				t.Errorf("due at %v, want between %v and %v", due, tt.earliest, tt.latest)
			}
		})
	}
}

// Nodes that were created at the same time renew their certificates at different times.
func TestRenewalsAreSpread(t *testing.T) {
	c := newCloud(t)
	earliest, latest := time.Hour, time.Duration(0)
	for range 40 {
		e, _ := setUp(t, t.TempDir(), c, nil)
		if err := e.attempt(t.Context()); err != nil {
			t.Fatal(err)
		}
		due := time.Until(e.due)
		earliest, latest = min(earliest, due), max(latest, due)
	}
	if earliest < 41*time.Minute || latest > 54*time.Minute || latest-earliest < 6*time.Minute {
		t.Errorf("renewals of a certificate for an hour are between %v and %v", earliest, latest)
	}
}

func TestARefusedCertificateIsReplacedByTheBootstrapFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t)
		e, way := setUp(t, t.TempDir(), c, nil)
		stop := run(t, e, func() {
			select {
			case <-way.refused:
				way.refused = make(chan struct{})
			default:
			}
		})
		defer stop()
		after(time.Second)
		c.set(func() { c.refuses["self"] = true })
		close(way.refused)
		after(time.Second)
		if got := c.askedBy(); got != "token token" {
			t.Errorf("asked by %q", got)
		}
	})
}

func TestAMissingBootstrapFileIsExplained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := setUp(t, t.TempDir(), newCloud(t), func() (string, *clientcmdapi.Cluster, error) { return "", nil, errNoFile })
		stop := run(t, e)
		defer stop()
		after(time.Second)
		if p := e.Problem(); p == nil || !strings.Contains(p.Error(), "--bootstrap-file: no such file: put a bootstrap kubeconfig there") {
			t.Errorf("problem %v", p)
		}
		after(time.Hour)
		if n := counter(t, e.failures); n < 10 || n > 40 {
			t.Errorf("%v attempts in an hour", n)
		}
	})
}

// An administrator may approve late; the request stays the same.
func TestARequestThatWaitsForApproval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t)
		c.verdict = ""
		dir := t.TempDir()
		e, _ := setUp(t, dir, c, nil)
		stop := run(t, e)
		after(30 * time.Minute)
		if p := e.Problem(); p == nil || !strings.Contains(p.Error(), "waits for approval: `kubectl certificate approve edgehub-csr-") {
			t.Errorf("problem %v", p)
		}
		stop() // and a restart finds it
		e, _ = setUp(t, dir, c, nil)
		stop = run(t, e)
		defer stop()
		after(time.Minute)
		c.approveAll()
		after(10 * time.Minute)
		if got := c.askedBy(); got != "token" || e.Problem() != nil {
			t.Errorf("asked by %q, problem %v; want one request", got, e.Problem())
		}
	})
}

func TestRequestsThatAreRefused(t *testing.T) {
	tests := map[string]struct {
		change func(*cloud)
		want   string
		again  bool // with another key
	}{
		"the request is denied":                {func(c *cloud) { c.verdict = certificatesv1.CertificateDenied }, "was answered Denied: Test", true},
		"the signer gives up":                  {func(c *cloud) { c.verdict = certificatesv1.CertificateFailed }, "was answered Failed: Test", true},
		"the certificate is for somebody else": {func(c *cloud) { c.node = "system:node:n2" }, `the certificate that was issued is for "system:node:n2"`, true},
		"the token is not taken":               {func(c *cloud) { c.refuses["token"] = true }, "the apiserver does not take the credentials in --bootstrap-file", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := newCloud(t)
			tt.change(c)
			e, _ := setUp(t, t.TempDir(), c, nil)
			if err := e.attempt(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("error %v, want %q", err, tt.want)
			}
			if key, err := e.store.pendingKey(); err != nil || (key == nil) != tt.again {
				t.Errorf("the key stays: %v, %v", key != nil, err)
			}
			c.set(func() { c.verdict, c.node, c.refuses = certificatesv1.CertificateApproved, "", map[string]bool{} })
			if err := e.attempt(t.Context()); err != nil {
				t.Errorf("the next attempt: %v", err)
			}
		})
	}
}

// A crash may leave files of any step.
func TestAfterACrash(t *testing.T) {
	tests := map[string]struct {
		crash func(t *testing.T, s *Store, c *cloud)
		asked string // after the next start, with what was asked before
	}{
		"before anything":            {func(*testing.T, *Store, *cloud) {}, "token"},
		"when the key was written":   {func(t *testing.T, s *Store, _ *cloud) { pend(t, s) }, "token"},
		"when the request was made":  {func(t *testing.T, s *Store, c *cloud) { request(t, s, c) }, "token"},
		"when the key was committed": {func(t *testing.T, s *Store, c *cloud) { commit(t, s, c) }, "token"},
		"a key that is half there":   {func(t *testing.T, s *Store, _ *cloud) { spoil(t, s.pending) }, "token"},
		"a certificate that is half there": {func(t *testing.T, s *Store, c *cloud) {
			commit(t, s, c)
			spoil(t, s.kubeconfig)
		}, "token"}, // its key is there
		"a certificate that is damaged": {func(t *testing.T, s *Store, c *cloud) {
			commit(t, s, c)
			spoil(t, s.kubeconfig)
			_ = os.Remove(s.pending)
		}, "token token"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c, dir := newCloud(t), t.TempDir()
			s, err := Open(dir, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			tt.crash(t, s, c)
			e, _ := setUp(t, dir, c, nil)
			if e.needed(t.Context()) {
				if err := e.attempt(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if got := c.askedBy(); got != tt.asked {
				t.Errorf("asked by %q, want %q", got, tt.asked)
			}
			if e.needed(t.Context()) || e.current == nil {
				t.Error("there is no certificate")
			}
			if _, err := os.Stat(s.pending); !os.IsNotExist(err) {
				t.Errorf("the pending key: %v", err)
			}
			files, err := filepath.Glob(filepath.Join(dir, "*"))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
					t.Errorf("%s: %v, %v", file, info.Mode(), err)
				}
			}
		})
	}
}

// A certificate that was issued for a pending key, and has expired before it was fetched, is not used.
func TestAPendingCertificateThatHasExpired(t *testing.T) {
	c, dir := newCloud(t), t.TempDir()
	s, err := Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	c.life = -time.Second
	request(t, s, c)
	c.life = time.Hour
	e, _ := setUp(t, dir, c, nil)
	if err := e.attempt(t.Context()); err == nil || !strings.Contains(err.Error(), "has expired meanwhile") {
		t.Errorf("error %v", err)
	}
	if err := e.attempt(t.Context()); err != nil || c.askedBy() != "token token" {
		t.Errorf("error %v, asked by %q", err, c.askedBy())
	}
}

func pend(t *testing.T, s *Store) {
	t.Helper()
	if _, err := s.key(); err != nil {
		t.Fatal(err)
	}
}

// request requests a certificate as an Enrollment does, and drops the answer.
func request(t *testing.T, s *Store, c *cloud) {
	t.Helper()
	e, _ := setUp(t, filepath.Dir(s.pending), c, nil)
	before, err := s.key()
	if err != nil {
		t.Fatal(err)
	}
	key, err := keyutil.MarshalPrivateKeyToPEM(before)
	if err != nil {
		t.Fatal(err)
	}
	_ = e.attempt(t.Context())
	_ = os.Remove(s.kubeconfig)
	if err := os.WriteFile(s.pending, key, 0o600); err != nil {
		t.Fatal(err)
	}
}

// commit stores a certificate as Store.commit does, but keeps the pending key.
func commit(t *testing.T, s *Store, c *cloud) {
	t.Helper()
	request(t, s, c)
	key, err := os.ReadFile(s.pending)
	if err != nil {
		t.Fatal(err)
	}
	e, _ := setUp(t, filepath.Dir(s.pending), c, nil)
	if err := e.attempt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.pending, key, 0o600); err != nil {
		t.Fatal(err)
	}
}

// spoil truncates a file to its first half.
func spoil(t *testing.T, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		data = []byte("-----BEGIN EC PRIVATE KEY-----\nabc")
	}
	if err := os.WriteFile(file, bytes.Clone(data[:len(data)/2]), 0o600); err != nil {
		t.Fatal(err)
	}
}
