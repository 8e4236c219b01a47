package bundle

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cache/durable"
	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/podfiles"
)

// eventOffered is the reason of an Event about a pod to which a bundle offers a revision.
const eventOffered = "UpgradeOffered"

// Options are the options of OpenStore. All are required. The functions must be safe for concurrent use.
type Options struct {
	Dir string // in which files are kept
	// Pods returns the node's pods as the cloud has them, read-only, and false while they are not known.
	Pods func() ([]*corev1.Pod, bool)
	// Online reports whether the cloud decides what pods are upgraded to.
	Online func() bool
	// Changed is called when pods are offered something else. It must not block.
	Changed func()
	Event   func(about *corev1.ObjectReference, eventType, reason, message string)
	Logger  *slog.Logger
}

// Store has the bundles of a node, and the keys that it goes by. It is safe for concurrent use.
type Store struct {
	Options
	folder *podfiles.Folder[record] // by workload; see fileOf
	loaded time.Time

	writing sync.Mutex // held while files are written; before mu
	mu      sync.Mutex
	trust   trust
	keys    []Key
	records map[types.UID]*record // by workload
}

// record is the file of a workload: its floor, and what is offered.
type record struct {
	Envelope json.RawMessage `json:"envelope"`
	Taken    time.Time       `json:"taken"` // by the node's clock, for people

	bundle Bundle
	key    Key
}

// trust is the content of keys.json: the ConfigMap as it was read last, and when.
type trust struct {
	Keys map[string]string `json:"keys"` // data of the ConfigMap
	Read time.Time         `json:"read"` // by the cloud's clock; zero: never
	// Floor is a time that has certainly passed.
	Floor time.Time `json:"floor"`
}

const trustFile = "keys.json"

// OpenStore reads what is on the disk.
func OpenStore(o Options) (*Store, error) {
	s := &Store{Options: o, loaded: time.Now(), records: map[types.UID]*record{}}
	folder, all, err := podfiles.Open[record](filepath.Join(o.Dir, "taken"), o.Logger)
	if err != nil {
		return nil, err
	}
	s.folder = folder
	text, err := os.ReadFile(s.trustPath())
	if err == nil {
		err = json.Unmarshal(text, &s.trust)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		o.Logger.Error("the keys for signed bundles cannot be read: no bundle counts until the cloud is back", "file", s.trustPath(), "err", err)
		s.trust = trust{}
	}
	s.keys, err = ParseKeys(s.trust.Keys)
	if err != nil {
		o.Logger.Warn("some keys for signed bundles do not count", "err", err)
	}
	for file, r := range all {
		b, key, err := Open(r.Envelope, s.keys)
		if err != nil || fileOf(&b) != file {
			o.Logger.Warn("a signed bundle does not count any more", "workload", file.String(), "err", err)
			continue
		}
		r.bundle, r.key = b, key
		s.records[b.UID] = &r
	}
	return s, nil
}

func (s *Store) write(t trust) error {
	text, err := json.Marshal(t)
	if err != nil {
		return err
	}
	return durable.Write(s.trustPath(), text)
}

func (s *Store) trustPath() string { return filepath.Join(s.Dir, trustFile) }

// fileOf returns the key of a workload's file: a DaemonSet and a StatefulSet may have the same name, so the kind is a part of it.
func fileOf(b *Bundle) types.NamespacedName {
	return types.NamespacedName{Namespace: b.Namespace, Name: strings.ToLower(b.Kind) + "." + b.Name}
}

// now returns the time that counts. mu is held.
func (s *Store) now() time.Time {
	clock := time.Now()
	if certain := s.trust.Floor.Add(clock.Sub(s.loaded)); certain.After(clock) {
		return certain
	}
	return clock
}

// SetKeys replaces the keys by the data of the ConfigMap, which was read at a time by the cloud's clock; nil if there is no ConfigMap, or the
// node may not read it. Bundles that none of the keys has signed are removed.
func (s *Store) SetKeys(data map[string]string, at time.Time) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	keys, parseErr := ParseKeys(data)
	if parseErr != nil {
		s.Logger.Warn("some keys for signed bundles do not count", "err", parseErr)
	}
	next := trust{Keys: data, Read: at, Floor: at}
	err := s.write(next)
	if err != nil { // a key that was removed counts no longer, at least until the hub starts anew
		err = fmt.Errorf("the keys for signed bundles cannot be written down: %w", err)
	}
	s.mu.Lock()
	s.trust, s.keys, s.loaded = next, keys, time.Now()
	var gone []*record
	for uid, r := range s.records {
		if _, key, err := Open(r.Envelope, keys); err == nil {
			r.key = key
			continue
		}
		delete(s.records, uid)
		gone = append(gone, r)
	}
	s.mu.Unlock()
	for _, r := range gone {
		s.Logger.Warn("a signed bundle does not count any more: its key was removed, or may not sign for its namespace any longer", "workload", fileOf(&r.bundle).String(), "key", r.key.Name)
		err = errors.Join(err, s.folder.Delete(fileOf(&r.bundle)))
	}
	if len(gone) > 0 {
		s.Changed()
	}
	return err
}

// Check verifies a bundle, and returns what Take would offer. The error is a *RefusedError, or means that it is no bundle.
func (s *Store) Check(envelope []byte) (api.UpgradeBundle, error) {
	r, err := s.verified(envelope)
	if err != nil {
		return api.UpgradeBundle{}, err
	}
	return s.describe(&r), nil
}

// Take offers a bundle's revision to the pods of its workload. Once it returns nil, that survives a crash. An error that is neither a
// *RefusedError nor means that it is no bundle is of the disk.
func (s *Store) Take(envelope []byte) (api.UpgradeBundle, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	r, err := s.verified(envelope)
	if err != nil {
		return api.UpgradeBundle{}, err
	}
	if last := s.last(r.bundle.UID); last != nil && reflect.DeepEqual(last.bundle, r.bundle) {
		return s.describe(last), nil // whoever sends it again and again costs neither writes nor Events
	}
	next := s.raised(r.bundle.Issued)
	err = s.write(next) // the time is certain even if the bundle is not taken
	if err == nil {
		err = s.folder.Put(fileOf(&r.bundle), r)
	}
	if err != nil {
		return api.UpgradeBundle{}, &diskError{err}
	}
	s.mu.Lock()
	maps.DeleteFunc(s.records, func(_ types.UID, other *record) bool { return fileOf(&other.bundle) == fileOf(&r.bundle) }) // also of a workload that was made anew
	s.records[r.bundle.UID] = &r
	s.trust, s.loaded = next, time.Now()
	s.mu.Unlock()
	s.prune()
	out := s.describe(&r)
	s.Logger.Info("a signed bundle is taken", "workload", fileOf(&r.bundle).String(), "revision", out.Revision, "number", out.Number, "key", out.Key, "pods", out.Pods)
	pods, _ := s.Pods()
	for _, pod := range pods {
		if offers, why := s.offers(&r, pod); offers && why == "" {
			s.Event(&corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}, corev1.EventTypeNormal, eventOffered,
				fmt.Sprintf("revision %s is offered by a bundle that key %s has signed", out.Revision, out.Key))
		}
	}
	s.Changed()
	return out, nil
}

// last returns the bundle of a workload that was taken last, nil if there is none.
func (s *Store) last(workload types.UID) *record {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[workload]
	if r == nil {
		return nil
	}
	one := *r
	return &one
}

// diskError is that of a bundle that could not be written down.
type diskError struct{ error }

// Unwrap returns what the disk says.
func (e *diskError) Unwrap() error { return e.error }

// IsDisk reports whether an error of Take is that of the disk.
func IsDisk(err error) bool {
	_, ok := errors.AsType[*diskError](err)
	return ok
}

// raised returns the trust with a floor of some time at least. writing is held.
func (s *Store) raised(floor time.Time) trust {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.trust
	if next.Floor = s.trust.Floor.Add(time.Since(s.loaded)); floor.After(next.Floor) {
		next.Floor = floor
	}
	return next
}

// prune drops the bundles of workloads that have no pod here, once no bundle that is older can count any more.
func (s *Store) prune() {
	pods, known := s.Pods()
	if !known {
		return
	}
	s.mu.Lock()
	var gone []*record
	for uid, r := range s.records {
		isHere := slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return ownerOf(pod) == uid })
		if !isHere && s.now().After(r.bundle.Issued.Add(MaxValidity)) {
			delete(s.records, uid)
			gone = append(gone, r)
		}
	}
	s.mu.Unlock()
	for _, r := range gone {
		if err := s.folder.Delete(fileOf(&r.bundle)); err != nil {
			s.Logger.Warn("a signed bundle that counts no longer cannot be removed", "workload", fileOf(&r.bundle).String(), "err", err)
		}
	}
}

// verified returns the record of a bundle that may be taken.
func (s *Store) verified(envelope []byte) (record, error) {
	s.mu.Lock()
	keys := s.keys
	s.mu.Unlock()
	b, key, err := Open(envelope, keys) // whoever reads pods does not wait for that
	if err != nil {
		return record{}, err
	}
	r := record{Envelope: envelope, Taken: time.Now().UTC().Round(0), bundle: b, key: key}
	if err := s.mayCount(&r); err != nil {
		return record{}, err
	}
	if why := s.wrongFor(&r); why != "" {
		return record{}, refuse("%s", why)
	}
	return r, nil
}

// mayCount fails for a bundle that has expired, or is older than the last one of its workload.
func (s *Store) mayCount(r *record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, now := &r.bundle, s.now()
	if b.Issued.After(now) {
		now = b.Issued // the key that has signed it vouches for that time
	}
	if why := s.expired(r, now); why != "" {
		return refuse("%s", why)
	}
	if last := s.records[b.UID]; last != nil {
		switch {
		case b.Target.Number < last.bundle.Target.Number:
			return refuse("it brings revision number %d of %s, and this node has taken number %d", b.Target.Number, b.workload(), last.bundle.Target.Number)
		case b.Target.Number == last.bundle.Target.Number && !b.sameContent(&last.bundle):
			return refuse("it brings another revision with number %d of %s than the bundle that this node has taken: was the cluster restored from a backup? An admin can make a later revision", b.Target.Number, b.workload())
		case b.Target.Number == last.bundle.Target.Number && b.Issued.Before(last.bundle.Issued):
			return refuse("it was issued at %s, and this node has taken one with the same revision of %s that was issued later", b.Issued.UTC().Format(time.RFC3339), b.workload())
		}
	}
	return nil
}

// sameContent reports whether two bundles bring the same.
func (b *Bundle) sameContent(other *Bundle) bool {
	return b.Target.Revision == other.Target.Revision && slices.Equal(b.Target.Images(), other.Target.Images())
}

func (b *Bundle) workload() string { return b.Kind + " " + b.Namespace + "/" + b.Name }

// expired returns why a bundle does not count at some time, or "". mu is held.
func (s *Store) expired(r *record, now time.Time) string {
	at := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	switch {
	case !now.Before(r.bundle.Expires):
		return fmt.Sprintf("it counted until %s, and it is %s; if the clock of this node is wrong, set it", at(r.bundle.Expires), at(now))
	case !now.Before(r.key.NotAfter):
		return fmt.Sprintf("key %s, which has signed it, counted until %s, and it is %s", r.key.Name, at(r.key.NotAfter), at(now))
	case now.After(s.trust.Read.Add(MaxKeysAge)):
		return fmt.Sprintf("this node has read the keys of its cluster at %s last, more than %v ago: somebody may have removed them since; it reads them once it reaches the cloud", at(s.trust.Read), MaxKeysAge)
	}
	return ""
}

// wrongFor returns why none of the node's pods can be upgraded with a bundle, or "".
func (s *Store) wrongFor(r *record) string {
	pods, known := s.Pods()
	if !known {
		return "this hub does not know the pods of its node yet; try again in some seconds"
	}
	why := ""
	for _, pod := range pods {
		if ownerOf(pod) != r.bundle.UID || !pod.DeletionTimestamp.IsZero() {
			continue
		}
		_, problem := s.offers(r, pod)
		if problem == "" {
			return ""
		}
		why = fmt.Sprintf("pod %s/%s: %s", pod.Namespace, pod.Name, problem)
	}
	if why != "" {
		return why
	}
	return fmt.Sprintf("no pod of this node is of %s with UID %s: it is for another cluster, or the %s was deleted and made anew, or does not run here", r.bundle.workload(), r.bundle.UID, r.bundle.Kind)
}

// describe returns a bundle for people and programs. mu is not held.
func (s *Store) describe(r *record) api.UpgradeBundle {
	b := &r.bundle
	out := api.UpgradeBundle{
		Kind: b.Kind, Namespace: b.Namespace, Name: b.Name, UID: b.UID, Revision: b.Target.Revision, Number: b.Target.Number,
		Key: r.key.Name, Issued: b.Issued, Expires: b.Expires, Containers: b.Target.Images(), Pods: []string{},
	}
	for image, d := range b.Images {
		if out.Images == nil {
			out.Images = map[string]string{}
		}
		out.Images[image] = d.String()
	}
	pods, _ := s.Pods()
	for _, pod := range pods {
		if ownerOf(pod) != b.UID {
			continue
		}
		if _, why := s.offers(r, pod); why == "" {
			out.Pods = append(out.Pods, pod.Namespace+"/"+pod.Name)
		}
	}
	slices.Sort(out.Pods)
	s.mu.Lock()
	out.Problem = s.expired(r, s.now())
	s.mu.Unlock()
	switch {
	case out.Problem != "":
	case s.Online():
		out.Problem = "the cloud is there, and decides"
	case len(out.Pods) == 0:
		out.Problem = s.wrongFor(r)
	}
	return out
}

// List returns all bundles, by workload.
func (s *Store) List() []api.UpgradeBundle {
	out := []api.UpgradeBundle{}
	for _, r := range s.all() {
		out = append(out, s.describe(r))
	}
	slices.SortFunc(out, func(a, b api.UpgradeBundle) int {
		return strings.Compare(a.Namespace+"/"+a.Name+"/"+a.Kind, b.Namespace+"/"+b.Name+"/"+b.Kind)
	})
	return out
}

// all returns the records, which do not change but for their keys.
func (s *Store) all() []*record {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*record
	for _, r := range s.records {
		one := *r
		out = append(out, &one)
	}
	return out
}
