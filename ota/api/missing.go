package api

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MissingAnnotation on a Node has the pods that it should run and Kubernetes does not bring, as a list of Missing in
// JSON. The controller sets it. A node may read neither Events nor a pod that is not bound to it, but its own Node.
const MissingAnnotation = "apps.openyurt.io/missing-pods"

// MaxMissing is how many pods a Node names, of MaxMissingWhy bytes each: every kubelet and many other clients read it.
const (
	MaxMissing    = 10
	MaxMissingWhy = 300
)

// MissingWorkload is a workload whose pod does not come to a node.
type MissingWorkload struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Since is from when on the node has lacked the pod, by the clock of the controller.
	Since time.Time `json:"since"`
	// Why is what the apiserver or the scheduler says, in one line.
	Why string `json:"why"`
}

// EncodeMissing returns the annotation; "" if nothing is missing.
func EncodeMissing(list []MissingWorkload) string {
	if len(list) == 0 {
		return ""
	}
	return encode(list[:min(len(list), MaxMissing)])
}

// MissingOn returns the entries of a Node's annotation. The node itself can write anything into it, and people read it in
// terminals: entries that name no workload are left out, and Why is one line of printable characters.
func MissingOn(node metav1.Object) ([]MissingWorkload, error) {
	value, ok := node.GetAnnotations()[MissingAnnotation]
	if !ok {
		return nil, nil
	}
	var list []MissingWorkload
	if err := json.Unmarshal([]byte(value), &list); err != nil {
		return nil, fmt.Errorf("annotation %s of node %s: %w", MissingAnnotation, node.GetName(), err)
	}
	list = slices.DeleteFunc(list, func(m MissingWorkload) bool {
		return m.Kind != "DaemonSet" && m.Kind != "StatefulSet" ||
			len(validation.ValidateNamespaceName(m.Namespace, false)) > 0 || len(validation.NameIsDNSSubdomain(m.Name, false)) > 0
	})
	list = list[:min(len(list), MaxMissing)]
	for i := range list {
		list[i].Why = OneLine(list[i].Why, MaxMissingWhy)
	}
	return list, nil
}

// OneLine returns text that others wrote so that a terminal, an Event or a condition can show it: its printable
// characters, and blanks in place of others, in at most limit bytes and "..." where it was cut.
func OneLine(text string, limit int) string {
	line := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(text, " "))
	if len(line) > limit {
		return strings.ToValidUTF8(line[:limit], "") + "..."
	}
	return line
}
