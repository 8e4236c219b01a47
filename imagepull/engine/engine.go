// Package engine pulls images directly through containerd, without the kubelet and the
// apiserver, so that the kubelet finds them later.
//
// An image is retained from Pull until Release, by a lease and a pin, also across restarts of
// this program: the state is only in containerd. Content that an interrupted pull has fetched
// is under the lease, too, and the next pull of the image resumes from it.
//
// New does not connect, and containerd may restart at any time. All methods are safe for
// concurrent use, except that methods for the same image must not run at the same time.
package engine

import (
	"errors"
	"log/slog"
	"strings"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/edgehub-io/edgehub/imagepull/engine/imagecontent"
	"github.com/edgehub-io/edgehub/imagepull/engine/lease"
	"github.com/edgehub-io/edgehub/imagepull/engine/registry"
)

const (
	// defaultAddress is where containerd listens by default.
	defaultAddress = "/run/containerd/containerd.sock"
	// redialAtMost bounds the time until a restarted containerd is noticed.
	redialAtMost = 3 * time.Second
	// messageLimit is containerd's own limit of a gRPC message, in bytes.
	messageLimit = 16 << 20
)

// Options are the options of New. The zero value fits a usual node.
type Options struct {
	// Address is containerd's socket; empty is /run/containerd/containerd.sock.
	Address string
	// HostsDir is a folder like /etc/containerd/certs.d, or several, separated by
	// colons; the first that knows a registry counts. Empty: those that CRI has; where
	// it does not report them, as from containerd 2.0 on, /etc/containerd/certs.d and
	// /etc/docker/certs.d, CRI's own defaults.
	HostsDir string
	// Bandwidth is how many bytes a second all pulls together may fetch; 0: no limit.
	Bandwidth int64
	// MinFree is how many percent of a file system a pull has to leave free.
	MinFree int
	// Stall is after how long without an answer, without a byte in the middle of a blob, or
	// with less than 1 kB a second the registry counts as unreachable; 0 is a minute. All
	// waiting for one image may take ten times as long, beyond what its bytes may take, and
	// six hours at most.
	Stall time.Duration
	// Fetched is called with bytes as they arrive from registries, from several goroutines.
	// It may be nil.
	Fetched func(bytes int)
	// UserAgent is sent to registries; empty is containerd's.
	UserAgent string
	// Logger logs problems that do not fail a pull. It may be nil.
	Logger *slog.Logger
}

// Engine pulls and retains images.
type Engine struct {
	opts    Options
	log     *slog.Logger
	conn    *grpc.ClientConn
	client  *containerd.Client
	limiter *rate.Limiter // nil: no limit
}

// New validates the options. It does not connect.
func New(o Options) (*Engine, error) {
	if o.Bandwidth < 0 || o.MinFree < 0 || o.MinFree > 99 || o.Stall < 0 {
		return nil, errors.New("create the image engine: Bandwidth, Stall and MinFree cannot be negative, and MinFree is below 100")
	}
	o.Address = strings.TrimPrefix(o.Address, "unix://")
	if o.Address == "" {
		o.Address = defaultAddress
	}
	if o.Stall == 0 {
		o.Stall = registry.DefaultWindow
	}
	if o.Fetched == nil {
		o.Fetched = func(int) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	params := grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: redialAtMost}
	params.Backoff.MaxDelay = redialAtMost
	conn, err := grpc.NewClient("unix://"+o.Address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(params),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(messageLimit), grpc.MaxCallSendMsgSize(messageLimit)))
	if err != nil {
		return nil, err
	}
	client, err := containerd.NewWithConn(conn)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &Engine{opts: o, log: o.Logger, conn: conn, client: client, limiter: registry.NewLimiter(o.Bandwidth)}, nil
}

// Close closes the connection to containerd. Images stay retained.
func (e *Engine) Close() error { return e.client.Close() }

func (e *Engine) store() content.Store { return e.client.ContentStore() }

func (e *Engine) reader() imagecontent.Reader { return imagecontent.Reader{Store: e.store()} }

func (e *Engine) leases() lease.Leases { return lease.Leases{Client: e.client, Log: e.log} }
