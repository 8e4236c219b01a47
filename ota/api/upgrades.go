package api

import (
	"cmp"
	"strings"
	"time"
)

// Upgrades is the path of all upgrades that this node knows of: waiting, in progress, and the last
// that ended.
const Upgrades = "/openyurt.io/v1/upgrades"

// HoldPath returns the path of a pod's hold: POST with ?for=2h sets it, GET shows it, and DELETE
// removes it.
func HoldPath(namespace, pod string) string { return podPath(HoldPattern, namespace, pod) }

// RollbackPath returns the path to which a pod's rollback is posted.
func RollbackPath(namespace, pod string) string { return podPath(RollbackPattern, namespace, pod) }

// HistoryPath returns the path of the revisions that a pod's app has run on this node.
func HistoryPath(namespace, pod string) string { return podPath(HistoryPattern, namespace, pod) }

// Query parameters of POST upgrade. At most one of AtParam and WindowParam may be set.
const (
	AtParam       = "at"     // RFC 3339: when it begins
	WindowParam   = "window" // HH:MM-HH:MM: it begins once within
	TimeZoneParam = "tz"     // of the window, an IANA name; the node's own if it is not set
	ForceParam    = "force"  // true: in spite of a hold
)

// Query parameters of POST hold.
const (
	ForParam    = "for"    // how long, as a Go duration
	ReasonParam = "reason" // for people
)

// Query parameters of POST rollback, besides ForceParam.
const (
	RevisionParam = "revision" // the hash of an earlier revision; the previous one if it is not set
)

// Action is what is done with a pod.
type Action string

// The actions.
const (
	UpgradeAction  Action = "Upgrade"
	RollbackAction Action = "Rollback"
)

// UpgradeState is the state of an upgrade or rollback.
type UpgradeState string

// The states. The last three are final.
const (
	WaitingForCloud UpgradeState = "WaitingForCloud"
	Scheduled       UpgradeState = "Scheduled" // until At, or the next Window
	Held            UpgradeState = "Held"      // until the pod's hold ends
	InProgress      UpgradeState = "InProgress"
	Done            UpgradeState = "Done"
	Dropped         UpgradeState = "Dropped" // it no longer applies, Message is the reason
	Withdrawn       UpgradeState = "Withdrawn"
)

// Final reports whether s does not change any more.
func (s UpgradeState) Final() bool {
	return s == Done || s == Dropped || s == Withdrawn
}

// Upgrade is an upgrade or rollback of a pod that does not begin and end with its request.
type Upgrade struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	UID       string `json:"uid"`
	Action    Action `json:"action"`
	// Revision is the hash of the revision that the pod is to run.
	Revision  string       `json:"revision"`
	State     UpgradeState `json:"state"`
	Requested time.Time    `json:"requested"`
	// At or Window, with TimeZone, is when it begins; neither: as soon as the cloud can be reached.
	At       *time.Time `json:"at,omitempty"`
	Window   string     `json:"window,omitempty"`
	TimeZone string     `json:"timeZone,omitempty"`
	// Next is when it is tried, while State is Scheduled.
	Next *time.Time `json:"next,omitempty"`
	// Message is one line for people: what it waits for, or how it ended.
	Message string     `json:"message,omitempty"`
	Ended   *time.Time `json:"ended,omitempty"`
	// InPlace is there for an upgrade that the node carries out without the cloud. It is Done once the new version stays, and
	// Dropped if it was undone.
	InPlace *InPlace `json:"inPlace,omitempty"`
}

// Compare orders upgrades as in UpgradeList.
func (u Upgrade) Compare(other Upgrade) int {
	if u.State.Final() != other.State.Final() {
		if other.State.Final() {
			return -1
		}
		return 1
	}
	return cmp.Or(u.Requested.Compare(other.Requested), strings.Compare(u.Namespace, other.Namespace), strings.Compare(u.Pod, other.Pod))
}

// UpgradeList is the answer to GET of Upgrades.
type UpgradeList struct {
	// Items are in the order of their requests, those that have ended after all others.
	Items []Upgrade `json:"items"`
}

// Hold is the answer to GET of HoldPath.
type Hold struct {
	Namespace string    `json:"namespace"`
	Pod       string    `json:"pod"`
	Since     time.Time `json:"since"`
	Until     time.Time `json:"until"`
	Reason    string    `json:"reason,omitempty"`
	// Reported is true once the cloud has it.
	Reported bool `json:"reported"`
}

// History is the answer to GET of HistoryPath.
type History struct {
	// Items are the revisions, the current one first.
	Items []Revision `json:"items"`
	// Upgrade is the pod's upgrade in place, if it had one.
	Upgrade *Upgrade `json:"upgrade,omitempty"`
}

// Revision is one revision of an app that this node has run.
type Revision struct {
	Revision string    `json:"revision"`
	Since    time.Time `json:"since"`
	Current  bool      `json:"current,omitempty"`
	// Images are those of all containers, as the pod's spec names them.
	Images []string `json:"images"`
	// Retained is true if all images are on the node, and stay there for a rollback.
	Retained bool `json:"retained"`
	// Blocked is why the cluster cannot take the pod back to it, "" if it can, or if that is not known.
	Blocked string `json:"blocked,omitempty"`
}
