package rollback

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/ota/api"
)

// targetOf is the target of a revision, as admission leaves it.
func targetOf(t *testing.T, r *Revisions, hash string) api.Target {
	t.Helper()
	revision := r.history()[hash]
	if revision == nil {
		return api.Target{Revision: hash}
	}
	return revision.target
}

func TestWhichUpgradesAreInPlace(t *testing.T) {
	for name, tt := range map[string]struct {
		pod     *corev1.Pod
		target  string
		problem string // a part of it; "": app:1 becomes app:3, or as it was
	}{
		"only an image differs":                                {pod("v1", "1"), "v3", ""},
		"a container of an admission webhook does not count":   {pod("v1", "1", sidecar), "v3", ""},
		"the same image":                                       {pod("v3", "3"), "v3", "no image of a container differs"},
		"somebody has changed the image":                       {pod("v1", "2"), "v3", "container app has another image than its revision"},
		"somebody has changed an image that stays":             {pod("v1", "1", func(p *corev1.Pod) { p.Spec.Containers[1].Image = "side:2" }), "v3", "container side has another image"},
		"the pod lacks a container":                            {pod("v1", "1", func(p *corev1.Pod) { p.Spec.Containers = p.Spec.Containers[:1] }), "v3", "no container side"},
		"a volume differs":                                     {pod("volumes", "2"), "v3", "spec.volumes differs"},
		"a field that this program does not know":              {pod("later", "2"), "v3", "spec.fieldOfALaterKubernetes differs"},
		"the image of an init container":                       {pod("init", "2"), "v3", "spec.initContainers differs"},
		"the image of a native sidecar, whatever kubelet does": {pod("mesh", "2", meshOf("mesh:1", "v1.37.0")), "mesh2", "the image of a native sidecar differs"},
		"a label":                 {pod("label", "2"), "v3", "metadata.labels differs"},
		"a revision that is gone": {pod("v1", "1"), "gone", "that revision is not in the history"},
		"the pod's is gone":       {pod("gone", "1"), "v3", "own revision is not in the history"},
		"a pod that has ended":    {pod("v1", "1", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), "v3", "has ended"},
	} {
		t.Run(name, func(t *testing.T) {
			r := history()
			got, problem := r.InPlace(tt.pod, targetOf(t, r, tt.target))
			if !strings.Contains(problem, tt.problem) || (problem == "") != (tt.problem == "") {
				t.Errorf("got %q, want %q", problem, tt.problem)
			}
			if tt.problem == "" && (got.Revision != "v3" || !slices.Equal(got.Changes, []api.ImageChange{{Name: "app", From: "app:1", To: "app:3"}})) {
				t.Errorf("got %+v", got)
			}
		})
	}
	r := history()
	target := targetOf(t, r, "v3")
	target.Containers = []api.TargetImage{{Name: "app", Image: "site/app:3"}, {Name: "side", Image: "side:1"}}
	if _, problem := r.InPlace(pod("v1", "1"), target); !strings.Contains(problem, "gives new pods another image for container app") {
		t.Errorf("got %q", problem)
	}
}

func TestThePatchThatIsAskedAboutIsTheOneOfTheReturn(t *testing.T) {
	p, r := pod("v1", "1"), history()
	u, _ := r.InPlace(p, targetOf(t, r, "v3"))
	const want = `{"metadata":{"uid":"pod-uid","labels":{"controller-revision-hash":"v3","pod-template-generation":null}},"spec":{"containers":[{"name":"app","image":"app:3"}]}}`
	if got := string(u.Patch(p)); got != want {
		t.Errorf("before: %s", got)
	}
	reported(p, "v3", corev1.ConditionTrue, api.TargetImage{Name: "app", Image: "app:3"})
	back := r.ReturnOf(p, true)
	if got := string(back.Question(p)); got != want {
		t.Errorf("afterwards: %s", got)
	}
	if got := string(back.Patch(p)); got != strings.Replace(want, `"uid":"pod-uid",`, `"uid":"pod-uid","resourceVersion":"7",`, 1) {
		t.Errorf("the patch is %s", got)
	}
	p.DeletionTimestamp = new(metav1.Now())
	if got := back.Patch(p); got != nil {
		t.Errorf("a pod that is being deleted: %s", got)
	}
}

func TestAnImageThatAdmissionRewritesIsFound(t *testing.T) {
	before, after := pod("v1", "1"), pod("v3", "3")
	want := []api.TargetImage{{Name: "app", Image: "app:3"}}
	if got := Rewritten(before, after, want); got != "" {
		t.Errorf("got %q", got)
	}
	after.Spec.Containers[1].Image = "site/side:1" // also one that was to stay
	if got := Rewritten(before, after, want); got != "admission changes the image of container side from side:1 to site/side:1" {
		t.Errorf("got %q", got)
	}
}

// reported has the hub report, with images, that p runs a revision.
func reported(p *corev1.Pod, revision string, status corev1.ConditionStatus, images ...api.TargetImage) {
	c := corev1.PodCondition{Type: api.UpgradedOfflineCondition, Status: status, Reason: api.ReasonPassed, Message: api.Message(revision)}
	p.Status.Conditions = []corev1.PodCondition{c}
	if images != nil {
		p.Annotations[api.UpgradedOfflineAnnotation] = api.OfflineUpgrade{Revision: revision, From: "x", Images: images}.Encode()
	}
}

func TestWhatBecomesOfAPodThatWasUpgradedWithoutTheCloud(t *testing.T) {
	app3 := api.TargetImage{Name: "app", Image: "app:3"}
	for name, tt := range map[string]struct {
		pod       *corev1.Pod
		change    func(*corev1.Pod)
		forbidden bool
		patched   bool
		reason    string
		words     string // of the message, or of why it is unsettled
		free      bool   // the controller may delete it
	}{
		"it follows":                     {pod: pod("v1", "1"), patched: true, words: "about to get what it runs"},
		"also to an earlier revision":    {pod: pod("v3", "3"), change: func(p *corev1.Pod) { reported(p, "v1", "True", api.TargetImage{Name: "app", Image: "app:1"}) }, patched: true, words: "about to"},
		"the label alone is behind":      {pod: pod("v1", "3"), patched: true, words: "about to"},
		"it has followed":                {pod: pod("v3", "3"), free: true},
		"no report":                      {pod: pod("v1", "1"), change: func(p *corev1.Pod) { p.Status.Conditions = nil; clear(p.Annotations) }, free: true},
		"on probation":                   {pod: pod("v1", "1"), change: func(p *corev1.Pod) { clear(p.Annotations); reported(p, "v3", "Unknown") }, words: "does not know yet"},
		"passed, and yet to be reported": {pod: pod("v1", "1"), change: func(p *corev1.Pod) { clear(p.Annotations); reported(p, "v3", "True") }, words: "yet to report to what"},
		"the node went back":             {pod: pod("v1", "1"), change: func(p *corev1.Pod) { clear(p.Annotations); reported(p, "v3", "False") }, free: true},
		"reconciled": {pod: pod("v3", "3"), change: func(p *corev1.Pod) {
			clear(p.Annotations)
			reported(p, "v3", "True")
			p.Status.Conditions[0].Reason = api.ReasonReconciled
		}, free: true},
		"a report before the probation":    {pod: pod("v1", "1"), change: func(p *corev1.Pod) { reported(p, "v3", "Unknown", app3) }, words: "yet to report that the new version works"},
		"a report and no condition":        {pod: pod("v1", "1"), change: func(p *corev1.Pod) { p.Status.Conditions = nil }, words: "yet to report that"},
		"a condition of another revision":  {pod: pod("v1", "1"), change: func(p *corev1.Pod) { p.Status.Conditions[0].Message = api.Message("v2") }, words: "yet to report that"},
		"it is not permitted":              {pod: pod("v1", "1"), forbidden: true, reason: api.ReasonNotAllowed, words: "does not permit", free: true},
		"on probation, and not permitted":  {pod: pod("v1", "1"), change: func(p *corev1.Pod) { clear(p.Annotations); reported(p, "v3", "Unknown") }, forbidden: true, free: true},
		"no JSON":                          {pod: pod("v1", "1"), change: func(p *corev1.Pod) { p.Annotations[api.UpgradedOfflineAnnotation] = "{" }, reason: api.ReasonReportInvalid, words: "is invalid"},
		"a revision that is gone":          {pod: pod("v1", "1"), change: func(p *corev1.Pod) { reported(p, "gone", "True", app3) }, reason: api.ReasonRevisionUnknown, words: `"gone", which is not in the history`},
		"the pod's revision is gone":       {pod: pod("gone", "1"), reason: api.ReasonRevisionUnknown, words: `its own controllerrevision "gone"`},
		"more than images differs":         {pod: pod("volumes", "2"), reason: api.ReasonMoreThanImages, words: "spec.volumes differs"},
		"a native sidecar differs":         {pod: pod("mesh", "2", meshOf("mesh:1", "v1.37.0")), change: func(p *corev1.Pod) { reported(p, "mesh2", "True", app3) }, reason: api.ReasonMoreThanImages, words: "native sidecar"},
		"an image of no revision":          {pod: pod("v1", "1"), change: func(p *corev1.Pod) { reported(p, "v3", "True", api.TargetImage{Name: "app", Image: "evil"}) }, reason: api.ReasonImagesDiffer, words: `image "evil"`},
		"an image of another container":    {pod: pod("v1", "1"), change: func(p *corev1.Pod) { reported(p, "v3", "True", app3, api.TargetImage{Name: "side", Image: "app:3"}) }, reason: api.ReasonImagesDiffer, words: `of container "side"`},
		"a container that is not reported": {pod: pod("v1", "1"), change: func(p *corev1.Pod) { reported(p, "v3", "True", api.TargetImage{Name: "side", Image: "side:1"}) }, reason: api.ReasonImagesDiffer, words: "does not report that one"},
		"a container that the pod lacks":   {pod: pod("v1", "1"), change: func(p *corev1.Pod) { p.Spec.Containers = p.Spec.Containers[1:] }, reason: api.ReasonImagesDiffer, words: `no container "app"`},
		"an image that somebody has set":   {pod: pod("v1", "hand"), reason: api.ReasonImagesDiffer, words: "somebody has changed it"},
	} {
		t.Run(name, func(t *testing.T) {
			reported(tt.pod, "v3", corev1.ConditionTrue, app3)
			if tt.change != nil {
				tt.change(tt.pod)
			}
			got := history().ReturnOf(tt.pod, !tt.forbidden)
			if (got.Patch(tt.pod) != nil) != tt.patched || got.Reason != tt.reason || (got.Unsettled == "") != tt.free ||
				!strings.Contains(got.Message+got.Unsettled, tt.words) {
				t.Errorf("got %+v", got)
			}
		})
	}
}
