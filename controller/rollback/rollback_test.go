package rollback

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/ota/api"
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
		revisionWith("mesh", 3, fmt.Sprintf(containers, "2")+nativeSidecar+`"mesh:1"}]`),
		revisionWith("mesh2", 8, fmt.Sprintf(containers, "3")+nativeSidecar+`"mesh:2"}]`),
	}, func(pod *corev1.Pod) bool { return RestartsSidecars(nodeWith(pod.Spec.NodeName)) })
}

const nativeSidecar = `,"initContainers":[{"name":"init","image":"init:1"},{"name":"mesh","restartPolicy":"Always","image":`

// nodeWith returns a node whose kubelet has this version.
func nodeWith(kubelet string) *corev1.Node {
	node := &corev1.Node{}
	node.Status.NodeInfo.KubeletVersion = kubelet
	return node
}

// answered returns the revisions after the apiserver was asked for what pod's owner wants.
func answered(p *corev1.Pod, a Admission) *Revisions {
	r := history()
	r.Answer(p, a)
	return r
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
	return annotated(api.Rollback{Revision: revision, From: from}.Encode())
}

func annotated(value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations[api.RollbackAnnotation] = value }
}

func sidecar(p *corev1.Pod) {
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "mesh", Image: "mesh:1", ImagePullPolicy: corev1.PullAlways})
	p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: "mesh-init", Image: "mesh:1"})
}

func meshOf(image, kubelet string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: "mesh", Image: image})
		p.Spec.NodeName = kubelet
	}
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
			"container app of the pod has another image than the pod template, and what admission makes of the earlier version is not known: nobody was asked"},
		"a container that is not in the pod": {pod("v3", "3", func(p *corev1.Pod) { p.Spec.Containers = p.Spec.Containers[:1] }),
			"the pod has no container side"},
		"an init container that admission rewrote": {pod("v3", "3", func(p *corev1.Pod) { p.Spec.InitContainers[0].Image = "mirror/init:1" }),
			"container init of the pod has another image"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			wish("v2", "v3")(tt.pod)
			got := answered(tt.pod, Admission{Why: "nobody was asked"}).Decide(tt.pod, api.Policy{Rollback: true})
			if tt.want == "" && got != (Decision{Revision: "v2"}) || tt.want != "" && got.Reason != ReasonNotInPlace || !strings.Contains(got.Message, tt.want) {
				t.Errorf("got %+v, want %q", got, tt.want)
			}
		})
	}
}

func TestANativeSidecarIsRolledBackWhereKubeletRestartsIt(t *testing.T) {
	for kubelet, restarts := range map[string]bool{
		"v1.37.2": true, "v1.32.0": true, "v1.32.4+k3s1": true, "v2.0.0": true, "v1.31.9": false, "": false, "latest": false,
	} {
		t.Run(kubelet, func(t *testing.T) {
			r := NewRevisions("mesh2", history().all, history().restartsSidecars)
			p := pod("mesh2", "3", meshOf("mesh:2", kubelet), wish("mesh", "mesh2"))
			r.Answer(p, Admission{})
			allowed := api.Policy{Rollback: true}
			patch, decision := string(r.Patch(p, allowed)), r.Decide(p, allowed)
			if restarts != strings.Contains(patch, `"spec":{"initContainers":[{"name":"mesh","image":"mesh:1"}],"containers":[{"name":"app","image":"app:2"}]}`) {
				t.Errorf("got patch %s", patch)
			}
			if restarts != (decision.Reason == "") || !restarts && !strings.Contains(decision.Message, "only kubelet 1.32 or later restarts it") {
				t.Errorf("got %+v", decision)
			}
			if problem := r.From(r.OriginOf(p))["mesh"]; problem != decision.Message {
				t.Errorf("the node is told %q, and the answer is %q", problem, decision.Message)
			}
		})
	}
}

// What the node is told agrees with what becomes of a wish.
func TestToWhichRevisionsAPodCanGoBack(t *testing.T) {
	r := history()
	told := r.From(r.OriginOf(pod("v3", "3")))
	for hash, words := range map[string]string{"v1": "", "v2": "", "volumes": "spec.volumes differs", "init": "spec.initContainers differs", "mesh": "spec.initContainers differs"} {
		if problem, ok := told[hash]; !ok || (problem == "") != (words == "") || !strings.Contains(problem, words) {
			t.Errorf("%s: %q, %t; want %q", hash, problem, ok, words)
		}
	}
	for _, hash := range []string{"v3", "gone", "damaged"} {
		if _, ok := told[hash]; ok {
			t.Errorf("%s is among %v", hash, told)
		}
	}
	for hash, problem := range r.From(r.OriginOf(pod("gone", "2"))) {
		if !strings.Contains(problem, "the pod's own revision is not in the history") {
			t.Errorf("of a pod whose revision is gone, %s: %q", hash, problem)
		}
	}
	many := []*appsv1.ControllerRevision{revisionWith("v3", 99, `"containers":[{"name":"app"}]`)}
	for i := range api.MaxRevisions + 1 {
		many = append(many, revisionWith(fmt.Sprint(i), int64(i), `"containers":[{"name":"app"}]`))
	}
	if told := NewRevisions("v3", many, history().restartsSidecars).From(Origin{revision: "v3"}); told != nil {
		t.Errorf("of too many: %v", told)
	}
}

// Who goes back gets what admission makes of the earlier revision now: webhooks that rewrite images at creation do not see
// the patch. What the earlier revision has in common with the pod's own stays as it is.
func TestTheImagesOfARollbackAreThoseThatAreAdmitted(t *testing.T) {
	mirrored := func(p *corev1.Pod) {
		for _, containers := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
			for i := range containers {
				containers[i].Image = "mirror/" + containers[i].Image
			}
		}
		sidecar(p)
	}
	p := pod("v3", "3", mirrored, wish("v2", "v3"))
	allowed := api.Policy{Rollback: true}
	r := history()
	if revision := r.Unasked(p, allowed); revision == nil || revision.Name != "web-v2" || r.Patch(p, allowed) != nil {
		t.Fatalf("before it is asked: %v, %s", revision, r.Patch(p, allowed))
	}
	r.Answer(p, Admission{Images: map[string]string{"init": "other/init:1", "app": "other/app:2", "side": "other/side:1", "mesh": "mesh:9"}})
	if patch := string(r.Patch(p, allowed)); !strings.Contains(patch, `"spec":{"containers":[{"name":"app","image":"other/app:2"}]}`) {
		t.Errorf("got %s", patch)
	}
	if revision := r.Unasked(p, allowed); revision != nil {
		t.Error("it is asked again")
	}
	r.Answer(p, Admission{Refused: true, Why: "no such registry"})
	if d := r.Decide(p, allowed); d.Reason != ReasonNotAdmitted || !strings.Contains(d.Message, "no such registry") || r.Patch(p, allowed) != nil {
		t.Errorf("refused: got %+v, %s", d, r.Patch(p, allowed))
	}
	wish("v1", "v3")(p)
	if revision := r.Unasked(p, allowed); revision == nil || revision.Name != "web-v1" {
		t.Errorf("of another wish, it is asked for %v", revision)
	}
	r.Retain(nil)
	if len(r.admissions) > 0 {
		t.Error("the answer about a pod that is gone is kept")
	}
	if again := history(); !r.Are("v3", again.all) || r.Are("v2", again.all) || r.Are("v3", again.all[1:]) || (*Revisions)(nil).Are("v3", again.all) {
		t.Error("the same revisions are taken for others, or others for the same")
	}
	// A pod that has gone back stays so, whatever its images are.
	if back := pod("v2", "2", mirrored, wish("v2", "v3")); history().Decide(back, allowed) != (Decision{Revision: "v2"}) || history().Unasked(back, allowed) != nil {
		t.Errorf("a pod that has gone back: %+v", history().Decide(back, allowed))
	}
}

func TestWhatIsWrittenToAPod(t *testing.T) {
	const toV2 = `{"metadata":{"uid":"pod-uid","resourceVersion":"7","labels":{"controller-revision-hash":"v2","pod-template-generation":null}},` +
		`"spec":{"containers":[{"name":"app","image":"app:2"}]}}`
	labelAlone := strings.Replace(toV2, `"containers":[{"name":"app","image":"app:2"}]`, "", 1)
	allowed := api.Policy{Rollback: true}
	tests := map[string]struct {
		pod    *corev1.Pod
		policy api.Policy
		want   string
	}{
		"the owner goes back":                          {pod("v3", "3", wish("v2", "v3")), allowed, toV2},
		"beside a sidecar of an admission webhook":     {pod("v3", "3", wish("v2", "v3"), sidecar), allowed, toV2},
		"the image has been set already":               {pod("v3", "2", wish("v2", "v3")), allowed, labelAlone},
		"from a revision between":                      {pod("v2", "2", wish("v1", "v3")), allowed, strings.ReplaceAll(strings.ReplaceAll(toV2, "v2", "v1"), "app:2", "app:1")},
		"the owner went back":                          {pod("v2", "2", wish("v2", "v3")), allowed, ""},
		"a rollback that the workload does not permit": {pod("v3", "3", wish("v2", "v3")), api.Policy{}, ""},
		"a rollback that has ended":                    {pod("v3", "3", wish("v1", "v2")), allowed, ""},
		"more than images differs":                     {pod("v3", "3", wish("volumes", "v3")), allowed, ""},
		"a pod that is being deleted":                  {pod("v3", "3", wish("v2", "v3"), func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }), allowed, ""},
		"nonsense":                                     {pod("v3", "3", annotated("{")), allowed, ""},
		"nobody wishes anything":                       {pod("v3", "3"), allowed, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := string(answered(tt.pod, Admission{}).Patch(tt.pod, tt.policy)); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestWhichRollbacksAreGranted(t *testing.T) {
	allowed := api.Policy{Rollback: true}
	tests := map[string]struct {
		pod    *corev1.Pod
		policy api.Policy
		reason string // "" is granted
		words  string
	}{
		"an earlier revision":       {pod("v3", "3", wish("v2", "v3")), allowed, "", ""},
		"a much earlier one":        {pod("v3", "3", wish("v1", "v3")), allowed, "", ""},
		"of a pod that has it":      {pod("v2", "2", wish("v2", "v3")), allowed, "", ""},
		"a newer revision has come": {pod("v2", "2", wish("v1", "v2")), allowed, ReasonNewerRevision, "from another revision than controllerrevision v3"},
		"it is not permitted":       {pod("v3", "3", wish("v2", "v3")), api.Policy{}, ReasonNotPermitted, api.OwnerRollbackAnnotation + " to Allowed"},
		"the revision is gone":      {pod("v3", "3", wish("gone", "v3")), allowed, ReasonUnknownRevision, `"gone"`},
		"it is the newest":          {pod("v3", "3", wish("v3", "v3")), allowed, ReasonUnknownRevision, "no earlier one"},
		"a forged one is cut":       {pod("v3", "3", wish(strings.Repeat("\n", 999), "v3")), allowed, ReasonUnknownRevision, `\n...`},
		"more than images":          {pod("v3", "3", wish("volumes", "v3")), allowed, ReasonNotInPlace, "spec.volumes differs"},
		"nonsense":                  {pod("v3", "3", annotated("{}")), allowed, ReasonInvalid, api.RollbackAnnotation},
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
