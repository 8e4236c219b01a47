package inplace

import (
	"context"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota"
	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/podfiles"
)

const (
	// step is how often time passes for records.
	step = time.Second
	// saveEvery is how much of it a hub that dies may lose.
	saveEvery = 10 * time.Second
	// goneAfter is how long a pod is missing, while the cloud can be reached, until its record ends: a hub that was killed
	// may not know it until its watch has caught up. The record of a pod that is gone does no harm.
	goneAfter = 5 * time.Minute
	// checkEvery is how soon checks are tried again that could not be carried out, such as while systemd is busy with those of
	// a hub that was killed.
	checkEvery = 10 * time.Second
)

// Options are the options of Open. All are required but Boot, OwnersChecks and Registerer.
type Options struct {
	// Dir has the files; it is created if it does not exist. If it cannot be read, kubelet reads the cloud's pods, and none is
	// upgraded in place.
	Dir string
	// Boot is the ID of this boot of the machine; "" if it is not known, and then boots are not counted.
	Boot string
	// Online reports whether the cloud can be reached.
	Online func() bool
	// Changed is called when Report may return something else. It must not block.
	Changed func()
	// Event records an Event about a pod. It must not block.
	Event func(about *corev1.ObjectReference, eventType, reason, message string)
	// OwnersChecks runs the checks of the node's owner for a pod, as it runs now, that was Ready for long enough; it may take
	// minutes. It returns what did not pass, one line for people, "" if all did, and an error if that is not known; it is called
	// again then. Run calls it once at a time. nil: there are none.
	OwnersChecks func(ctx context.Context, upgraded *corev1.Pod) (failed string, err error)
	Registerer   prometheus.Registerer
	Logger       *slog.Logger
}

// Journal has the records of a node's pods. It is safe for concurrent use.
type Journal struct {
	Options
	files  *podfiles.Folder[Record]
	unread error         // why the folder cannot be read
	wake   chan struct{} // one message stands for any number of changes

	// disk is held while records are changed, so that files and memory agree. It guards the fields up to mu.
	disk       sync.Mutex
	pods       []*corev1.Pod // of the node, if they are known
	known      bool
	saved      map[types.UID]time.Duration
	absent     map[types.UID]time.Duration
	failing    bool          // a write has failed since time has last passed
	complained bool          // the last write has failed, and that was logged
	restored   bool          // not all records are written since the apiserver's store was restored
	stale      []*corev1.Pod // of the store before that, of pods: what they say of the cloud is void

	mu      sync.Mutex
	records map[types.UID]Record // values are not changed, but replaced
	// generation counts changes of what kubelet is to read, and shown has the last of each pod. changed is closed by the next.
	generation uint64
	shown      map[types.UID]uint64
	changed    chan struct{}
}

// Open reads the records. Whoever serves kubelet must have called it before. It starts nothing.
func Open(o Options) (*Journal, error) {
	if o.OwnersChecks == nil {
		o.OwnersChecks = func(context.Context, *corev1.Pod) (string, error) { return "", nil }
	}
	files, all, unread := podfiles.Open[Record](o.Dir, o.Logger)
	if unread != nil {
		o.Logger.Error("the upgrades in place cannot be read: kubelet reads all pods as the cloud has them, and none is upgraded in place", "err", unread)
	}
	j := &Journal{
		Options: o, files: files, unread: unread, wake: make(chan struct{}, 1), changed: make(chan struct{}), generation: 1,
		saved: map[types.UID]time.Duration{}, absent: map[types.UID]time.Duration{},
		records: map[types.UID]Record{}, shown: map[types.UID]uint64{},
	}
	for name, r := range all {
		if fileOf(r) != name { // a copy that somebody has made
			o.Logger.Error("the file of an upgrade in place has the name of another one, and is not read", "file", name.String(), "pod", r.Pod.String(), "uid", string(r.UID))
			continue
		}
		j.records[r.UID], j.shown[r.UID], j.saved[r.UID] = r, 1, r.Ran
	}
	for _, r := range j.all() {
		if next := r.Booted(o.Boot); !reflect.DeepEqual(next, r) {
			if err := j.put(r, next); err != nil { // the next start counts it
				o.Logger.Error("a start of the machine within the probation of an upgrade cannot be written down", "pod", r.Pod.String(), "err", err)
			}
		}
	}
	if o.Registerer == nil {
		return j, nil
	}
	return j, o.Registerer.Register(j.collector())
}

// Run has time pass for the records, and the owner's checks run, until ctx ends.
func (j *Journal) Run(ctx context.Context) {
	checked := make(chan struct{}) // closed when the checks that run have ended; nobody waits for them otherwise
	close(checked)
	defer func() { <-checked }()
	for {
		began := time.Now()
		var tick <-chan time.Time
		if j.isBusy() {
			tick = time.After(step)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick:
		case <-j.wake:
		}
		passed := time.Duration(0)
		if tick != nil {
			passed = min(time.Since(began), 2*step) // a process that was stopped has not run
		}
		j.pass(passed)
		select {
		case <-checked:
			if r, pod := j.due(); pod != nil {
				checked = make(chan struct{})
				go func() { defer close(checked); j.check(ctx, r, pod) }()
			}
		default:
		}
	}
}

// due returns a record for which the owner's checks are to run, and its pod, nil for none.
func (j *Journal) due() (Record, *corev1.Pod) {
	j.disk.Lock()
	defer j.disk.Unlock()
	for _, r := range j.all() {
		if pod := j.pod(r.UID); pod != nil && r.Due() {
			running := r.over(pod)
			return r, running
		}
	}
	return Record{}, nil
}

// check runs the owner's checks for a record, and keeps what has become of it, unless there is another upgrade of the pod by then.
// What could not be run, or written down, is due again after some time.
func (j *Journal) check(ctx context.Context, r Record, pod *corev1.Pod) {
	failed, err := j.OwnersChecks(ctx, pod)
	if ctx.Err() != nil {
		return // the next hub runs them
	}
	j.disk.Lock()
	now, _ := j.get(r.UID)
	if now.Revision == r.Revision && now.Requested.Equal(r.Requested) {
		j.keep(now, now.Checked(failed, err))
	}
	failing := j.failing
	j.disk.Unlock()
	j.notify()
	switch {
	case err != nil:
		j.Logger.Error("the owner's checks of an upgrade in place could not be run: they are tried again", "pod", r.Pod.String(), "err", err)
	case !failing:
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(checkEvery):
	}
}

// isBusy reports whether time counts.
func (j *Journal) isBusy() bool {
	j.disk.Lock()
	defer j.disk.Unlock()
	return j.failing || slices.ContainsFunc(j.all(), func(r Record) bool {
		return r.State.onProbation() || j.isAbsent(r.UID)
	})
}

// pod returns a pod of the node, nil if it has none with this UID or they are not known. j.disk is held.
func (j *Journal) pod(uid types.UID) *corev1.Pod {
	i := slices.IndexFunc(j.pods, func(p *corev1.Pod) bool { return p.UID == uid })
	if i < 0 {
		return nil
	}
	return j.pods[i]
}

// isAbsent reports whether the node's pods are known, and none has this UID. j.disk is held.
func (j *Journal) isAbsent(uid types.UID) bool { return j.known && j.pod(uid) == nil }

// CloudReturned is called when the cloud is back. It does not block.
func (j *Journal) CloudReturned() { j.notify() }

func (j *Journal) notify() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// pass has some time pass.
func (j *Journal) pass(d time.Duration) {
	j.disk.Lock()
	defer j.disk.Unlock()
	j.failing = false
	online := j.Online()
	for _, r := range j.all() {
		next := r
		if j.restored {
			next = next.StoreRestored()
		}
		if pod := j.pod(r.UID); pod != nil && !slices.Contains(j.stale, pod) {
			next = next.Seen(pod) // again, if it could not be written
		}
		absent := j.isAbsent(r.UID)
		if !absent { // there is nothing to go back from
			next = next.After(d)
		}
		if online {
			next = next.Offer()
		}
		j.keep(r, next)
		if online && absent {
			if j.absent[r.UID] += d; j.absent[r.UID] >= goneAfter {
				j.end(r)
			}
		}
	}
	j.restored = j.restored && j.failing
}

// Update is called with all pods of the node, read-only, when they are known and after changes: as the cloud has them, with
// the status that kubelet has reported last.
func (j *Journal) Update(pods []*corev1.Pod) {
	j.disk.Lock()
	defer j.disk.Unlock()
	j.pods, j.known = pods, true
	if j.Idle() {
		return
	}
	j.stale = slices.DeleteFunc(j.stale, func(p *corev1.Pod) bool { return !slices.Contains(pods, p) })
	for _, r := range j.all() {
		if pod := j.pod(r.UID); pod != nil {
			delete(j.absent, r.UID)
			if !slices.Contains(j.stale, pod) {
				j.keep(r, r.Seen(pod))
			}
		}
	}
	j.notify()
}

// Check returns an *ota.NotInPlaceError if a pod cannot be upgraded to a target in place.
func (j *Journal) Check(pod *corev1.Pod, t api.Target) error {
	_, _, err := j.plan(pod, t)
	return err
}

// Begin upgrades a pod in place. When it returns nil, that survives a crash, and kubelet is shown the new images. An upgrade
// to the same revision that is on probation is not a new one. The caller has made sure that kubelet finds all images on the
// node, and uses them without the network.
func (j *Journal) Begin(pod *corev1.Pod, t api.Target) error {
	j.disk.Lock()
	defer j.disk.Unlock()
	before, next, err := j.plan(pod, t)
	if err != nil || next == nil {
		return err
	}
	if err := j.put(before, *next); err != nil {
		return err
	}
	j.notify()
	return nil
}

// plan returns the record of a pod, if it has one, and that of its upgrade: nil if that is on probation.
func (j *Journal) plan(pod *corev1.Pod, t api.Target) (before Record, next *Record, err error) {
	if j.unread != nil { // what is written there may not be read after a restart, either
		return before, nil, &ota.NotInPlaceError{Why: "this hub cannot read what it has written about upgrades in place: " + api.OneLine(j.unread.Error(), maxWords)}
	}
	before, ok := j.get(pod.UID)
	if ok && before.State.onProbation() && before.Revision == t.Revision {
		return before, nil, nil
	}
	var last *Record
	if ok {
		last = &before
	}
	begun, err := Begin(last, pod, t, j.Boot, time.Now().UTC().Round(0))
	if err != nil {
		return before, nil, &ota.NotInPlaceError{Why: err.Error()}
	}
	return before, &begun, nil
}

// GoBack has a pod return to the version that it has in the cloud, and reports false if the node cannot do that by itself.
// When the error is nil, that survives a crash.
func (j *Journal) GoBack(pod types.UID) (bool, error) {
	j.disk.Lock()
	defer j.disk.Unlock()
	r, _ := j.get(pod)
	next, ok := r.GoBack()
	if !ok {
		return false, nil
	}
	return true, j.put(r, next)
}

// Offer records that the cloud may know of all upgrades that have passed. It is called before they are reported.
func (j *Journal) Offer() {
	j.disk.Lock()
	defer j.disk.Unlock()
	for _, r := range j.all() {
		j.keep(r, r.Offer())
	}
}

// StoreRestored is called when the apiserver's store was restored from a backup.
func (j *Journal) StoreRestored() {
	j.disk.Lock()
	defer j.disk.Unlock()
	j.stale = slices.Clone(j.pods)
	for _, r := range j.all() {
		j.keep(r, r.StoreRestored())
	}
	j.restored = j.failing
}
