package inplace

import (
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/podfiles"
)

// Reasons of Events about pods.
const (
	eventStarted    = "OfflineUpgradeStarted"
	eventPassed     = "OfflineUpgradePassed"
	eventUndone     = "OfflineUpgradeUndone"
	eventReconciled = "OfflineUpgradeReconciled"
)

// keep keeps what has become of a record. A transition that cannot be written has not happened, and is tried again.
// j.disk is held.
func (j *Journal) keep(before, next Record) {
	same := before
	same.Ran, same.ready, same.readyFor = next.Ran, next.ready, next.readyFor
	same.unchecked, same.uncheckedFor = next.unchecked, next.uncheckedFor
	switch {
	case reflect.DeepEqual(same, next) && next.Ran < j.saved[next.UID]+saveEvery:
		j.set(before, next)
		return
	case reflect.DeepEqual(same, next): // time that is not written has passed all the same
		j.set(before, next)
	}
	if err := j.put(before, next); err != nil {
		if !j.complained {
			j.Logger.Error("an upgrade in place cannot be written down: it goes on once it can", "pod", next.Pod.String(), "state", string(next.State), "err", err)
		}
		j.failing, j.complained = true, true
		return
	}
	j.complained = false
}

// put writes a record, and only then has it count. j.disk is held.
func (j *Journal) put(before, next Record) error {
	if before.State.onProbation() && !next.State.onProbation() || before.State == Passed && next.State == Undoing {
		next.Ended = time.Now().UTC().Round(0)
	}
	if err := j.files.Put(fileOf(next), next); err != nil {
		return err
	}
	j.saved[next.UID] = next.Ran
	j.set(before, next)
	if before.State != next.State {
		j.announce(next)
	}
	j.Changed()
	return nil
}

// set has a record count.
func (j *Journal) set(before, next Record) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.records[next.UID] = next
	if before.UID != "" && before.State.unconfirmed() == next.State.unconfirmed() {
		return
	}
	j.generation++
	j.shown[next.UID] = j.generation
	close(j.changed)
	j.changed = make(chan struct{})
}

// announce logs a transition, and records an Event if it matters to the owner.
func (j *Journal) announce(r Record) {
	j.Logger.Info("upgrade in place", "pod", r.Pod.String(), "uid", string(r.UID), "revision", r.Revision, "state", string(r.State), "message", r.Message)
	eventType := corev1.EventTypeNormal
	var reason, message string
	switch {
	case r.State == Shown:
		reason, message = eventStarted, "upgraded in place without the cloud, to revision "+r.Revision+": "+r.words()
	case r.State == Passed:
		reason, message = eventPassed, "the pod runs revision "+r.Revision+" without the cloud, which follows when it is back"
	case r.State == Undoing:
		eventType, reason, message = corev1.EventTypeWarning, eventUndone, "the pod goes back from revision "+r.Revision+": "+r.Message
	case r.State == Confirmed && r.Reason == "":
		reason, message = eventReconciled, "the cloud has the images that the pod runs, of revision "+r.Revision
	default:
		return
	}
	about := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: r.Pod.Namespace, Name: r.Pod.Name, UID: r.UID}
	j.Event(about, eventType, reason, message)
}

// words says which images change.
func (r *Record) words() string {
	var all []string
	for _, c := range r.Images {
		all = append(all, c.Name+": "+c.From+" -> "+c.To)
	}
	return strings.Join(all, ", ")
}

// end forgets the record of a pod that is gone. A file that cannot be removed is read again. j.disk is held.
func (j *Journal) end(r Record) {
	if err := j.files.Delete(fileOf(r)); err != nil {
		j.failing = true
		return
	}
	delete(j.absent, r.UID)
	delete(j.saved, r.UID)
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.records, r.UID)
	delete(j.shown, r.UID)
}

func (j *Journal) get(pod types.UID) (Record, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r, ok := j.records[pod]
	return r, ok
}

func (j *Journal) all() []Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Collect(maps.Values(j.records))
}

// fileOf names the file of a record: the next pod of a StatefulSet has the same name and another UID.
func fileOf(r Record) types.NamespacedName {
	return types.NamespacedName{Namespace: r.Pod.Namespace, Name: string(r.UID)}
}

// ReadUnreconciled returns the pods that run what the cloud does not have, as the files in dir say, whether a hub uses them or not.
// lost are the paths of files that may be of such pods, which nobody knows.
func ReadUnreconciled(dir string) (pods []types.NamespacedName, lost []string, err error) {
	all, lost, err := podfiles.Read[Record](dir)
	for name, r := range all {
		switch {
		case fileOf(r) != name:
			lost = append(lost, filepath.Join(dir, name.Namespace+"_"+name.Name+".json"))
		case r.State.unconfirmed():
			pods = append(pods, r.Pod)
		}
	}
	slices.SortFunc(pods, byName)
	return pods, lost, err
}

// damaged is how many files were set aside, and one more if some could not be read.
func (j *Journal) damaged() int {
	files, _ := filepath.Glob(filepath.Join(j.Dir, "*.damaged")) // fails only for a bad pattern
	if j.files.Unread {
		return len(files) + 1
	}
	return len(files)
}
