package api

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/resource"

	"github.com/edgehub-io/edgehub/ota/api/placement"
)

const (
	// NeedCondition is True on a pod whose DaemonSet or StatefulSet has a newer revision, and False
	// on a pod of the newest revision. The controller sets it.
	NeedCondition corev1.PodConditionType = "PodNeedUpgrade"

	// ImageCondition is False while the node pulls the images of the target revision, and True
	// once all of them are on the node. The hub sets it.
	ImageCondition corev1.PodConditionType = "PodImageReady"

	// PrepullAnnotation on a DaemonSet or StatefulSet, if "true", makes nodes pull the images of a
	// new revision as soon as their pods need an upgrade.
	PrepullAnnotation = "apps.openyurt.io/image-prepull"

	// TargetAnnotation is a Target as JSON. It is on pods that need an upgrade, and on pods that
	// the controller will replace once their nodes have pulled the images. A node may read neither
	// DaemonSets, StatefulSets nor ControllerRevisions, but its own pods, which are in its cache.
	TargetAnnotation = "apps.openyurt.io/upgrade-target"
)

// QuestionAnnotation on a pod asks whether its upgrade is blocked now: what Target.Blocked says may be minutes old. The hub
// sets it to a word that it has not used before, and the controller answers with Target.Answered.
const QuestionAnnotation = "apps.openyurt.io/upgrade-question"

// MaxQuestion bounds the word, in bytes.
const MaxQuestion = 40

// QuestionOf returns the question of a pod, "" if there is none, or one that no hub asks.
func QuestionOf(pod *corev1.Pod) string {
	if q := pod.Annotations[QuestionAnnotation]; len(q) <= MaxQuestion {
		return q
	}
	return ""
}

// maxImages is more than any pod has, and few enough that a forged annotation does not keep a node
// busy.
const maxImages = 100

// messagePrefix is followed by the hash of a revision.
const messagePrefix = "controllerrevision: "

// Target is the revision that a pod would be upgraded to: what admission makes of the template where the controller
// could ask for that, else the template.
type Target struct {
	// Revision is the value of the label controller-revision-hash on pods of this revision.
	Revision string `json:"revision"`
	// Number is the .revision of the ControllerRevision, and 0 if an older controller has written the target. The newest of a
	// workload has the greatest, so `kubectl rollout undo` gives the same Revision another.
	Number int64 `json:"number,omitempty"`
	// Containers and InitContainers are in the order of the pod template.
	Containers     []TargetImage `json:"containers"`
	InitContainers []TargetImage `json:"initContainers,omitempty"`
	// Volumes are those that are images themselves.
	Volumes []TargetImage `json:"volumes,omitempty"`
	// ImagePullSecrets are the names of Secrets in the pod's namespace.
	ImagePullSecrets []string `json:"imagePullSecrets,omitempty"`
	// Requests are what the scheduler wants to be free on the node for a pod of this revision. A pod
	// of a StatefulSet has none here: its successor may run on another node.
	Requests corev1.ResourceList `json:"requests,omitempty"`
	// HostPorts are those that a pod of this revision takes of the node's. It has none of a StatefulSet either.
	HostPorts []HostPort `json:"hostPorts,omitempty"`
	// Placement decides whether a node gets a pod of this revision, for a node that has to judge that by itself. It is nil of
	// a StatefulSet.
	Placement *placement.Rule `json:"placement,omitempty"`
	// PriorityClassName is the template's.
	PriorityClassName string `json:"priorityClassName,omitempty"`
	// Admitted is whether it is what admission makes of the template. Else containers that admission injects are not here.
	Admitted bool `json:"admitted,omitempty"`
	// MinReadySeconds is the DaemonSet's or StatefulSet's, for clients that upgrade the pod and wait until its
	// successor is available. It is not part of the revision.
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`
	// Prepull is since when the node should pull the images automatically; nil means that it
	// should not. The controller sets it by its own clock, in whole seconds, and does not change
	// it while Revision is the same.
	Prepull *metav1.Time `json:"prepull,omitempty"`
	// Blocked is why Kubernetes would place no pod of this revision on the pod's node at present:
	// the node would lose its pod by an upgrade. "" if it would place one.
	Blocked string `json:"blocked,omitempty"`
	// Asks is whether the controller can ask admission for the next pod, and so answers QuestionAnnotation. Answered is
	// the question that Blocked is the answer to. Unknown is why that leaves open what admission says, as while a webhook
	// is down.
	Asks     bool   `json:"asks,omitempty"`
	Answered string `json:"answered,omitempty"`
	Unknown  string `json:"unknown,omitempty"`
	// InPlace is what an upgrade of this very pod changes, if the node may carry it out without the cloud: only images of
	// ordinary containers differ, and the apiserver has admitted these strings for it as a dry run. NotInPlace is why it may
	// not. Both are empty if the workload does not permit it, and until that has been found out.
	InPlace    []ImageChange `json:"inPlace,omitempty"`
	NotInPlace string        `json:"notInPlace,omitempty"`
}

// TargetImage is the image of one container or volume.
type TargetImage struct {
	Name  string `json:"name"`
	Image string `json:"image"`
}

// HostPort is a port of a node.
type HostPort struct {
	Port     int32           `json:"port"`
	Protocol corev1.Protocol `json:"protocol,omitempty"` // "" is TCP
	IP       string          `json:"ip,omitempty"`       // "" is every address
}

// HostPortsOf returns the ports that a pod takes of its node's.
func HostPortsOf(spec *corev1.PodSpec) []HostPort {
	var out []HostPort
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			for _, p := range containers[i].Ports {
				if p.HostPort > 0 {
					out = append(out, HostPort{p.HostPort, p.Protocol, p.HostIP})
				}
			}
		}
	}
	return out
}

// Conflicts reports whether one node cannot give both.
func (p HostPort) Conflicts(other HostPort) bool {
	every := func(ip string) bool { return ip == "" || ip == "0.0.0.0" || ip == "::" }
	return p.Port == other.Port && cmp.Or(p.Protocol, corev1.ProtocolTCP) == cmp.Or(other.Protocol, corev1.ProtocolTCP) &&
		(p.IP == other.IP || every(p.IP) || every(other.IP))
}

// WithoutNode returns t without what is about the node: the next pod of a StatefulSet may run on another.
func (t Target) WithoutNode() Target {
	t.Requests, t.HostPorts, t.Placement = nil, nil, nil
	return t
}

// NewTarget returns the target for the revision with this hash and pod template, without Number.
func NewTarget(revision string, template *corev1.PodSpec) Target {
	images := func(containers []corev1.Container) []TargetImage {
		var out []TargetImage
		for _, c := range containers {
			out = append(out, TargetImage{Name: c.Name, Image: c.Image})
		}
		return out
	}
	t := Target{
		Revision:       revision,
		Containers:     images(template.Containers),
		InitContainers: images(template.InitContainers),
		Requests:       resource.PodRequests(WithDefaultRequests(template), resource.PodResourcesOptions{}),
		HostPorts:      HostPortsOf(template), PriorityClassName: template.PriorityClassName,
	}
	for i := range template.Volumes {
		if v := &template.Volumes[i]; v.Image != nil && v.Image.Reference != "" {
			t.Volumes = append(t.Volumes, TargetImage{Name: v.Name, Image: v.Image.Reference})
		}
	}
	for _, s := range template.ImagePullSecrets {
		t.ImagePullSecrets = append(t.ImagePullSecrets, s.Name)
	}
	return t
}

// WithDefaultRequests returns a copy of a template in which a container requests its limit of what it does not say
// otherwise, as the apiserver fills in when it creates a pod.
func WithDefaultRequests(template *corev1.PodSpec) *corev1.Pod {
	pod := &corev1.Pod{Spec: *template.DeepCopy()}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if r := &containers[i].Resources; len(r.Limits) > 0 {
				requests := maps.Clone(r.Limits)
				maps.Copy(requests, r.Requests)
				r.Requests = requests
			}
		}
	}
	return pod
}

// Images returns all that kubelet pulls for a pod of this revision.
func (t Target) Images() []TargetImage {
	return slices.Concat(t.InitContainers, t.Containers, t.Volumes)
}

// SameButNames reports whether t has the images, in their order, and all else that other has, whatever the names of
// containers are: webhooks that inject one may give it another name each time. Number is not compared: it is the revision's, and
// says nothing about pods.
func (t Target) SameButNames(other Target) bool {
	images := func(t Target) (all [][]string) {
		for _, list := range [][]TargetImage{t.InitContainers, t.Containers, t.Volumes} {
			var names []string
			for _, i := range list {
				names = append(names, i.Image)
			}
			all = append(all, names)
		}
		return all
	}
	return slices.EqualFunc(images(t), images(other), slices.Equal[[]string]) && equality.Semantic.DeepEqual(t.Requests, other.Requests) &&
		slices.Equal(t.HostPorts, other.HostPorts) && equality.Semantic.DeepEqual(t.Placement, other.Placement) &&
		slices.Equal(t.ImagePullSecrets, other.ImagePullSecrets) && t.Revision == other.Revision && t.PriorityClassName == other.PriorityClassName
}

// Encode returns t as the value of TargetAnnotation. Equal targets have equal encodings.
func (t Target) Encode() string {
	b, err := json.Marshal(t)
	if err != nil {
		panic("upgrade: encode target: " + err.Error()) // only strings, numbers and a time
	}
	return string(b)
}

// TargetOf reads a pod's TargetAnnotation. It returns false if the pod has none, and an error if
// the annotation is invalid.
func TargetOf(pod *corev1.Pod) (Target, bool, error) {
	value, ok := pod.Annotations[TargetAnnotation]
	if !ok {
		return Target{}, false, nil
	}
	var t Target
	if err := json.Unmarshal([]byte(value), &t); err != nil {
		return Target{}, true, fmt.Errorf("annotation %s of pod %s/%s: %w", TargetAnnotation, pod.Namespace, pod.Name, err)
	}
	if t.Revision == "" || len(t.Containers) == 0 {
		return Target{}, true, fmt.Errorf("annotation %s of pod %s/%s names no revision or no container", TargetAnnotation, pod.Namespace, pod.Name)
	}
	if n := len(t.Images()); n > maxImages {
		return Target{}, true, fmt.Errorf("annotation %s of pod %s/%s names %d images, of at most %d", TargetAnnotation, pod.Namespace, pod.Name, n, maxImages)
	}
	return t, true, nil
}

// NextOf returns what the upgrade of pod would be to, and false if the controller has not written that, or its condition is about
// another revision.
func NextOf(pod *corev1.Pod) (Target, bool) {
	target, ok, err := TargetOf(pod)
	need := Condition(pod, NeedCondition)
	return target, ok && err == nil && need != nil && target.Revision == RevisionOf(need)
}

// Message is the message of both conditions for the revision with this hash.
func Message(revision string) string { return messagePrefix + revision }

// RevisionOf returns the hash in a condition's message, or "" if the message has another form.
func RevisionOf(c *corev1.PodCondition) string {
	if revision, ok := strings.CutPrefix(c.Message, messagePrefix); ok {
		return revision
	}
	return ""
}

// Condition returns pod's condition of type t, or nil. It points into pod.
func Condition(pod *corev1.Pod, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == t {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}
