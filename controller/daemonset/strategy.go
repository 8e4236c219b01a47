package daemonset

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/edgehub-io/edgehub/ota/api"
)

// Strategy is what is done with a DaemonSet.
type Strategy int

const (
	// Unmanaged DaemonSets have not opted in.
	Unmanaged Strategy = iota
	// Undecided is a DaemonSet whose annotation has an unknown value. It is left as it
	// is, marks on its pods included, until the value is corrected: a typo should not
	// undo what is under way.
	Undecided
	// OTA marks pods and lets the owners of the nodes decide.
	OTA
	// AdvancedRollingUpdate replaces the pods of nodes that are Ready.
	AdvancedRollingUpdate
)

// strategies holds the spellings, in lower case: any letter case counts. "auto"
// is the older name of AdvancedRollingUpdate.
var strategies = map[string]Strategy{
	"ota":                   OTA,
	"advancedrollingupdate": AdvancedRollingUpdate,
	"auto":                  AdvancedRollingUpdate,
}

// String is the spelling that is to be written.
func (s Strategy) String() string {
	switch s {
	case OTA:
		return "OTA"
	case AdvancedRollingUpdate:
		return "AdvancedRollingUpdate"
	case Undecided:
		return "Undecided"
	default:
		return "Unmanaged"
	}
}

// maxQuoted is how many bytes of a value are repeated in an Event, whose
// message may have 1024 (the apiserver's limit for core/v1 Events).
const maxQuoted = 100

// StrategyOf reads what ds asks for. When it asks for something that cannot be
// carried out, problem describes what is wrong and what to write instead. The newer annotation
// wins, even if its value is wrong and the older one's is not.
func StrategyOf(ds *appsv1.DaemonSet) (_ Strategy, problem string) {
	return ParseStrategy("DaemonSet", ds.Annotations, string(ds.Spec.UpdateStrategy.Type), OTA, AdvancedRollingUpdate)
}

// ParseStrategy is StrategyOf for an object of any kind that has one of the supported strategies.
// updateType is its spec.updateStrategy.type.
func ParseStrategy(kind string, annotations map[string]string, updateType string, supported ...Strategy) (_ Strategy, problem string) {
	key := api.StrategyAnnotation
	value, ok := annotations[key]
	if !ok {
		key = api.OldStrategyAnnotation
		if value, ok = annotations[key]; !ok {
			return Unmanaged, ""
		}
	}
	wanted, known := strategies[strings.ToLower(strings.TrimSpace(value))]
	supports := slices.Contains(supported, wanted)
	onDelete := updateType == string(appsv1.OnDeleteDaemonSetStrategyType)
	if supports && onDelete {
		return wanted, ""
	}
	problem = fmt.Sprintf("annotation %s is %q, ", key, Truncate(value, maxQuoted))
	if supports {
		return Unmanaged, problem + fmt.Sprintf("but spec.updateStrategy.type is %s, with which Kubernetes replaces the pods itself: "+
			"set spec.updateStrategy.type to OnDelete, or remove the annotation", updateType)
	}
	problem += "which is no update strategy"
	if known {
		problem += " for a " + kind
	}
	problem += ": set it to " + or(supported)
	if onDelete {
		return Undecided, problem + ", or remove it; until then nothing is done with this " + kind
	}
	return Unmanaged, problem + " and spec.updateStrategy.type to OnDelete, or remove it"
}

// or names the strategies: this or that.
func or(all []Strategy) string {
	var names []string
	for _, s := range all {
		names = append(names, s.String())
	}
	return strings.Join(names, " or ")
}
