package inplace

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
)

// State is the state of a Record.
type State string

// The states. In Shown, Probation, Passed and Offered, kubelet is shown the new images; see the package comment.
const (
	Shown     State = "Shown"
	Probation State = "Probation"
	Passed    State = "Passed"
	Offered   State = "Offered"
	Confirmed State = "Confirmed"
	Undoing   State = "Undoing"
	Undone    State = "Undone"
)

// onProbation reports whether it is not known yet if the new version works.
func (s State) onProbation() bool { return s == Shown || s == Probation }

// unconfirmed reports whether the pod runs, or is to run, what the cloud does not have.
func (s State) unconfirmed() bool { return s.onProbation() || s == Passed || s == Offered }

const (
	// MaxCrashes is how often a container may end before the upgrade is undone: some apps end once while what they need
	// is not there.
	MaxCrashes = 3
	// MaxBoots is how often the machine may start within a probation.
	MaxBoots = 3
	// MinReady is how long a pod has to be Ready if its workload says less.
	MinReady = 10 * time.Second
)

// Record is an upgrade of one pod. It is a value, and the whole content of a file: each transition replaces the file.
type Record struct {
	Pod      types.NamespacedName `json:"pod"`
	UID      types.UID            `json:"uid"`
	Revision string               `json:"revision"` // that the pod is upgraded to
	From     string               `json:"from"`     // that it has in the cloud
	// Base is the resourceVersion of the pod that was upgraded: what is older is not looked at.
	Base   string            `json:"base"`
	Images []api.ImageChange `json:"images"`
	// Requested and Ended, when it passed or began to be undone, are by the node's clock, for people.
	Requested time.Time `json:"requested"`
	Ended     time.Time `json:"ended,omitzero"`

	State State `json:"state"`
	// Reason, one of api, and Message are those of Undoing and Undone, and of a Confirmed that the cloud has decided otherwise.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Confirmed is the version of the first object of the cloud that has other images than From, "" once it has others than To.
	Confirmed string `json:"confirmed,omitempty"`
	// Failed are the revisions that this pod has come back from, which are not tried again in place.
	Failed []Failure `json:"failed,omitempty"`

	trial
}

// UnmarshalJSON fails for what no Journal has written: a file that is not torn may be damaged all the same, or of a later hub.
func (r *Record) UnmarshalJSON(text []byte) error {
	type plain Record
	var p plain
	if err := json.Unmarshal(text, &p); err != nil {
		return err
	}
	isState := slices.Contains([]State{Shown, Probation, Passed, Offered, Confirmed, Undoing, Undone}, p.State)
	if !isState || p.UID == "" || p.Pod.Namespace == "" || p.Pod.Name == "" || len(p.Images) == 0 || len(p.Containers) != len(p.Images) {
		return fmt.Errorf("it is no upgrade of a pod with a UID and images in a state that is known: state %.20q", p.State)
	}
	for i, c := range p.Images {
		if c.Name == "" || c.From == "" || c.To == "" || c.From == c.To || p.Containers[i].Name != c.Name {
			return fmt.Errorf("it changes no image of container %.63q", c.Name)
		}
	}
	*r = Record(p)
	return nil
}

// Failure is a revision that did not work.
type Failure struct {
	Revision string `json:"revision"`
	Reason   string `json:"reason"`
	Message  string `json:"message"`
}

// Begin returns the record of an upgrade of pod to the target. before is the pod's last one, if it has one. The error is why
// that cannot be, one line for people.
func Begin(before *Record, pod *corev1.Pod, t api.Target, boot string, now time.Time) (Record, error) {
	changes, err := api.InPlaceOf(pod, t)
	if err != nil {
		return Record{}, err
	}
	r := Record{
		Pod: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, UID: pod.UID, Revision: t.Revision, From: revisionOf(pod),
		Base: pod.ResourceVersion, Images: changes, Requested: now, State: Shown, trial: newTrial(pod, t, changes, boot),
	}
	if before == nil {
		return r, nil
	}
	r.Failed = slices.Clone(before.Failed)
	for _, f := range r.Failed {
		if f.Revision == t.Revision {
			return Record{}, fmt.Errorf("revision %s was tried without the cloud, and the pod came back from it: %s", f.Revision, f.Message)
		}
	}
	switch {
	case before.State.unconfirmed():
		return Record{}, fmt.Errorf("it was upgraded in place to revision %s, which the cloud does not have yet", before.Revision)
	case before.State == Undoing:
		return Record{}, fmt.Errorf("it is going back from revision %s", before.Revision)
	}
	return r, nil
}

// Show returns which images kubelet is to read in place of those of an object of the cloud, by container. have are the images of
// that object, of which version is the resourceVersion.
func (r *Record) Show(version string, have map[string]string) map[string]string {
	switch {
	case !r.State.unconfirmed() && r.State != Confirmed:
		return nil
	case isOlder(version, r.Base): // this pod was upgraded before, and the apiserver lags
	case !r.has(have, func(c api.ImageChange) string { return c.From }):
		return nil
	case r.State == Confirmed && !isOlder(version, r.Confirmed):
		return nil
	}
	show := map[string]string{}
	for _, c := range r.Images {
		show[c.Name] = c.To
	}
	return show
}

// has reports whether the containers that change have these images.
func (r *Record) has(images map[string]string, want func(api.ImageChange) string) bool {
	return !slices.ContainsFunc(r.Images, func(c api.ImageChange) bool { return images[c.Name] != want(c) })
}

// Seen returns the record after the pod was seen as the cloud has it, with the status that kubelet has reported last. It may be
// called with the same pod any number of times, and with older ones.
func (r Record) Seen(pod *corev1.Pod) Record {
	r = r.seenInCloud(pod)
	switch {
	case r.State.onProbation():
		return r.judge(pod)
	case r.State == Undoing && r.runsAgain(pod):
		r.State = Undone
	}
	return r
}

// seenInCloud ends what the cloud has decided: it has the new images, or somebody has given the pod others. After that, too: when an
// owner has rolled the pod back, neither a lagging apiserver nor a restored store brings the new images back.
func (r Record) seenInCloud(pod *corev1.Pod) Record {
	have := imagesOf(pod)
	follows := r.has(have, func(c api.ImageChange) string { return c.To })
	if r.State == Confirmed && r.Reason == "" && !follows && !isOlder(pod.ResourceVersion, r.Confirmed) {
		r.Reason, r.Message = api.ReasonCloudOthers, "somebody has given the pod other images in the cloud since"
		r.Base, r.Confirmed = "", "" // kubelet reads what the cloud has from now on
	}
	if !r.State.unconfirmed() || isOlder(pod.ResourceVersion, r.Base) || r.has(have, func(c api.ImageChange) string { return c.From }) {
		return r
	}
	if !follows {
		r.Reason, r.Message = api.ReasonCloudOthers, "somebody has given the pod other images in the cloud"
	}
	r.State, r.Confirmed = Confirmed, pod.ResourceVersion
	return r
}

// Offer returns the record before the new revision is reported to the cloud. The cloud may follow from then on, so that there is no
// way back without it.
func (r Record) Offer() Record {
	if r.State == Passed {
		r.State = Offered
	}
	return r
}

// GoBack returns the record after its owner wants the earlier version, and false if the node cannot go back without the cloud.
func (r Record) GoBack() (Record, bool) {
	if !r.State.onProbation() && r.State != Passed {
		return r, false
	}
	return r.undo(api.ReasonUndone, "the owner went back to the earlier version"), true
}

// StoreRestored returns the record after the apiserver's store was restored from a backup: versions mean other objects.
func (r Record) StoreRestored() Record {
	if r.State == Confirmed && r.Reason == "" {
		r.State = Offered
	}
	r.Base, r.Confirmed = "", ""
	return r
}

// undo returns the record with the old images to be shown.
func (r Record) undo(reason, message string) Record {
	r.State, r.Reason, r.Message = Undoing, reason, message
	r.Failed = slices.DeleteFunc(slices.Clone(r.Failed), func(f Failure) bool { return f.Revision == r.Revision })
	if reason != api.ReasonUndone { // an owner may try again
		r.Failed = append(r.Failed, Failure{r.Revision, reason, message})
	}
	return r
}

// Images of the ordinary containers of a pod, by name.
func imagesOf(pod *corev1.Pod) map[string]string {
	images := map[string]string{}
	for i := range pod.Spec.Containers {
		images[pod.Spec.Containers[i].Name] = pod.Spec.Containers[i].Image
	}
	return images
}

// isOlder reports whether a version is certainly older than another one.
func isOlder(version, than string) bool {
	v, err := strconv.ParseUint(version, 10, 64)
	t, errThan := strconv.ParseUint(than, 10, 64)
	return err == nil && errThan == nil && v < t
}
