package autonomy

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/ota/api"
)

var fleet = Fleet{Defaults: Same(300)}

// plan returns the patch of a pod whose node is there.
func plan(t *testing.T, p *corev1.Pod, s Setting) []byte {
	t.Helper()
	step, err := fleet.Plan(p, s, false)
	if err != nil || step.After != 0 {
		t.Errorf("after %v, %v", step.After, err)
	}
	return step.Patch
}

// tolerations are those of not-ready and unreachable, with so many seconds; below 0 is for ever.
func tolerations(seconds ...int64) (out []corev1.Toleration) {
	for i, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		t := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
		if seconds[i] >= 0 {
			t.TolerationSeconds = &seconds[i]
		}
		out = append(out, t)
	}
	return out
}

func pod(change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "uid", ResourceVersion: "7", Annotations: map[string]string{"other": "stays"}}}
	p.Spec.NodeName = "node"
	p.Spec.Tolerations = append([]corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}, tolerations(300, 300)...)
	if change != nil {
		change(p)
	}
	return p
}

// apply returns the pod as the patch leaves it.
func apply(t *testing.T, p *corev1.Pod, patch []byte) *corev1.Pod {
	t.Helper()
	before, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	after, err := jsonpatch.MergePatch(before, patch)
	if err != nil {
		t.Fatal(err)
	}
	out := &corev1.Pod{}
	if err := json.Unmarshal(after, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// text is a pod's tolerations and annotations: "300s 300s" or "forever forever [300 300]".
func text(p *corev1.Pod) string {
	var out []string
	for _, t := range p.Spec.Tolerations {
		switch {
		case t.Key != corev1.TaintNodeNotReady && t.Key != corev1.TaintNodeUnreachable:
		case t.TolerationSeconds == nil:
			out = append(out, "forever")
		default:
			out = append(out, (Setting{Seconds: *t.TolerationSeconds}).String()[len("for up to "):])
		}
	}
	for _, key := range []string{api.OriginalNotReadyAnnotation, api.OriginalUnreachableAnnotation} {
		if value, ok := p.Annotations[key]; ok {
			out = append(out, "was "+value)
		}
	}
	return strings.Join(out, " ")
}

func TestPodsGetAndLoseTheTolerationsOfTheirNode(t *testing.T) {
	hour, forever, off := Setting{On: true, Seconds: 3600}, Setting{On: true, Forever: true}, Setting{}
	const asBefore, anHour, always = "5m0s 5m0s", "1h0m0s 1h0m0s was 300 was 300", "forever forever was 300 was 300"
	p := pod(nil)
	for _, step := range []struct {
		s    Setting
		want string
	}{{off, ""}, {hour, anHour}, {hour, ""}, {forever, always}, {forever, ""}, {hour, anHour}, {off, asBefore}, {off, ""}} {
		patch := plan(t, p, step.s)
		if step.want == "" {
			if patch != nil {
				t.Errorf("a pod with %s is patched again: %s", text(p), patch)
			}
			continue
		}
		if p = apply(t, p, patch); text(p) != step.want {
			t.Errorf("the pod has %s, want %s", text(p), step.want)
		}
		if len(p.Spec.Tolerations) != 3 || p.Annotations["other"] != "stays" || p.UID != "uid" || p.ResourceVersion != "7" {
			t.Errorf("something else has changed: %+v", p)
		}
	}
}

func TestPodsThatAreLeftAlone(t *testing.T) {
	owned := func(kind string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Controller: new(true)}}
		}
	}
	with := func(all ...corev1.Toleration) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Tolerations = all }
	}
	for name, change := range map[string]func(*corev1.Pod){
		"of a DaemonSet":   owned("DaemonSet"),
		"a mirror pod":     owned("Node"),
		"not bound":        func(p *corev1.Pod) { p.Spec.NodeName = "" },
		"on its way out":   func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) },
		"done":             func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded },
		"its own seconds":  with(tolerations(60, 60)...),
		"for ever anyway":  with(tolerations(-1, -1)...),
		"without any":      with(),
		"everything":       with(append(tolerations(300, 300), corev1.Toleration{Operator: corev1.TolerationOpExists})...),
		"all of one taint": with(corev1.Toleration{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists}),
		"twice":            with(append(tolerations(300, 300), tolerations(300, 300)...)...),
	} {
		if patch := plan(t, pod(change), Setting{On: true, Forever: true}); patch != nil {
			t.Errorf("a pod %s is patched: %s", name, patch)
		}
	}
	one := pod(with(tolerations(300, 60)...))
	if got := text(apply(t, one, plan(t, one, Setting{On: true, Seconds: 3600}))); got != "1h0m0s 1m0s was 300" {
		t.Errorf("of one with seconds of its own for one taint: %s", got)
	}
}

func TestDefaultsThatDiffer(t *testing.T) {
	bare := pod(func(p *corev1.Pod) { p.Spec.Tolerations = tolerations(30, 60) })
	d, err := DefaultsOf(bare)
	if want := (Defaults{NotReady: 30, Unreachable: 60, Asked: true}); d != want || err != nil {
		t.Fatalf("got %+v, %v, want %+v", d, err, want)
	}
	f := Fleet{Defaults: d}
	for _, tt := range []struct {
		s    Setting
		want string
	}{{For(time.Hour), "1h0m0s 1h0m0s was 30 was 60"}, {Setting{}, "30s 1m0s"}} {
		step, err := f.Plan(bare, tt.s, false)
		if err != nil {
			t.Fatal(err)
		}
		if bare = apply(t, bare, step.Patch); text(bare) != tt.want {
			t.Errorf("the pod has %s, want %s", text(bare), tt.want)
		}
	}
	for name, all := range map[string][]corev1.Toleration{
		"none": nil, "one of both": tolerations(30, 60)[:1], "for ever": tolerations(30, -1),
	} {
		if d, err := DefaultsOf(pod(func(p *corev1.Pod) { p.Spec.Tolerations = all })); err == nil {
			t.Errorf("%s: got %+v", name, d)
		}
	}
}

func TestWhichPodsStay(t *testing.T) {
	hour, always := For(time.Hour), For(0)
	for name, tt := range map[string]struct {
		tolerations []corev1.Toleration
		s           Setting
		want        bool
	}{
		"for as long":               {tolerations(3600, 3600), hour, true},
		"for longer":                {tolerations(3600, 7200), hour, true},
		"for less":                  {tolerations(3600, 3599), hour, false},
		"for ever":                  {tolerations(-1, -1), always, true},
		"not for ever":              {tolerations(-1, 3600), always, false},
		"nothing":                   {nil, hour, false},
		"one of both":               {tolerations(-1, -1)[:1], hour, false},
		"everything":                {[]corev1.Toleration{{Operator: corev1.TolerationOpExists}}, always, true},
		"everything, and less, too": {append(tolerations(60, 60), corev1.Toleration{Operator: corev1.TolerationOpExists}), hour, false},
	} {
		if got := Stays(pod(func(p *corev1.Pod) { p.Spec.Tolerations = tt.tolerations }), tt.s); got != tt.want {
			t.Errorf("a pod that tolerates %s: %v", name, got)
		}
	}
}

// A node may write the annotation, and not the toleration.
func TestAForgedRecord(t *testing.T) {
	hour, off := Setting{On: true, Seconds: 3600}, Setting{}
	for name, tt := range map[string]struct {
		record string
		has    int64 // seconds of the toleration; below 0 is for ever
		s      Setting
		want   string // "": no patch
	}{
		"no number":                        {"for ever", -1, off, "5m0s 5m0s"},
		"more than the default":            {"2000000000", 3600, off, "5m0s 5m0s"},
		"nothing":                          {"0", 3600, off, "5m0s 5m0s"},
		"below nothing":                    {"-1", 3600, off, "5m0s 5m0s"},
		"of a time with a smaller default": {"30", 3600, off, "30s 5m0s"},
		"of a pod that was released, and not gone": {"300", 0, off, "5m0s 5m0s"},
		"of a pod that the setting has been on":    {"300", 60, hour, "1h0m0s 1h0m0s was 300 was 300"},
		"of a pod whose record says more, with it": {"900", -1, hour, "1h0m0s 1h0m0s was 900 was 300"},
	} {
		p := pod(func(p *corev1.Pod) {
			p.Annotations[originals[corev1.TaintNodeNotReady]] = tt.record
			p.Spec.Tolerations = tolerations(tt.has, 300)
		})
		patch := plan(t, p, tt.s)
		if patch == nil {
			if tt.want != "" {
				t.Errorf("a record %s: no patch, want %s", name, tt.want)
			}
		} else if got := text(apply(t, p, patch)); got != tt.want {
			t.Errorf("a record %s: the pod has %s, want %s", name, got, tt.want)
		}
	}
}

// Taint eviction does not move an eviction that it has scheduled: it has to be cancelled first.
func TestWhileANodeIsAwaySecondsChangeByWayOfForever(t *testing.T) {
	const forever = "forever forever was 300 was 300"
	hour, day, always, off, released := For(time.Hour), For(24*time.Hour), For(0), Setting{}, Setting{On: true}
	for name, tt := range map[string]struct {
		before int64
		record string
		s      Setting
		steps  []string // with the pause before
	}{
		"a setting comes":           {300, "", hour, []string{"0s: " + forever, "2s: 1h0m0s 1h0m0s was 300 was 300"}},
		"one for ever comes":        {300, "", always, []string{"0s: " + forever}},
		"it is changed":             {3600, "300", day, []string{"0s: " + forever, "2s: 24h0m0s 24h0m0s was 300 was 300"}},
		"it is the same":            {3600, "300", hour, nil},
		"it goes":                   {3600, "300", off, []string{"0s: " + forever, "2s: 5m0s 5m0s"}},
		"one for ever goes":         {-1, "300", off, []string{"2s: 5m0s 5m0s"}},
		"the node is released":      {3600, "300", released, []string{"0s: " + forever, "2s: 0s 0s was 300 was 300", "15s: " + forever, "2s: 0s 0s was 300 was 300"}},
		"another one is released":   {300, "", released, []string{"0s: " + forever, "2s: 0s 0s was 300 was 300"}},
		"the release is taken back": {0, "300", hour, []string{"0s: " + forever, "2s: 1h0m0s 1h0m0s was 300 was 300"}},
		"it is as it was":           {300, "", off, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := pod(func(p *corev1.Pod) {
				p.Spec.Tolerations = tolerations(tt.before, tt.before)
				if tt.record != "" {
					p.Annotations[api.OriginalNotReadyAnnotation], p.Annotations[api.OriginalUnreachableAnnotation] = tt.record, tt.record
				}
			})
			var got []string
			for range max(len(tt.steps), 1) {
				step, err := fleet.Plan(p, tt.s, true)
				if err != nil {
					t.Fatal(err)
				}
				if step.Patch != nil {
					p = apply(t, p, step.Patch)
					got = append(got, step.After.String()+": "+text(p))
				}
			}
			if strings.Join(got, "; ") != strings.Join(tt.steps, "; ") {
				t.Errorf("got %q, want %q", got, tt.steps)
			}
			if step, _ := fleet.Plan(p, tt.s, true); (step.Patch != nil) != tt.s.Released() {
				t.Errorf("then %s", step.Patch)
			}
		})
	}
}
