package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cmd/internal/podstatus"
	"github.com/edgehub-io/edgehub/cmd/internal/screen"
	"github.com/edgehub-io/edgehub/ota/nodeapi"
	"github.com/edgehub-io/edgehub/ota/upgrade"
)

// podReport is a pod in the output of pods. As JSON it is an interface to scripts:
// fields are added, and never change their meaning.
type podReport struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	UID       string `json:"uid"`
	// ReadyContainers of Containers are ready; Status and Restarts are those of kubectl
	// get pods.
	ReadyContainers int    `json:"readyContainers"`
	Containers      int    `json:"containers"`
	Status          string `json:"status"`
	Restarts        int32  `json:"restarts"`
	// Images are those of the containers, init containers first.
	Images []imageChange `json:"images,omitempty"`
	// Revision is what the pod runs.
	Revision string `json:"revision,omitempty"`
	// NeedsUpgrade is null while it is not known.
	NeedsUpgrade *bool `json:"needsUpgrade"`
	// TargetRevision and Since are there for a pod that needs an upgrade.
	TargetRevision string     `json:"targetRevision,omitempty"`
	Since          *time.Time `json:"since,omitempty"`
	// Blocked is why an upgrade would be refused: the node would get no pod of the new version.
	Blocked string `json:"blocked,omitempty"`
	// ImageReady is null where nobody asked for the images of that revision.
	ImageReady *bool `json:"imageReady"`
	// ImageReason is a word for why the images are not ready. ImageBytes of them are on
	// the node, which are ImagePercent of all; that is left out until the registry has
	// sent the size of every image.
	ImageReason  string `json:"imageReason,omitempty"`
	ImageBytes   int64  `json:"imageBytes,omitempty"`
	ImagePercent *int   `json:"imagePercent,omitempty"`
}

func pods(ctx context.Context, c *call) error {
	all, err := c.hub.nodePods(ctx)
	if err != nil {
		return err
	}
	pulls, err := c.hub.imagePulls(ctx)
	if err != nil {
		return err
	}
	reports := []podReport{}
	for _, pod := range all {
		if c.namespace == "" || c.namespace == pod.Namespace {
			reports = append(reports, reportOf(pod, pulls))
		}
	}
	c.warnOffline(ctx)
	switch {
	case c.output == "json":
		return printJSON(c.out, reports)
	case len(reports) == 0:
		fmt.Fprintln(c.out, "No pods on this node.")
	default:
		fmt.Fprint(c.out, podTable(reports, time.Now(), screen.Width(c.out)))
		for i := range reports {
			if r := &reports[i]; r.Blocked != "" {
				fmt.Fprintf(c.out, "\n%s/%s cannot be upgraded: %s.\n", r.Namespace, r.Pod, r.Blocked)
			}
		}
	}
	return nil
}

// warnOffline warns, on stderr so that no script takes it for a pod, that the list may be out
// of date while the cloud is away. The hub says since when, and why; if it says nothing, as an
// older hub does, there is no warning.
func (c *call) warnOffline(ctx context.Context) {
	const fine = "OK"
	state, err := c.hub.ask(ctx, http.MethodGet, nodeapi.Readyz)
	if err != nil || state == fine {
		return
	}
	fmt.Fprintf(c.err, "%s; a newer version may exist that this node has not been told of\n", strings.TrimPrefix(state, fine+", "))
}

func reportOf(pod *corev1.Pod, pulls []nodeapi.ImagePull) podReport {
	status := podstatus.Of(pod)
	r := podReport{
		Namespace: pod.Namespace, Pod: pod.Name, UID: string(pod.UID), Revision: revisionOf(pod),
		ReadyContainers: status.Ready, Containers: status.Containers, Status: status.Status, Restarts: status.Restarts,
		Images: imagesNow(pod),
	}
	need, revision := needOf(pod)
	if need == nil {
		return r
	}
	r.NeedsUpgrade = new(need.Status == corev1.ConditionTrue)
	if !*r.NeedsUpgrade {
		return r
	}
	r.TargetRevision = revision
	if target, ok, err := upgrade.TargetOf(pod); ok && err == nil && target.Revision == revision {
		r.Blocked = target.Blocked
	}
	if since := need.LastTransitionTime.Time; !since.IsZero() {
		r.Since = &since
	}
	i := slices.IndexFunc(pulls, func(p nodeapi.ImagePull) bool { return p.UID == string(pod.UID) && p.Revision == revision })
	if i < 0 {
		r.Images = imagesAfter(r.Images, pod, revision, nil)
		r.addCondition(upgrade.Condition(pod, upgrade.ImageCondition))
		return r
	}
	r.Images = imagesAfter(r.Images, pod, revision, &pulls[i])
	r.addPull(&pulls[i])
	return r
}

// addPull adds what the hub knows of the images. It is newer than the pod's condition, which
// the hub cannot update while the cloud is away.
func (r *podReport) addPull(p *nodeapi.ImagePull) {
	r.ImageReady = new(p.State == nodeapi.Ready)
	if *r.ImageReady {
		return
	}
	r.ImageReason = string(p.State)
	var total int64
	known := true
	for _, i := range p.Images {
		if i.Reason != "" {
			r.ImageReason = i.Reason
		}
		known = known && i.BytesTotal > 0
		r.ImageBytes += i.BytesDone
		total += i.BytesTotal
	}
	if known {
		r.ImagePercent = new(percent(r.ImageBytes, total))
	}
}

// addCondition adds the pod's condition about images, which may be nil, or about another
// revision.
func (r *podReport) addCondition(image *corev1.PodCondition) {
	if image == nil {
		return
	}
	revision := upgrade.RevisionOf(image)
	ready := image.Status == corev1.ConditionTrue && revision == r.TargetRevision
	r.ImageReady = &ready
	switch {
	case ready:
	case revision != r.TargetRevision:
		r.ImageReason = "OtherRevision"
	default:
		r.ImageReason = image.Reason
	}
}

// nodePods returns the pods of this node, by namespace and name.
func (h *hub) nodePods(ctx context.Context) ([]*corev1.Pod, error) {
	var list corev1.PodList
	if err := h.read(ctx, nodeapi.Pods, &list); err != nil {
		return nil, err
	}
	var pods []*corev1.Pod
	for i := range list.Items {
		pods = append(pods, &list.Items[i])
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return pods, nil
}

// imagePulls returns the queue of images. A hub that pulls none has none.
func (h *hub) imagePulls(ctx context.Context) ([]nodeapi.ImagePull, error) {
	var list nodeapi.ImagePullList
	err := h.readIfKnown(ctx, nodeapi.ImagePulls, &list)
	return list.Items, err
}

// needOf returns the controller's condition about pod's upgrade and the revision to upgrade to;
// nil if there is none.
func needOf(pod *corev1.Pod) (need *corev1.PodCondition, revision string) {
	need = upgrade.Condition(pod, upgrade.NeedCondition)
	if need == nil {
		return nil, ""
	}
	return need, upgrade.RevisionOf(need)
}

func needsUpgrade(pod *corev1.Pod) bool {
	need, _ := needOf(pod)
	return need != nil && need.Status == corev1.ConditionTrue
}

func revisionOf(pod *corev1.Pod) string { return pod.Labels[appsv1.ControllerRevisionHashLabelKey] }

// ownerOf returns the UID of pod's controlling owner, "" if there is none.
func ownerOf(pod *corev1.Pod) types.UID {
	if owner := metav1.GetControllerOf(pod); owner != nil {
		return owner.UID
	}
	return ""
}

func isReady(pod *corev1.Pod) bool {
	ready := upgrade.Condition(pod, corev1.PodReady)
	return ready != nil && ready.Status == corev1.ConditionTrue
}

// podName is a pod as its owner names it.
type podName struct{ namespace, name string }

func (p podName) String() string { return p.namespace + "/" + p.name }

// pod parses NAMESPACE/POD, or POD with -n or in the namespace default.
func (c *call) pod() (podName, error) {
	namespace, pod, ok := strings.Cut(c.args[0], "/")
	if !ok {
		namespace, pod = cmp.Or(c.namespace, "default"), c.args[0]
	}
	if namespace == "" || pod == "" || strings.Contains(pod, "/") {
		return podName{}, wrongUse("%q: want a pod as NAMESPACE/POD, as edgehubctl pods shows them", c.args[0])
	}
	if ok && c.namespace != "" && c.namespace != namespace {
		return podName{}, wrongUse("pod %s is not in namespace %s: leave -n out", c.args[0], c.namespace)
	}
	return podName{namespace, pod}, nil
}
