package autonomy

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/edgehub-io/edgehub/ota/api"
)

func TestAnnotations(t *testing.T) {
	none := map[string]string{}
	of := func(pairs ...string) map[string]string {
		out := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			out[pairs[i]] = pairs[i+1]
		}
		return out
	}
	for name, tt := range map[string]struct {
		annotations map[string]string
		want        Setting
		invalid     bool
	}{
		"none":                     {none, Setting{}, false},
		"a day":                    {of(api.AutonomyAnnotation, "24h"), Setting{On: true, Seconds: 86400}, false},
		"blanks around it":         {of(api.AutonomyAnnotation, " 1h30m "), Setting{On: true, Seconds: 5400}, false},
		"rounded up":               {of(api.AutonomyAnnotation, "1500ms"), Setting{On: true, Seconds: 2}, false},
		"0":                        {of(api.AutonomyAnnotation, "0"), Setting{On: true, Forever: true}, false},
		"0s":                       {of(api.AutonomyAnnotation, "0s"), Setting{On: true, Forever: true}, false},
		"ten years":                {of(api.AutonomyAnnotation, "87600h"), Setting{On: true, Seconds: 315360000}, false},
		"all that a duration can":  {of(api.AutonomyAnnotation, "2562047h47m16s"), Setting{On: true, Seconds: 315360000}, false},
		"the older one":            {of(api.OldAutonomyAnnotation, "true"), Setting{On: true, Forever: true}, false},
		"the older one, off":       {of(api.OldAutonomyAnnotation, "false"), Setting{}, false},
		"the newer counts":         {of(api.OldAutonomyAnnotation, "true", api.AutonomyAnnotation, "1h"), Setting{On: true, Seconds: 3600}, false},
		"empty":                    {of(api.AutonomyAnnotation, ""), Setting{}, true},
		"negative":                 {of(api.AutonomyAnnotation, "-1h"), Setting{}, true},
		"days":                     {of(api.AutonomyAnnotation, "7d"), Setting{}, true},
		"the older one, a word":    {of(api.OldAutonomyAnnotation, "yes"), Setting{}, true},
		"a wrong newer one counts": {of(api.OldAutonomyAnnotation, "true", api.AutonomyAnnotation, "x"), Setting{}, true},
	} {
		got, _, err := Parse(tt.annotations)
		if got != tt.want || (err != nil) != tt.invalid {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, tt.want)
		}
		if text := got.String(); strings.Contains(text, "-") {
			t.Errorf("%s: pods stay %s", name, text)
		}
	}
	for _, key := range []string{api.AutonomyAnnotation, api.OldAutonomyAnnotation} { // a node may write as much
		_, _, err := Parse(of(key, strings.Repeat("x", 100_000)))
		c := ConditionFor(&corev1.Node{}, Setting{}, err, nil)
		if len(c.Message) > 300 || !strings.Contains(c.Message, "xxx") {
			t.Errorf("the message of the condition has %d bytes", len(c.Message))
		}
	}
}

func TestSettingsOfNodes(t *testing.T) {
	edge := Fleet{Selector: labels.SelectorFromSet(labels.Set{"edge": ""}), Selected: For(0), Defaults: Same(300)}
	unreachable := corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule}
	hour, forever := Setting{On: true, Seconds: 3600}, Setting{On: true, Forever: true}
	for name, tt := range map[string]struct {
		fleet  Fleet
		change func(*corev1.Node)
		want   Setting
	}{
		"nothing":                      {Fleet{}, func(*corev1.Node) {}, Setting{}},
		"a label that is selected":     {edge, func(n *corev1.Node) { n.Labels = map[string]string{"edge": ""} }, forever},
		"a label that is not selected": {edge, func(n *corev1.Node) { n.Labels = map[string]string{"core": ""} }, Setting{}},
		"an annotation wins": {edge, func(n *corev1.Node) {
			n.Labels, n.Annotations = map[string]string{"edge": ""}, map[string]string{api.AutonomyAnnotation: "1h"}
		}, hour},
		"so does one that turns it off": {edge, func(n *corev1.Node) {
			n.Labels, n.Annotations = map[string]string{"edge": ""}, map[string]string{api.OldAutonomyAnnotation: "false"}
		}, Setting{}},
		"so does one that cannot be read": {edge, func(n *corev1.Node) {
			n.Labels, n.Annotations = map[string]string{"edge": ""}, map[string]string{api.AutonomyAnnotation: "7d"}
		}, Setting{}},
		"a node that is away is released": {edge, func(n *corev1.Node) {
			n.Spec.Taints, n.Annotations = []corev1.Taint{unreachable}, map[string]string{api.AutonomyAnnotation: "1h", api.ReleasedAnnotation: "now"}
		}, Setting{On: true}},
		"a node that is there is not": {edge, func(n *corev1.Node) {
			n.Annotations = map[string]string{api.AutonomyAnnotation: "1h", api.ReleasedAnnotation: "now"}
		}, hour},
		"a node that never was is released": {Fleet{}, func(n *corev1.Node) {
			n.Spec.Taints, n.Annotations = []corev1.Taint{unreachable}, map[string]string{api.ReleasedAnnotation: "now"}
		}, Setting{On: true}},
	} {
		n := &corev1.Node{}
		tt.change(n)
		if got, _ := tt.fleet.SettingOf(n); got != tt.want || got.Released() != (tt.want == Setting{On: true}) {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}
