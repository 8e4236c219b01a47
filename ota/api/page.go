package api

import "time"

// Paths of the owner's page, and of what it shows. The page itself is Page, its files are below
// PageFiles.
const (
	Page      = "/"
	PageFiles = "/page/"
	Apps      = "/openyurt.io/v1/apps"
	Node      = "/openyurt.io/v1/node"
	Events    = "/openyurt.io/v1/events"
	// Stream sends Apps, Node and Events as server-sent events of these names ("apps", "node",
	// "events"), each whenever it has changed, and all at first.
	Stream = "/openyurt.io/v1/stream"
	// Bundle is a support bundle, as tar.gz.
	Bundle = "/openyurt.io/v1/bundle"
	// WebCodes answers POST, of programs only, with a one-time Code for a browser. WebTokens answers
	// POST of a Code with a Token.
	WebCodes  = "/openyurt.io/v1/web/codes"
	WebTokens = "/openyurt.io/v1/web/tokens"
)

// TokenHeader has the token of a browser. What changes something needs it, and Bundle, if a browser has
// sent it; programs need none.
const TokenHeader = "Edgehub-Token" //nolint:gosec // the name of a header

// OfflineSinceHeader is in the answer to GET of Pods while the cloud is away: since when, RFC 3339.
const OfflineSinceHeader = "Edgehub-Offline-Since"

// Code is the answer to POST of WebCodes, and the body of POST to WebTokens, where Expires is not read.
type Code struct {
	Code    string    `json:"code"`
	Expires time.Time `json:"expires"`
}

// Token is the answer to POST of WebTokens.
type Token struct {
	Token   string    `json:"token"`
	Expires time.Time `json:"expires"`
}

// AppList is the answer to GET of Apps.
type AppList struct {
	// Items are the pods of the node that have not ended, those that can be upgraded first, then by
	// namespace and name.
	Items []App `json:"items"`
}

// App is a pod of this node, as its owner sees it.
type App struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	UID       string `json:"uid"`
	// Kind and Workload are the pod's controlling owner, such as DaemonSet and camera; a pod without
	// one has neither.
	Kind     string `json:"kind,omitempty"`
	Workload string `json:"workload,omitempty"`
	// Images are those that the containers run, in the order of the spec, each once.
	Images []string `json:"images"`
	Ready  bool     `json:"ready"`
	// Trouble is why the pod is not Ready, in one line.
	Trouble  string     `json:"trouble,omitempty"`
	Deleting bool       `json:"deleting,omitempty"`
	Restarts int32      `json:"restarts"`
	Started  *time.Time `json:"started,omitempty"`
	// Update is the newer version; nil if there is none, or its owner does not decide on it.
	Update *AppUpdate `json:"update,omitempty"`
	// Upgrade is the upgrade or rollback that waits, is in progress, or has ended last.
	Upgrade *Upgrade `json:"upgrade,omitempty"`
	Hold    *Hold    `json:"hold,omitempty"`
	// MayHold and MayRollback are what the admin permits. Previous are the images of the revision
	// that a rollback leads to; it is empty if there is none, or no way back to it. On probation that is
	// what the cloud has, as Images are.
	MayHold     bool     `json:"mayHold,omitempty"`
	MayRollback bool     `json:"mayRollback,omitempty"`
	Previous    []string `json:"previous,omitempty"`
}

// AppUpdate is a newer version of an app.
type AppUpdate struct {
	Revision string `json:"revision"`
	// Images are those that differ from what the pod runs.
	Images []string `json:"images"`
	// Bytes are to be downloaded, 0 while that is unknown; Pull is how far that is.
	Bytes int64      `json:"bytes,omitempty"`
	Pull  *ImagePull `json:"pull,omitempty"`
	// Here is true once all images are on the node.
	Here bool `json:"here"`
	// Seconds is for how long the app is about to be interrupted, from its last start; 0 is unknown.
	Seconds int `json:"seconds,omitempty"`
	// InPlace is true if it takes effect at once while the cloud is away: the pod stays, and containers restart.
	InPlace bool `json:"inPlace,omitempty"`
	// Blocked is why it cannot be requested now, in one line.
	Blocked string `json:"blocked,omitempty"`
}

// NodeState is the answer to GET of Node.
type NodeState struct {
	Node    string    `json:"node"`
	Version string    `json:"version"` // of the hub
	Time    time.Time `json:"time"`    // the node's clock
	Online  bool      `json:"online"`
	// Since is when Online last changed, or the hub's start.
	Since time.Time `json:"since"`
	// Ready is why the hub cannot serve the node, or empty.
	Ready string `json:"ready,omitempty"`
	// Unregistered is that the cloud has no Node of this name, and what to do, or empty.
	Unregistered string        `json:"unregistered,omitempty"`
	Disks        []Disk        `json:"disks"`
	Cache        CacheHealth   `json:"cache"`
	Certificates []Certificate `json:"certificates"`
	Traffic      Traffic       `json:"traffic"`
	// Pulls is true if this hub pulls images.
	Pulls bool `json:"pulls"`
	// Missing are the pods that the node should run and lacks, the longest first.
	Missing []Missing `json:"missing"`
}

// Missing is an app that has no pod on this node, and should have one.
type Missing struct {
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace"`
	Workload  string    `json:"workload"`
	Since     time.Time `json:"since"`
	// Why is in one line, mostly in the words of the apiserver or the scheduler.
	Why string `json:"why"`
}

// Disk is a file system of the node.
type Disk struct {
	// Holds is what lies there: "hub" for the cache and the upgrades, "images".
	Holds []string `json:"holds"`
	Path  string   `json:"path"`
	Free  int64    `json:"free"`  // bytes
	Total int64    `json:"total"` // bytes
}

// CacheHealth is the state of the hub's cache.
type CacheHealth struct {
	// Trouble is why it is not on disk, or empty.
	Trouble string `json:"trouble,omitempty"`
	Views   int    `json:"views"`
	Bytes   int64  `json:"bytes"` // on disk
}

// Certificate is one that the hub uses, and that expires: those that the hub makes itself do not.
type Certificate struct {
	// Name is "node" for the node's own to the apiserver, "pods" for the one that pods see, "api" for
	// that of this API.
	Name    string    `json:"name"`
	Expires time.Time `json:"expires"`
}

// Traffic is what hub and cloud have exchanged since the month began, by the node's clock: bytes of
// connections, TLS included, and without TCP/IP headers.
type Traffic struct {
	Since    time.Time `json:"since"`
	Sent     int64     `json:"sent"`
	Received int64     `json:"received"`
}

// EventList is the answer to GET of Events.
type EventList struct {
	// Items are the last 50 Events that were reported through this hub with the node's identity, as kubelet
	// does, the latest first. Those that wait for the cloud are there, too.
	Items []Event `json:"items"`
}

// Event is an Event of Kubernetes, in brief.
type Event struct {
	Namespace string    `json:"namespace,omitempty"`
	Kind      string    `json:"kind"` // of the object it is about
	Name      string    `json:"name"`
	Type      string    `json:"type"` // Normal or Warning
	Reason    string    `json:"reason"`
	Message   string    `json:"message"`
	Source    string    `json:"source,omitempty"`
	Count     int32     `json:"count"`
	First     time.Time `json:"first"`
	Last      time.Time `json:"last"`
}
