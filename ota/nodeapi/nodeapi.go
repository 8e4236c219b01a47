// Package nodeapi is what the hub's HTTP API on loopback and its clients say to
// each other: its paths, and the JSON of its answers. It has types only, and a
// client may be built on it without the hub.
package nodeapi

import (
	"net/url"
	"time"
)

// The API's paths. Those of one pod are made by UpgradePath and ImagePullPath.
const (
	Pods       = "/pods"
	Healthz    = "/v1/healthz"
	Readyz     = "/v1/readyz"
	Metrics    = "/metrics"
	Cache      = "/debug/cache"
	ImagePulls = "/openyurt.io/v1/imagepulls"
)

// UpgradePath is where a pod's upgrade is asked for, by POST.
func UpgradePath(namespace, pod string) string { return podPath(namespace, pod, "upgrade") }

// ImagePullPath is where the pre-pull of a pod's images is asked for (POST),
// looked at (GET), and cancelled (DELETE).
func ImagePullPath(namespace, pod string) string { return podPath(namespace, pod, "imagepull") }

func podPath(namespace, pod, action string) string {
	return "/openyurt.io/v1/namespaces/" + url.PathEscape(namespace) + "/pods/" + url.PathEscape(pod) + "/" + action
}

// State is how far a pre-pull is.
type State string

const (
	// Queued waits for its turn.
	Queued State = "Queued"
	// Pulling is under way.
	Pulling State = "Pulling"
	// Ready is on the node, and stays until the pod is upgraded.
	Ready State = "Ready"
	// Failed is tried again at NextRetry, or never if there is none.
	Failed State = "Failed"
	// Cancelled was asked to end. It is seen in the last line of a watch only.
	Cancelled State = "Cancelled"
	// Superseded is no longer wanted: the pod has another target by now, or none.
	// It is seen in the last line of a watch only.
	Superseded State = "Superseded"
)

// ImagePull is the pre-pull of all images of a pod's upgrade target.
type ImagePull struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	UID       string `json:"uid"`
	// Revision is the hash of the revision that the images are of.
	Revision string `json:"revision"`
	// State sums up the images: Ready when all are; Pulling while one is;
	// Failed when one failed and none is under way or waits for its turn.
	State State `json:"state"`
	// Requested is when the pre-pull was asked for.
	Requested time.Time `json:"requested"`
	// Images are in the order of the pod's containers, each once.
	Images []Image `json:"images"`
}

// Image is one image of a pre-pull.
type Image struct {
	// Image is the reference as it stands in the pod's target.
	Image string `json:"image"`
	State State  `json:"state"`
	// BytesDone are on the node, of the BytesTotal that the image has, compressed
	// as in the registry. BytesTotal is 0 until the registry has told.
	BytesDone  int64 `json:"bytesDone"`
	BytesTotal int64 `json:"bytesTotal"`
	// Digest is that of the image, once it is known.
	Digest string `json:"digest,omitempty"`
	// Attempts are those since the hub started, the one under way included.
	Attempts int `json:"attempts"`
	// Reason is the kind of the last failure, in CamelCase, and LastError tells it
	// in one line. Both are empty once the image is Ready.
	Reason    string `json:"reason,omitempty"`
	LastError string `json:"lastError,omitempty"`
	// NextRetry is when a Failed image is tried again.
	NextRetry *time.Time `json:"nextRetry,omitempty"`
}

// ImagePullList is the answer to GET of ImagePulls.
type ImagePullList struct {
	// Items are in the order in which they were asked for.
	Items []ImagePull `json:"items"`
}

// CloudState is in the answer to GET of Cache, as "cloud".
type CloudState struct {
	// Up is true while at least one apiserver can be reached, and Since when that
	// changed last: the hub's start, if never.
	Up         bool             `json:"up"`
	Since      time.Time        `json:"since"`
	APIServers []APIServerState `json:"apiservers"`
}

// APIServerState is how one apiserver is doing.
type APIServerState struct {
	Address string    `json:"address"` // HOST:PORT
	Up      bool      `json:"up"`
	Since   time.Time `json:"since"`
	Error   string    `json:"error,omitempty"` // of the last attempt to reach it
}
