package layering

// module is the product's module path.
const module = "github.com/edgehub-io/edgehub"

// layers lists for each folder which folders of the product its packages may
// import besides their own. A package belongs to the longest folder that holds
// it. Imports go one way: cmd → hub → cache, proxy, ota, imagepull. These four do
// not know each other: hub connects them, by functions and small interfaces.
var layers = map[string][]string{
	"cmd/edgehub": {"cmd/edgehub/install", "cmd/internal", "hub", "hub/config", "hub/support"},
	"cmd/edgehub/install": { // not hub: it checks flags, and starts nothing
		"cmd/edgehub/install/apiserver", "cmd/edgehub/install/dummyif", "cmd/edgehub/install/files", "cmd/edgehub/install/firewall",
		"cmd/edgehub/install/kubelet", "cmd/edgehub/install/systemctl", "hub/binding", "hub/config", "cache/durable", "hub/heldimages", "hub/kubeconfig", "hub/nodeca", "hub/podroute", "imagepull/engine", "ota/api", "ota/inplace", "proxy/transform",
	},
	"cmd/edgehub/install/dummyif":   {},
	"cmd/edgehub/install/firewall":  {},
	"cmd/edgehub/install/kubelet":   {"cmd/edgehub/install/systemctl", "hub/kubeletconf"},
	"cmd/edgehub/install/apiserver": {"hub/kubeconfig"},
	"cmd/edgehub/install/files":     {"cache/durable"},
	"cmd/edgehub/install/systemctl": {},
	"cmd/edgehub-controller":        {"cmd/internal", "controller", "controller/autonomy"},
	"cmd/edgehubctl":                {"cmd/edgehubctl/cri", "cmd/edgehubctl/hubclient", "cmd/edgehubctl/view", "cmd/internal", "hub/checks", "imagepull/engine", "imagepull/engine/archive", "imagepull/engineapi", "ota/api"}, // root's import needs no hub to write to containerd
	"cmd/edgehubctl/hubclient":      {"cmd/internal", "ota/api"},
	"cmd/edgehubctl/view":           {"cmd/internal", "ota/api"}, // it describes, and sends no requests
	"cmd/edgehubctl/cri":            {"cmd/internal"},            // it asks containerd, and neither hub nor cloud
	"cmd/kubectl-edgehub":           {"cmd/internal", "cmd/kubectl-edgehub/imagetar", "controller/autonomy", "controller/daemonset", "controller/rollback", "controller/rollout", "controller/workload", "ota/api", "ota/bundle"},
	"cmd/kubectl-edgehub/imagetar":  {"imagepull/engineapi"}, // it asks registries, and no cluster
	"cmd/internal":                  {},
	"hub": {
		"cache", "cache/identity", "cache/derived", "hub/access", "hub/binding", "hub/checks", "hub/config", "hub/credentials", "hub/csrf", "cache/durable", "hub/eventlog", "hub/feed", "hub/heldimages", "hub/nodeca", "hub/ownnode", "hub/podroute", "hub/pullrecords", "hub/servertls", "hub/support", "hub/systemd", "hub/traffic",
		"imagepull", "imagepull/apiserver", "imagepull/engine", "imagepull/engine/diskspace", "ota", "ota/bundle", "ota/coreclient", "ota/history", "ota/hold", "ota/inplace", "ota/missing", "ota/api", "ota/nodepods", "ota/page", "ota/podfiles", "ota/podreport", "ota/queue", "ota/rollback", "ota/webtoken", "proxy", "proxy/authn", "proxy/topology", "proxy/transform", "proxy/upstream",
	},
	"hub/access":      {"cache/quota", "hub/config", "hub/csrf", "hub/peer", "ota/api", "proxy/authn", "proxy/limits"},
	"hub/binding":     {"cache/durable", "proxy/authn", "proxy/upstream"},
	"hub/checks":      {"ota/api"},                                // edgehubctl check does the same
	"hub/eventlog":    {"cache/convert", "cache/wire", "ota/api"}, // Events in the encodings that clients use
	"hub/ownnode":     {"cache/convert", "cache/wire", "ota/api"}, // the Node in the encodings that clients use
	"hub/traffic":     {"cache/durable", "ota/api"},
	"hub/config":      {"hub/kubeconfig", "proxy/transform", "proxy/upstream"}, // the names of the transforms
	"hub/credentials": {"hub/config", "hub/enroll", "hub/kubeconfig", "proxy/upstream"},
	"cache/durable":   {},
	"hub/enroll":      {"cache/durable", "proxy/authn"},
	"hub/csrf":        {},
	"hub/kubeconfig":  {"proxy/upstream"},
	"hub/kubeletconf": {}, // edgehub install reads the same
	"hub/nodeca":      {"cache/durable"},
	"hub/heldimages":  {"cache/durable", "imagepull/engine"}, // edgehub uninstall does the same
	"hub/peer":        {},
	"hub/podroute":    {"imagepull/engine", "ota/api", "proxy/transform"}, // edgehub install asks the same
	"hub/pullrecords": {"hub/kubeletconf", "imagepull/keyring"},           // it reads what kubelet writes
	"hub/servertls":   {"hub/config", "cache/durable", "hub/csrf", "hub/kubeconfig", "proxy/authn"},
	"hub/support":     {},
	"hub/systemd":     {},
	"hub/feed":        {"proxy/topology"}, // it reads through the hub, as any client
	// It changes what some clients read, between proxy and cache: neither knows it. It reads bodies
	// with the packages that the cache does, and knows nothing of what is cached.
	"proxy/transform": {"cache/tee", "cache/wire", "proxy/topology"},
	"proxy/topology":  {}, // it decides, and reads nothing itself
	"proxy":           {"proxy/authn", "proxy/limits", "proxy/upstream"},
	"proxy/authn":     {},
	"proxy/limits":    {},                                         // nor anything of Kubernetes
	"proxy/upstream":  {"proxy/authn", "proxy/upstream/liveness"}, // not proxy, which it does not need
	// Connections know their apiserver by an interface of their own.
	"proxy/upstream/liveness": {},
	"ota":                     {"ota/bundle", "ota/coreclient", "ota/api", "ota/nodepods", "ota/params", "ota/schedule"},
	"ota/bundle":              {"cache/durable", "ota/api", "ota/podfiles"}, // kubectl edgehub signs what the hub verifies
	"ota/coreclient":          {},
	"ota/nodepods":            {"ota/api", "ota/params"},
	"ota/params":              {},
	"ota/schedule":            {},                // pure functions of a time
	"ota/podfiles":            {"cache/durable"}, // a leaf that knows nothing of hubs
	"ota/page":                {"ota/api", "ota/params", "ota/webtoken"},
	"ota/webtoken":            {"cache/durable", "ota/api"}, // it keeps hashes in a file of its own
	"ota/podreport":           {"ota/nodepods", "ota/api"},
	"ota/queue":               {"ota", "ota/api", "ota/podfiles", "ota/podreport", "ota/schedule"}, // it implements an interface of ota
	"ota/hold":                {"ota", "ota/api", "ota/podfiles", "ota/podreport"},                 // the same
	"ota/history":             {"ota/api", "ota/podfiles"},                                         // it asks what is retained by a function
	"ota/missing":             {"ota/api", "ota/podfiles"},
	"ota/inplace":             {"ota", "ota/api", "ota/podfiles", "ota/podreport"}, // the same
	"ota/rollback":            {"ota/history", "ota/api", "ota/podfiles", "ota/podreport"},

	// What is pulled, what stays, and what pods report. None of this knows containerd:
	// the engine is an interface, and hub connects the two.
	"imagepull":           {"imagepull/engineapi", "imagepull/keyring", "ota/api", "ota/podfiles"},
	"imagepull/keyring":   {"imagepull/engineapi"},
	"imagepull/apiserver": {},
	"imagepull/engine": {
		"imagepull/engine/archive", "imagepull/engine/daemon", "imagepull/engine/diskspace", "imagepull/engine/imagecontent", "imagepull/engine/lease", "imagepull/engine/registry",
		"imagepull/engineapi",
	},
	"imagepull/engine/registry":     {"imagepull/engine/imagecontent", "imagepull/engineapi"},                               // it does not know what stays on the node
	"imagepull/engine/lease":        {"imagepull/engine/imagecontent", "imagepull/engineapi"},                               // it asks no registry
	"imagepull/engine/archive":      {"imagepull/engine/diskspace", "imagepull/engine/imagecontent", "imagepull/engineapi"}, // it reads a file, and asks no containerd
	"imagepull/engine/imagecontent": {"imagepull/engineapi"},
	"imagepull/engine/diskspace":    {"imagepull/engineapi"},
	"imagepull/engine/daemon":       {}, // nor containerd's client: it looks at the process
	"imagepull/engineapi":           {}, // what is asked of the engine, and what it answers

	// The root of cache decides which of its parts handles a request. At the ground are durable, log, quota and pause, which know
	// nothing of Kubernetes; then come formats (wire, tee, convert, patch), queries and versions, who a caller is, and views; then
	// what answers instead of an apiserver, and watches.
	"cache": {
		"cache/answer", "cache/convert", "cache/derived", "cache/identity", "cache/log", "cache/patch", "cache/pause", "cache/query", "cache/quota",
		"cache/repeat", "cache/spool", "cache/tee", "cache/versions", "cache/view", "cache/watch", "cache/wire",
	},
	"cache/answer": {
		"cache/convert", "cache/derived", "cache/log", "cache/query", "cache/quota", "cache/tee", "cache/versions", "cache/view", "cache/wire",
	},
	"cache/convert": {"cache/wire"},
	// What users read instead of what is cached, while the cloud is away.
	"cache/derived": {
		"cache/convert", "cache/log", "cache/patch", "cache/pause", "cache/query", "cache/versions", "cache/view", "cache/wire",
	},
	"cache/identity": {"cache/log", "cache/quota"},
	"cache/log":      {"cache/pause"}, // it knows no views
	"cache/patch":    {"cache/convert", "cache/wire"},
	"cache/pause":    {},
	"cache/query":    {"cache/convert", "cache/quota", "cache/versions", "cache/wire"},
	"cache/quota":    {},
	"cache/repeat":   {"cache/convert", "cache/identity", "cache/log", "cache/pause", "cache/query", "cache/quota", "cache/view", "cache/wire"},
	"cache/spool":    {"cache/convert", "cache/log", "cache/patch", "cache/pause", "cache/quota", "cache/wire"},
	"cache/tee":      {"cache/wire"},
	"cache/versions": {},
	"cache/view": {
		"cache/convert", "cache/identity", "cache/log", "cache/query", "cache/quota", "cache/versions", "cache/wire",
	},
	"cache/watch": {
		"cache/answer", "cache/derived", "cache/identity", "cache/pause", "cache/query", "cache/tee", "cache/versions", "cache/view", "cache/wire",
	},
	"cache/wire": {},

	// What cloud, node and their clients exchange: all import it, it imports none of them. See contract_test.go.
	"ota/api": {},
	"controller": {
		"controller/autonomy", "controller/backoff", "controller/daemonset", "controller/events", "controller/expectations", "controller/informer",
		"controller/missing", "controller/podclient", "controller/rollback", "controller/rollout", "controller/status", "controller/successor", "controller/tolerations", "controller/workload", "ota/api",
	},
	// What the controller decides, for those who show it: no client, no clock.
	"controller/autonomy":  {"ota/api"},
	"controller/daemonset": {"ota/api"},
	"controller/workload":  {"controller/daemonset"},
	"controller/rollout":   {"controller/daemonset", "ota/api"},
	"controller/rollback":  {"controller/daemonset", "ota/api"},
	"controller/status":    {"controller/daemonset", "controller/rollback", "controller/rollout", "ota/api"},
	// What it remembers between reconciles: no client either.
	"controller/backoff":      {},
	"controller/expectations": {"controller/backoff", "controller/daemonset", "controller/rollout"},
	// What it reads, writes and reports: each with its own part of the API, and none
	// knows the reconcile that uses it.
	"controller/informer":  {"controller/daemonset", "controller/rollout", "controller/status", "controller/workload", "ota/api"},
	"controller/successor": {"controller/daemonset", "controller/expectations", "controller/rollout", "controller/workload", "ota/api"},
	"controller/missing":   {"controller/podclient", "ota/api"},
	"controller/podclient": {"controller/expectations", "controller/rollout", "controller/status"},
	"controller/events":    {"controller/daemonset", "controller/podclient", "controller/rollout", "controller/status", "controller/workload", "ota/api"},
	// It carries out what autonomy decides, with informers of its own: what it reads is no DaemonSet.
	"controller/tolerations": {"controller/autonomy", "controller/expectations", "controller/podclient", "ota/api"},
}

// tooCostly is what no program may depend on, also not through others, each with
// its reason. A path stands for the packages below it too.
var tooCostly = map[string]string{
	"k8s.io/apiserver/pkg/endpoints/filters": "it brings in the whole apiserver, 37 MB of binary; endpoints/request has what a proxy needs",
	"k8s.io/kubernetes":                      "it is the whole of Kubernetes, and not meant to be imported",
	"sigs.k8s.io/controller-runtime":         "client-go's informers and workqueue are enough for one controller, and do not hide what is watched",
	"github.com/spf13/cobra":                 "pflag is enough for a handful of commands",
	"golang.org/x/net/trace":                 "it keeps the linker from leaving out unused methods, 29 MB of binary; build with -tags grpcnotrace",
	"testing":                                "test code has got into a program",
}

// dependency is a package, with those below it, that the product may import.
type dependency struct {
	only []string // the layers it is for; empty is all
}

// engineLayers are those that work with containerd.
var engineLayers = []string{
	"imagepull/engine", "imagepull/engine/archive", "imagepull/engine/imagecontent", "imagepull/engine/lease", "imagepull/engine/registry",
}

// chosen is every dependency outside the standard library that the product's own
// code may import directly.
var chosen = map[string]dependency{
	"k8s.io/api":                             {},
	"k8s.io/apimachinery":                    {},
	"k8s.io/client-go":                       {},
	"k8s.io/klog/v2":                         {},                                                                                                                                                         // to send its lines through log/slog
	"k8s.io/component-helpers/resource":      {only: []string{"controller/successor", "ota/api"}},                                                                                                        // what a pod requests of its node
	"k8s.io/component-helpers/scheduling":    {only: []string{"ota/api"}},                                                                                                                                // which nodes should run a daemon
	"k8s.io/apiserver/pkg/endpoints/request": {only: []string{"proxy", "proxy/upstream", "proxy/upstream/liveness", "hub", "cache", "cache/identity", "cache/query", "cache/repeat", "proxy/transform"}}, // how an apiserver reads a path
	"github.com/gorilla/mux":                 {only: []string{"ota"}},                                                                                                                                    // it redirects paths, so it never stands in front of the apiserver
	"github.com/prometheus/client_golang":    {},
	"github.com/spf13/pflag":                 {},
	"github.com/munnerz/goautoneg":           {only: []string{"cache/wire"}},  // how an apiserver reads Accept
	"github.com/klauspost/compress/gzip":     {only: []string{"cache/tee"}},   // it decompresses with three quarters of the CPU of the standard library; most of what a LIST costs
	"gopkg.in/evanphx/json-patch.v4":         {only: []string{"cache/patch"}}, // the one apimachinery itself patches with
	"golang.org/x/sync":                      {},
	"golang.org/x/sys":                       {only: []string{"proxy/upstream/liveness", "hub/peer", "imagepull/engine/daemon", "cmd/edgehub/install/firewall"}}, // how long the kernel waits for an acknowledgement; whose socket it is; network namespaces of pods
	"golang.org/x/term":                      {only: []string{"cmd/internal", "cmd/edgehubctl", "cmd/edgehubctl/cri"}},                                           // whether somebody watches, and how wide the window is

	// To speak with containerd and with registries as CRI does.
	"github.com/containerd/containerd/v2":                    {only: engineLayers},                                                                                                                          // its client, and the resolver that reads certs.d
	"github.com/containerd/containerd/api":                   {only: []string{"imagepull/engine"}},                                                                                                          // its events
	"github.com/containerd/errdefs":                          {only: engineLayers},                                                                                                                          // what its errors are
	"github.com/containerd/log":                              {only: []string{"imagepull/engine"}},                                                                                                          // to silence its client, which logs requests
	"github.com/containerd/platforms":                        {only: append([]string{"cmd/kubectl-edgehub/imagetar"}, engineLayers...)},                                                                     // which image of an index CRI takes
	"github.com/containerd/typeurl/v2":                       {only: []string{"imagepull/engine"}},                                                                                                          // how its events are packed
	"github.com/distribution/reference":                      {only: append([]string{"imagepull/engineapi", "imagepull/keyring"}, engineLayers...)},                                                         // how kubelet and CRI read an image's name
	"github.com/opencontainers/go-digest":                    {only: append([]string{"cmd/kubectl-edgehub", "cmd/kubectl-edgehub/imagetar", "imagepull", "ota/bundle"}, engineLayers...)},                   // types of what containerd keeps
	"github.com/opencontainers/image-spec":                   {only: append([]string{"cmd/kubectl-edgehub/imagetar", "imagepull/engineapi"}, engineLayers...)},                                              // the same
	"github.com/sirupsen/logrus":                             {only: []string{"imagepull/engine"}},                                                                                                          // the type of the log that is silenced
	"golang.org/x/time":                                      {only: append([]string{"cache/spool", "controller/successor", "ota", "ota/podreport", "proxy/transform", "proxy/upstream"}, engineLayers...)}, // limits on Events per second, on questions to admission, on lists, on bandwidth and on lines in the log
	"github.com/pelletier/go-toml/v2":                        {only: []string{"imagepull/engine/daemon"}},                                                                                                   // containerd's configuration; its client reads hosts.toml with it
	"github.com/secure-systems-lab/go-securesystemslib/dsse": {only: []string{"ota/bundle"}},                                                                                                                // the format of signed bundles
	"sigs.k8s.io/yaml":                                       {only: []string{"ota/bundle"}},                                                                                                                // the keys in a ConfigMap, which people write
	"golang.org/x/net/http2":                                 {only: []string{"hub"}},                                                                                                                       // a limit on HTTP/2's headers that is not HTTP/1.1's
	"golang.org/x/net/http/httpproxy":                        {only: []string{"proxy/transform", "imagepull/engine/daemon"}},                                                                                // which proxy a request takes, by another process's environment
	"google.golang.org/protobuf/encoding/protowire":          {only: []string{"proxy/transform"}},                                                                                                           // one field of a protobuf message is replaced, the others stay byte by byte
	"google.golang.org/grpc":                                 {only: []string{"cmd/edgehubctl/cri", "imagepull/engine"}},                                                                                    // one connection for containerd's API and CRI's
	"k8s.io/cri-api":                                         {only: []string{"cmd/edgehubctl/cri", "imagepull/engine"}},                                                                                    // which snapshotter CRI uses, and where; containers of this node
	"github.com/google/go-containerregistry":                 {only: []string{"cmd/kubectl-edgehub/imagetar"}},                                                                                              // registries with the logins of docker and podman; containerd's resolver knows none
}
