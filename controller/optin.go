package controller

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
)

const (
	// strategyAnnotation on a DaemonSet names the strategy it opts into.
	strategyAnnotation = "apps.openyurt.io/update-strategy"
	// oldStrategyAnnotation is its older name, read when the newer is absent.
	oldStrategyAnnotation = "apps.openyurt.io/upgrade-strategy"
)

// strategy is what the controller does with a DaemonSet.
type strategy int

const (
	// unmanaged DaemonSets are none of the controller's business.
	unmanaged strategy = iota
	// undecided is a DaemonSet that opted in with words nobody understands. It is
	// left as it is, marks on its pods included, until somebody corrects them: a
	// slip of the pen should not undo what is under way.
	undecided
	// ota marks pods and lets the owners of the nodes decide.
	ota
	// advancedRollingUpdate replaces the pods of nodes that are Ready. It is
	// recognised here, but not carried out yet.
	advancedRollingUpdate
)

// strategies holds the spellings, in lower case: any letter case counts. "auto"
// is the older name of AdvancedRollingUpdate.
var strategies = map[string]strategy{
	"ota":                   ota,
	"advancedrollingupdate": advancedRollingUpdate,
	"auto":                  advancedRollingUpdate,
}

// maxQuoted is how many bytes of somebody's words are repeated in an Event, whose
// message may have 1024 (the apiserver's limit for core/v1 Events).
const maxQuoted = 100

// strategyOf reads what ds asks for. When it asks for something that cannot be
// carried out, problem says what is wrong and what to write instead.
func strategyOf(ds *appsv1.DaemonSet) (_ strategy, problem string) {
	key, value, ok := strategyAnnotationOf(ds)
	if !ok {
		return unmanaged, ""
	}
	wanted, known := strategies[strings.ToLower(strings.TrimSpace(value))]
	onDelete := ds.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType
	switch {
	case known && onDelete:
		return wanted, ""
	case known:
		return unmanaged, fmt.Sprintf("annotation %s is %q, but spec.updateStrategy.type is %s, with which Kubernetes replaces the pods itself: "+
			"set spec.updateStrategy.type to OnDelete, or remove the annotation", key, quotable(value), ds.Spec.UpdateStrategy.Type)
	case onDelete:
		return undecided, fmt.Sprintf("annotation %s is %q, which is no update strategy: set it to OTA or AdvancedRollingUpdate, "+
			"or remove it; until then nothing is done with this DaemonSet", key, quotable(value))
	default:
		return unmanaged, fmt.Sprintf("annotation %s is %q, which is no update strategy: set it to OTA or AdvancedRollingUpdate "+
			"and spec.updateStrategy.type to OnDelete, or remove it", key, quotable(value))
	}
}

// strategyAnnotationOf returns the annotation that counts: the newer name wins,
// even if its value is wrong and the older one's is not.
func strategyAnnotationOf(ds *appsv1.DaemonSet) (key, value string, ok bool) {
	for _, key := range []string{strategyAnnotation, oldStrategyAnnotation} {
		if value, ok := ds.Annotations[key]; ok {
			return key, value, true
		}
	}
	return "", "", false
}

func quotable(s string) string {
	if len(s) <= maxQuoted {
		return s
	}
	return strings.ToValidUTF8(s[:maxQuoted], "") + "..."
}
