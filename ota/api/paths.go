package api

import (
	"net/url"
	"strings"
	"time"
)

// The API's paths. UpgradePath and others return those of one pod.
const (
	Pods       = "/pods"
	Healthz    = "/v1/healthz"
	Readyz     = "/v1/readyz"
	Metrics    = "/metrics"
	Cache      = "/debug/cache"
	ImagePulls = "/openyurt.io/v1/imagepulls"
)

// The paths of a pod, with variables in braces for a router.
const (
	podPattern = "/openyurt.io/v1/namespaces/{namespace}/pods/{pod}/"

	UpgradePattern   = podPattern + "upgrade"
	ImagePullPattern = podPattern + "imagepull"
	HoldPattern      = podPattern + "hold"
	RollbackPattern  = podPattern + "rollback"
	HistoryPattern   = podPattern + "history"
)

// Query parameters of GET Pods, as an apiserver has them. WatchParam is also one of GET ImagePullPath.
const (
	LabelSelectorParam = "labelSelector"
	FieldSelectorParam = "fieldSelector"
	WatchParam         = "watch"          // true: a line of JSON for each change
	TimeoutParam       = "timeoutSeconds" // after which a watch ends; 0, or not set: it does not
)

// ImportedParam of POST ImagePullPath: true if images were imported into containerd just now, so that their pulls begin again and
// find them. The hub looks whether they were.
const ImportedParam = "imported"

// UpgradePath returns the path to which a pod's upgrade is posted.
func UpgradePath(namespace, pod string) string { return podPath(UpgradePattern, namespace, pod) }

// ImagePullPath returns the path of a pod's pre-pull: POST starts it, GET shows it, and DELETE
// cancels it.
func ImagePullPath(namespace, pod string) string { return podPath(ImagePullPattern, namespace, pod) }

func podPath(pattern, namespace, pod string) string {
	return strings.NewReplacer("{namespace}", url.PathEscape(namespace), "{pod}", url.PathEscape(pod)).Replace(pattern)
}

// PullState is the state of a pre-pull, or of one of its images.
type PullState string

// Cancelled and Superseded are only in the last line of a watch.
const (
	Queued     PullState = "Queued"
	Pulling    PullState = "Pulling"
	Ready      PullState = "Ready"  // on the node until the pod is upgraded
	Failed     PullState = "Failed" // until NextRetry, or for ever if there is none
	Cancelled  PullState = "Cancelled"
	Superseded PullState = "Superseded" // the pod has another target now, or none
)

// ImagePull is the pre-pull of all images of a pod's upgrade target.
type ImagePull struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	UID       string `json:"uid"`
	// Revision is the hash of the target revision.
	Revision string `json:"revision"`
	// State is Ready if all images are; else Pulling if one is; else Queued if one is; else Failed.
	State     PullState `json:"state"`
	Requested time.Time `json:"requested"`
	// Images are in the order of the pod's containers, each once.
	Images []Image `json:"images"`
}

// Image is one image of a pre-pull.
type Image struct {
	// Image is the reference in the pod's target.
	Image string    `json:"image"`
	State PullState `json:"state"`
	// BytesDone of the BytesTotal of the image are on the node, compressed as in the registry.
	// BytesTotal is 0 while it is unknown.
	BytesDone  int64 `json:"bytesDone"`
	BytesTotal int64 `json:"bytesTotal"`
	// Digest is empty until the image is Ready.
	Digest string `json:"digest,omitempty"`
	// Attempts counts the pulls since the hub started, including the running one.
	Attempts int `json:"attempts"`
	// Reason is the kind of the last failure in CamelCase, and LastError describes it in one line.
	// Both are empty once the image is Ready.
	Reason    string `json:"reason,omitempty"`
	LastError string `json:"lastError,omitempty"`
	// NextRetry is when a Failed image is tried again.
	NextRetry *time.Time `json:"nextRetry,omitempty"`
}

// ImagePullList is the answer to GET of ImagePulls.
type ImagePullList struct {
	// Items are in the order of their requests.
	Items []ImagePull `json:"items"`
}

// CloudState is in the answer to GET of Cache, as "cloud".
type CloudState struct {
	// Up is true while at least one apiserver can be reached. Since is when Up last changed, or
	// the hub's start.
	Up         bool            `json:"up"`
	Since      time.Time       `json:"since"`
	APIServers []UpstreamState `json:"apiservers"`
}

// UpstreamState is the state of one apiserver.
type UpstreamState struct {
	Address string    `json:"address"` // HOST:PORT
	Up      bool      `json:"up"`
	Since   time.Time `json:"since"`
	Error   string    `json:"error,omitempty"` // of the last attempt to reach it
}
