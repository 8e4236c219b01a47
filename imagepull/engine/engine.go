// Package engine pulls images directly through containerd, without the kubelet and the
// apiserver, so that the kubelet finds them later.
//
// An image is retained from Pull until Release, by a lease and a pin, also across restarts of
// this program: the state is only in containerd. Content that an interrupted pull has fetched
// is under the lease, too, and the next pull of the image resumes from it.
//
// Import brings images from a file, in a process of its own; the next Pull takes them over. README.md of package imagepull
// shows who owns what.
//
// New does not connect, and containerd may restart at any time. All methods are safe for
// concurrent use, except that methods for the same image must not run at the same time.
package engine

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/log"
	"github.com/sirupsen/logrus"
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
	// HostsDir is a folder like /etc/containerd/certs.d, or several, separated by colons; the
	// first that configures a registry counts. Empty means what containerd's configuration says.
	HostsDir string
	// Bandwidth limits all pulls together, in bytes a second; 0 is no limit.
	Bandwidth int64
	// MinFree is the percentage of a file system that a pull must leave free.
	MinFree int
	// Stall is how long a registry may send nothing, or less than 1 kB a second, before it counts as
	// unreachable; 0 is a minute. One pull may wait ten times as long in all, plus a second for
	// each kB, and six hours at most.
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
	store   content.Store
	reader  imagecontent.Reader
	leases  lease.Leases
	limiter *rate.Limiter
	files   fileConfigs
}

// New validates the options. It does not connect.
func New(o Options) (*Engine, error) {
	if o.Bandwidth < 0 || o.MinFree < 0 || o.MinFree > 99 || o.Stall < 0 {
		return nil, errors.New("create the image engine: Bandwidth, Stall and MinFree cannot be negative, and MinFree is below 100")
	}
	o.Address = socket(o.Address)
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
	store := client.ContentStore()
	return &Engine{
		opts: o, log: o.Logger, conn: conn, client: client, limiter: registry.NewLimiter(o.Bandwidth),
		store: store, reader: imagecontent.Reader{Store: store}, leases: lease.Leases{Client: client, Log: o.Logger},
	}, nil
}

// socket returns the path of containerd's socket.
func socket(address string) string {
	return cmp.Or(strings.TrimPrefix(address, "unix://"), defaultAddress)
}

// Close closes the connection to containerd. Images stay retained.
func (e *Engine) Close() error { return e.client.Close() }

// namespace is containerd's namespace of CRI.
const namespace = "k8s.io"

// criContext returns a context for calls of containerd in the namespace of CRI. It drops the log
// of containerd's libraries, which contains requests with their headers; errors are returned, too.
func criContext(ctx context.Context) context.Context {
	ctx = namespaces.WithNamespace(ctx, namespace)
	return log.WithLogger(ctx, logrus.NewEntry(&logrus.Logger{Out: io.Discard, Level: logrus.PanicLevel}))
}

// answerAtMost bounds calls that containerd answers without work of its own. If one hangs,
// containerd counts as unavailable.
const answerAtMost = 30 * time.Second

func briefContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(criContext(ctx), answerAtMost)
}
