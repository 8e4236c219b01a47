// Package autonomy decides for how long pods stay on a node that is away: what a Node asks for by its
// annotations, which tolerationSeconds a pod of it has to have, and what the Node's condition reports. It has no
// client and no clock. Package tolerations carries it out, and kubectl edgehub shows it.
package autonomy

import (
	"fmt"
	"math"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/edgehub-io/edgehub/ota/api"
)

// longest is the longest duration that counts: a longer one is this one. tolerationSeconds and the text of a
// condition have room for it.
const longest = 10 * 365 * 24 * time.Hour

// Setting is for how long the pods of a node stay while it is away. The zero value leaves that to Kubernetes.
type Setting struct {
	On      bool
	Forever bool // else for Seconds
	// Seconds are rounded up. None, without Forever, are of a node that was released.
	Seconds int64
}

// Released reports whether the pods of the node are to be evicted now.
func (s Setting) Released() bool { return s.On && !s.Forever && s.Seconds == 0 }

// String completes "pods stay while this node is away ...".
func (s Setting) String() string {
	if s.Forever {
		return "however long that is"
	}
	return "for up to " + (time.Duration(s.Seconds) * time.Second).String()
}

// For returns the setting for a duration of at least 0; 0 is any outage.
func For(d time.Duration) Setting {
	return Setting{On: true, Forever: d == 0, Seconds: int64(math.Ceil(min(d, longest).Seconds()))}
}

// Parse reads a Node's annotations; found is false if there are none. Its error names the annotation, and quotes no
// more than the start of a text that the node itself may have written.
func Parse(annotations map[string]string) (s Setting, found bool, err error) {
	if text, ok := annotations[api.AutonomyAnnotation]; ok {
		d, err := time.ParseDuration(strings.TrimSpace(text))
		if err != nil || d < 0 {
			return Setting{}, true, fmt.Errorf("annotation %s is %.60q: want a duration like 24h or 1h30m, or 0 for any outage", api.AutonomyAnnotation, text)
		}
		return For(d), true, nil
	}
	switch text := strings.TrimSpace(annotations[api.OldAutonomyAnnotation]); text {
	case "true":
		return For(0), true, nil
	case "false":
		return Setting{}, true, nil
	case "":
		return Setting{}, false, nil
	default:
		return Setting{}, true, fmt.Errorf("annotation %s is %.60q: want true or false; %s takes a duration", api.OldAutonomyAnnotation, text, api.AutonomyAnnotation)
	}
}

// Fleet is what holds for all nodes.
type Fleet struct {
	// Selector selects by labels the nodes that have Selected without an annotation; nil selects none.
	Selector labels.Selector
	Selected Setting
	// Defaults are what the apiserver gives pods.
	Defaults Defaults
}

// SettingOf returns what the pods of a node are to tolerate now. It returns an error if an annotation cannot be read.
func (f Fleet) SettingOf(n *corev1.Node) (Setting, error) {
	if _, released := n.Annotations[api.ReleasedAnnotation]; released && Away(n) {
		return Setting{On: true}, nil
	}
	s, found, err := Parse(n.Annotations)
	if !found && f.Selector != nil && f.Selector.Matches(labels.Set(n.Labels)) {
		return f.Selected, nil
	}
	return s, err
}
