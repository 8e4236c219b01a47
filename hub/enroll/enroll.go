package enroll

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/edgehub-io/edgehub/proxy/authn"
)

// Cloud reports whether the apiservers can be reached, and accept the user that the context stands
// for. It is an upstream.Upstream.
type Cloud interface {
	WaitUp(ctx context.Context) error
	Lost(ctx context.Context) <-chan struct{}
}

// Options of an Enrollment. All are required.
type Options struct {
	NodeName      string
	BootstrapFile string
	// ReadBootstrap returns the token and the cluster in BootstrapFile. The cluster, which must not
	// refer to other files, is written beside the certificate.
	ReadBootstrap func() (token string, cluster *clientcmdapi.Cluster, err error)
	// Hub sends requests as the node, or as the user of the bearer token if there is one.
	Hub   *rest.Config
	Cloud Cloud

	Registerer prometheus.Registerer
	Logger     *slog.Logger
}

// Enrollment obtains and renews the hub's certificate.
type Enrollment struct {
	Options
	store    *Store
	failures prometheus.Counter

	// Only the goroutine of Run uses these.
	current *certificate // nil: none yet
	due     time.Time    // when to renew it

	mu      sync.Mutex
	problem error // see Problem
}

// New returns an Enrollment that keeps its certificate in s, which nobody else may use from now on.
func New(s *Store, o Options) (*Enrollment, error) {
	e := &Enrollment{Options: o, store: s, failures: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "edgehub_client_certificate_renewal_failures_total",
		Help: "How often the hub asked for a client certificate of its own (--bootstrap-file) and got none.",
	})}
	o.Registerer.MustRegister(e.failures)
	if err := e.load(time.Time{}); err != nil {
		return nil, err
	}
	return e, nil
}

// load reads the certificate from the store. It is in use since the given time; zero: since it was
// written.
func (e *Enrollment) load(since time.Time) error {
	current, err := e.store.current()
	if err != nil {
		return fmt.Errorf("read the hub's certificate: %w", err)
	}
	e.setProblem(nil)
	if e.current = current; current != nil {
		if since.IsZero() {
			since = current.written
		}
		e.due = dueAt(current.leaf, since, time.Now())
	}
	return nil
}

// dueAt returns when to renew a certificate that is in use since a time. Its life is counted from
// then, since signers backdate certificates by some minutes, which may be most of a short life. A
// wrong clock only causes an unnecessary renewal: the apiserver decides whether a certificate is
// valid.
func dueAt(leaf *x509.Certificate, since, now time.Time) time.Time {
	if since.After(now) {
		since = leaf.NotBefore
	}
	life := leaf.NotAfter.Sub(since)
	if since.Before(leaf.NotBefore) || since.After(leaf.NotAfter) {
		life = leaf.NotAfter.Sub(leaf.NotBefore)
	}
	wait := life*7/10 + rand.N(max(life/5, 1)) //nolint:gosec // jitter
	return since.Add(max(wait, shortestWait))
}

// shortestWait is the shortest time between two renewals.
const shortestWait = 5 * time.Second

// Problem returns why the last attempt got no certificate. It is nil if no certificate is needed, or
// no apiserver could be reached yet.
func (e *Enrollment) Problem() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.problem
}

func (e *Enrollment) setProblem(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.problem = err
}

// Run renews the certificate whenever needed, until ctx ends, and calls changed when there is a new one. It returns nil.
func (e *Enrollment) Run(ctx context.Context, changed func()) error {
	for ctx.Err() == nil {
		e.untilNeeded(ctx)
		if e.renew(ctx) {
			changed()
		}
	}
	return nil
}

// checkEvery is the interval of checks whether a renewal is due: one long timer would ignore that
// the machine was suspended, or its clock was set.
const checkEvery = time.Minute

// untilNeeded waits until a certificate is needed, or ctx ends.
func (e *Enrollment) untilNeeded(ctx context.Context) {
	for ctx.Err() == nil && !e.needed(ctx) {
		select {
		case <-ctx.Done():
		case <-time.After(min(time.Until(e.due), checkEvery)):
		case <-e.Cloud.Lost(authn.AsNode(ctx)): // the node is refused, or no apiserver can be reached
			_ = e.Cloud.WaitUp(ctx) // fails only when ctx has ended
		}
	}
}

// needed reports whether to request a certificate now.
func (e *Enrollment) needed(ctx context.Context) bool {
	if e.refused(ctx) || e.current == nil || !time.Now().Before(e.due) {
		return true
	}
	key, err := e.store.pendingKey()
	return key != nil && err == nil // the certificate was requested before a crash
}

// refused reports whether apiservers can be reached but refuse the node.
func (e *Enrollment) refused(ctx context.Context) bool {
	return isOpen(e.Cloud.Lost(ctx)) && !isOpen(e.Cloud.Lost(authn.AsNode(ctx)))
}

func isOpen(lost <-chan struct{}) bool {
	select {
	case <-lost:
		return false
	default:
		return true
	}
}

// renew tries until there is a new certificate, or none is needed any longer, and returns which.
func (e *Enrollment) renew(ctx context.Context) bool {
	for try := 0; ctx.Err() == nil && e.needed(ctx); try++ {
		if e.Cloud.WaitUp(ctx) != nil {
			return false
		}
		err := e.attempt(ctx)
		if err == nil {
			return true
		}
		if ctx.Err() != nil || !isOpen(e.Cloud.Lost(ctx)) {
			try = -1 // no pause when the cloud is back
			continue
		}
		e.failed(err)
		e.pause(ctx, try)
	}
	e.setProblem(nil)
	return false
}

// failed counts a failed attempt, and logs its reason if that is new.
func (e *Enrollment) failed(err error) {
	e.failures.Inc()
	if last := e.Problem(); last == nil || last.Error() != err.Error() {
		e.Logger.Warn("the hub has asked for a client certificate and got none; it goes on asking", "err", err)
	}
	e.setProblem(err)
}

// attempt requests a certificate once: with the present certificate, or else with the bootstrap file.
func (e *Enrollment) attempt(ctx context.Context) error {
	if e.current != nil && !e.refused(ctx) {
		err := e.obtain(ctx, e.Hub, e.current.cluster, "itself")
		if err == nil || !e.refused(ctx) {
			return err
		}
	}
	token, cluster, err := e.ReadBootstrap()
	if err != nil {
		return fmt.Errorf("--bootstrap-file: %w: put a bootstrap kubeconfig there, with a token that `kubeadm token create` prints", err)
	}
	config := rest.CopyConfig(e.Hub)
	config.BearerToken = token
	err = e.obtain(ctx, config, cluster, "bootstrap file")
	switch {
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the apiserver does not take the credentials in --bootstrap-file %s (%w); they may have expired: put a token there that `kubeadm token create` prints", e.BootstrapFile, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("the credentials in --bootstrap-file %s may not ask for a certificate (%w): bind system:node-bootstrapper, as kubeadm does", e.BootstrapFile, err)
	}
	return err
}

// obtain requests a certificate with the credentials in config, and stores it.
func (e *Enrollment) obtain(ctx context.Context, config *rest.Config, cluster *clientcmdapi.Cluster, by string) error {
	client, err := newRequests(config)
	if err != nil {
		return err
	}
	key, err := e.store.key()
	if err != nil {
		return fmt.Errorf("keep the key of a certificate: %w", err)
	}
	certPEM, fresh, err := client.certify(ctx, e.NodeName, key)
	if err == nil {
		leaf, wrong := check(certPEM, e.NodeName, key)
		if err = wrong; err == nil && !fresh && time.Now().After(leaf.NotAfter) {
			err = fmt.Errorf("the certificate that was asked for has expired meanwhile (%s); %w", leaf.NotAfter.UTC().Format(time.RFC3339), errGivenUp)
		}
	}
	switch {
	case errors.Is(err, errGivenUp):
		return errors.Join(err, e.store.forget())
	case err != nil:
		return err
	}
	if err := e.store.commit(cluster, certPEM, key); err != nil {
		return fmt.Errorf("keep a certificate: %w", err)
	}
	if err := e.load(time.Now()); err != nil {
		return err
	}
	e.Logger.Info("the hub has a new client certificate", "by", by, "expires", e.current.leaf.NotAfter, "renewal", e.due)
	return nil
}

const (
	// The pause after a failed attempt. It grows, since all hubs may need a certificate at once.
	firstPause, lastPause = time.Second, 5 * time.Minute
	// checkFileEvery is the interval of checks whether the bootstrap file has changed.
	checkFileEvery = time.Second
)

// pause waits before the next attempt. It ends early if the bootstrap file changes, or the cloud is lost.
func (e *Enrollment) pause(ctx context.Context, try int) {
	wait := min(firstPause<<min(try, 16), lastPause)
	ctx, cancel := context.WithTimeout(ctx, wait/2+rand.N(wait)) //nolint:gosec // jitter
	defer cancel()
	ticker := time.NewTicker(checkFileEvery)
	defer ticker.Stop()
	for before := stampOf(e.BootstrapFile); stampOf(e.BootstrapFile) == before; {
		select {
		case <-ctx.Done():
			return
		case <-e.Cloud.Lost(ctx):
			return
		case <-ticker.C:
		}
	}
}

// stampOf returns a text that changes when the file does.
func stampOf(file string) string {
	info, err := os.Stat(file)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(info.Size(), info.ModTime())
}
