package rollback

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/ota/upgrade"
)

// revisionWith returns a ControllerRevision whose pod template has this spec, without braces.
func revisionWith(hash string, number int64, spec string) *appsv1.ControllerRevision {
	r := &appsv1.ControllerRevision{Revision: number}
	r.Namespace, r.Name = "default", "web-"+hash
	r.Labels = map[string]string{appsv1.ControllerRevisionHashLabelKey: hash}
	r.Data.Raw = fmt.Appendf(nil, `{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"app":"web"}},"spec":{%s}}}}`, spec)
	return r
}

const (
	containers = `"containers":[{"name":"app","image":"app:%s","env":[{"name":"A"}]},{"name":"side","image":"side:1"}]`
	inits      = `,"initContainers":[{"name":"init","image":"init:1"}]`
)

// history has the revisions v1, v2 and v3, which is the newest and differs from the others by the image
// of one container, and some that differ by more.
func history() *Revisions {
	spec := func(version string) string { return fmt.Sprintf(containers, version) + inits }
	labelled := revisionWith("label", 8, spec("2"))
	labelled.Data.Raw = bytes.Replace(labelled.Data.Raw, []byte(`"app":"web"`), []byte(`"app":"web","tier":"edge"`), 1)
	return NewRevisions("v3", []*appsv1.ControllerRevision{
		revisionWith("v1", 1, spec("1")),
		revisionWith("v2", 2, spec("2")),
		revisionWith("v3", 9, spec("3")),
		revisionWith("volumes", 3, spec("2")+`,"volumes":[{"name":"x"}]`),
		revisionWith("later", 4, spec("2")+`,"fieldOfALaterKubernetes":1`),
		revisionWith("init", 5, fmt.Sprintf(containers, "2")+`,"initContainers":[{"name":"init","image":"init:2"}]`),
		revisionWith("env", 6, strings.Replace(spec("2"), `"A"`, `"B"`, 1)),
		labelled,
		revisionWith("damaged", 7, `"containers":1`),
	})
}

// pod returns a pod of the revision with this hash that runs app:VERSION.
func pod(hash, version string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "pod-uid", ResourceVersion: "7", Annotations: map[string]string{},
		Labels: map[string]string{appsv1.ControllerRevisionHashLabelKey: hash}}}
	p.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "init:1"}}
	p.Spec.Containers = []corev1.Container{{Name: "app", Image: "app:" + version}, {Name: "side", Image: "side:1"}}
	for _, f := range change {
		f(p)
	}
	return p
}

func wish(revision, from string) func(*corev1.Pod) {
	return annotated(upgrade.Rollback{Revision: revision, From: from}.Encode())
}

func annotated(value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations[upgrade.RollbackAnnotation] = value }
}

func sidecar(p *corev1.Pod) {
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "mesh", Image: "mesh:1", ImagePullPolicy: corev1.PullAlways})
	p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: "mesh-init", Image: "mesh:1"})
}

func TestWhichPodsDifferByImagesAlone(t *testing.T) {
	tests := map[string]struct {
		pod  *corev1.Pod
		want string // a part of the reason; "" if the wish for v2 is granted
	}{
		"only an image differs":                            {pod("v3", "3"), ""},
		"a sidecar of an admission webhook does not count": {pod("v3", "3", sidecar), ""},
		"the image that is wanted has been set already":    {pod("v3", "2"), ""},
		"a volume differs":                                 {pod("volumes", "2"), "spec.volumes differs"},
		"a field that this program does not know":          {pod("later", "2"), "spec.fieldOfALaterKubernetes differs"},
		"the environment of a container":                   {pod("env", "2"), "spec.containers differs"},
		"the image of an init container":                   {pod("init", "2"), "spec.initContainers differs"},
		"a label":                                          {pod("label", "2"), "metadata.labels differs"},
		"a revision that is gone":                          {pod("gone", "2"), "not in the history"},
		"a revision that cannot be read":                   {pod("damaged", "2"), "not in the history"},
		"an image that admission rewrote": {pod("v3", "3", func(p *corev1.Pod) { p.Spec.Containers[0].Image = "mirror/app:1" }),
			"container app of the pod has another image"},
		"a container that is not in the pod": {pod("v3", "3", func(p *corev1.Pod) { p.Spec.Containers = p.Spec.Containers[:1] }),
			"container side of the pod has another image"},
		"an init container that admission rewrote": {pod("v3", "3", func(p *corev1.Pod) { p.Spec.InitContainers[0].Image = "mirror/init:1" }),
			"an init container of the pod"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			wish("v2", "v3")(tt.pod)
			got := history().Decide(tt.pod, upgrade.Policy{Rollback: true})
			if tt.want == "" && got != (Decision{Revision: "v2"}) || tt.want != "" && got.Reason != ReasonNotInPlace || !strings.Contains(got.Message, tt.want) {
				t.Errorf("got %+v, want %q", got, tt.want)
			}
		})
	}
}

func TestWhatIsWrittenToAPod(t *testing.T) {
	const toV2 = `{"metadata":{"uid":"pod-uid","resourceVersion":"7","labels":{"controller-revision-hash":"v2","pod-template-generation":null}},` +
		`"spec":{"containers":[{"name":"app","image":"app:2"}]}}`
	labelAlone := strings.Replace(toV2, `"containers":[{"name":"app","image":"app:2"}]`, "", 1)
	allowed := upgrade.Policy{Rollback: true}
	tests := map[string]struct {
		pod    *corev1.Pod
		policy upgrade.Policy
		want   string
	}{
		"the owner goes back":                          {pod("v3", "3", wish("v2", "v3")), allowed, toV2},
		"beside a sidecar of an admission webhook":     {pod("v3", "3", wish("v2", "v3"), sidecar), allowed, toV2},
		"the image has been set already":               {pod("v3", "2", wish("v2", "v3")), allowed, labelAlone},
		"from a revision between":                      {pod("v2", "2", wish("v1", "v3")), allowed, strings.ReplaceAll(strings.ReplaceAll(toV2, "v2", "v1"), "app:2", "app:1")},
		"the owner went back":                          {pod("v2", "2", wish("v2", "v3")), allowed, ""},
		"a rollback that the workload does not permit": {pod("v3", "3", wish("v2", "v3")), upgrade.Policy{}, ""},
		"a rollback that has ended":                    {pod("v3", "3", wish("v1", "v2")), allowed, ""},
		"more than images differs":                     {pod("v3", "3", wish("volumes", "v3")), allowed, ""},
		"a pod that is being deleted":                  {pod("v3", "3", wish("v2", "v3"), func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }), allowed, ""},
		"nonsense":                                     {pod("v3", "3", annotated("{")), allowed, ""},
		"nobody wishes anything":                       {pod("v3", "3"), allowed, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := string(history().Patch(tt.pod, tt.policy)); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestWhichRollbacksAreGranted(t *testing.T) {
	allowed := upgrade.Policy{Rollback: true}
	tests := map[string]struct {
		pod    *corev1.Pod
		policy upgrade.Policy
		reason string // "" is granted
		words  string
	}{
		"an earlier revision":       {pod("v3", "3", wish("v2", "v3")), allowed, "", ""},
		"a much earlier one":        {pod("v3", "3", wish("v1", "v3")), allowed, "", ""},
		"of a pod that has it":      {pod("v2", "2", wish("v2", "v3")), allowed, "", ""},
		"a newer revision has come": {pod("v2", "2", wish("v1", "v2")), allowed, ReasonNewerRevision, "from another revision than controllerrevision v3"},
		"it is not permitted":       {pod("v3", "3", wish("v2", "v3")), upgrade.Policy{}, ReasonNotPermitted, upgrade.OwnerRollbackAnnotation + " to Allowed"},
		"the revision is gone":      {pod("v3", "3", wish("gone", "v3")), allowed, ReasonUnknownRevision, `"gone"`},
		"it is the newest":          {pod("v3", "3", wish("v3", "v3")), allowed, ReasonUnknownRevision, "no earlier one"},
		"a forged one is cut":       {pod("v3", "3", wish(strings.Repeat("\n", 999), "v3")), allowed, ReasonUnknownRevision, `\n...`},
		"more than images":          {pod("v3", "3", wish("volumes", "v3")), allowed, ReasonNotInPlace, "spec.volumes differs"},
		"nonsense":                  {pod("v3", "3", annotated("{}")), allowed, ReasonInvalid, upgrade.RollbackAnnotation},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := history().Decide(tt.pod, tt.policy)
			if got.Reason != tt.reason || !strings.Contains(got.Message, tt.words) || (got.Revision != "") != (tt.reason == "") || len(got.Message) > 500 {
				t.Errorf("got %+v, want %q, %q", got, tt.reason, tt.words)
			}
		})
	}
	if got := history().Decide(pod("v3", "3"), allowed); got != (Decision{}) {
		t.Errorf("no wish: got %+v", got)
	}
}

func TestARollbackIsDoneWhenThePodIsOfTheRevision(t *testing.T) {
	granted := Decision{Revision: "v2"}
	if granted.Done(pod("v3", "3")) || !granted.Done(pod("v2", "2")) || (Decision{}).Done(pod("", "1")) {
		t.Error("it is done when the pod has the label")
	}
}
