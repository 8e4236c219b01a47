package view

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	wal "github.com/edgehub-io/edgehub/cache/log"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// entry is what is known of one object to one user besides what views show.
type entry struct {
	state
	// copies are those that a client has read by a GET, or got back from a write, and of what was shown in a stream that no view
	// keeps. All have the same version; there is one for each form.
	copies []Copy

	since uint64    // Views.changed at the last change of the state
	read  uint64    // when it was read last; see resource.reads
	shown time.Time // when an apiserver has last shown it to a user that is not the node; see Views.Rights
}

// state is what is known of an object, in words that outlive a restart.
type state struct {
	// Gone is a version at which the object did not exist, UID its UID, if that is known. A 404 has no version: it counts from the
	// highest one that the hub had seen of the resource before the request. A copy is newer only if its version is higher and its UID is
	// another one: UIDs are never used twice.
	Gone string    `json:"gone,omitempty"`
	UID  types.UID `json:"uid,omitempty"`
	// Had means that the user had read the object before. If not, an old 404 does not prove
	// that the object does not exist now.
	Had bool `json:"had,omitempty"`
	// Doubt is a version: copies are in doubt unless a view above it confirms them.
	Doubt string `json:"doubt,omitempty"`
	// Seen is a version up to which, at least, the object existed, whatever the copies show.
	Seen    string    `json:"seen,omitempty"`
	SeenUID types.UID `json:"seenUID,omitempty"`
	// Proven is a version after which the object existed, which ends an older doubt.
	Proven string `json:"proven,omitempty"`
	// Refused means that a GET was refused, until one succeeds: LIST and GET are different rights.
	Refused bool `json:"refused,omitempty"`
	// Own means that a read or write of its own has shown the object: the user need not have the right to list it.
	Own     bool `json:"own,omitempty"`
	Allowed bool `json:"allowed,omitempty"` // to a GET, since bounds.ByName
}

// Read is an object that was read or written by itself, or shown in a stream that no view keeps.
type Read struct {
	Namespace, Name string
	Version         string
	UID             types.UID
	Type            wire.TypeMeta
	Repr            wire.Representation
	Bare            []byte

	Own bool // it was read or written by itself
	// Began is when the request was sent: after a restore of etcd, an older object replaces a newer one.
	Began Moment
}

// Keep keeps an object that was read, unless there is a newer one. The caller must not change o.Bare afterwards.
func (s *Views) Keep(of query.UserResource, o *Read) {
	r := s.keep(of)
	r.keepLocked(o)
	r.unlock()
	s.EnforceLimit(r)
}

func (r *resource) keepLocked(o *Read) {
	r.highest.Raise(o.Version)
	name := query.MemberName(o.Namespace, o.Name)
	e := entry{}
	if old := r.entries[name]; old != nil {
		e = *old
		e.copies = slices.Clone(old.copies)
	}
	one := Copy{Name: strings.Clone(name), Revision: revisionOf(o.Version, o.UID, o.Repr.Encoding, o.Bare), Type: o.Type, Repr: o.Repr, of: r}
	if changes := r.addCopy(&e, one, o.Began.readAt); changes || o.Own && !e.Own {
		e.Own = e.Own || o.Own
		r.updated = headerTime()
		r.setLocked(one.Name, &e, o.Bare)
	}
	if o.Own {
		r.Touch()
		r.noteReadLocked(name)
		if now := r.entries[name]; now != nil && r.resourceKey.user != query.NodeUser {
			now.shown = time.Now()
		}
	}
	r.makeRoomLocked()
}

// addCopy adds a copy, and returns false if it is old, or known.
func (r *resource) addCopy(e *entry, one Copy, readAt string) bool {
	if len(e.copies) == 0 {
		e.copies = []Copy{one}
		return true
	}
	switch order := versions.Compare(one.Version, e.copies[0].Version); {
	case order < 0 && versions.Compare(one.Version, readAt) >= 0:
		return false
	case order != 0:
		e.copies = []Copy{one}
		return true
	}
	for i := range e.copies {
		if old := &e.copies[i]; old.Type == one.Type && old.Repr == one.Repr {
			if old.has(&one.Revision) && r.all.Disk.Holds(old.sum) {
				return false
			}
			*old = one
			return true
		}
	}
	e.copies = append(e.copies, one)
	return true
}

// readAt returns the version of an object that was read by itself.
func (s *Views) readAt(of query.UserResource, name string) string {
	r := s.find(of)
	if r == nil {
		return ""
	}
	defer r.unlock()
	return r.entries[name].version()
}

func (e *entry) version() string {
	if e == nil || len(e.copies) == 0 {
		return ""
	}
	return e.copies[0].Version
}

// makeRoomLocked drops the copies of the object that was read longest ago if there are too many; of those not read
// since the hub started, of that with the lowest version.
func (r *resource) makeRoomLocked() {
	if r.copied <= maxCopies {
		return
	}
	oldest, first := "", (*entry)(nil)
	for name, e := range r.entries {
		if len(e.copies) > 0 && (first == nil || e.read < first.read || e.read == first.read && versions.Compare(e.version(), first.version()) < 0) {
			oldest, first = name, e
		}
	}
	r.dropCopiesLocked(oldest)
}

// dropCopiesLocked drops the copies of an object. What was seen of it stays known.
func (r *resource) dropCopiesLocked(name string) {
	if e := r.entries[name]; e != nil && len(e.copies) > 0 {
		version, without := e.version(), *e
		r.raiseLocked(version)
		without.copies, without.Own = nil, false
		r.setLocked(name, &without)
		r.doubtOlderLocked(name, version)
	}
}

func (r *resource) noteReadLocked(name string) {
	if e := r.entries[name]; e != nil && len(e.copies) > 0 {
		r.reads++
		e.read = r.reads
	}
}

// setLocked sets what is known of an object, or forgets it if that is nothing. given are bytes of its copies.
func (r *resource) setLocked(name string, e *entry, given ...[]byte) {
	old := r.entries[name]
	later := r.mayWait() && old != nil && old.state == e.state && len(old.copies) > 0 && len(e.copies) > 0
	r.countLocked(name, old, -1)
	r.dropLostLocked(e, given)
	if e.state == (state{}) && len(e.copies) == 0 {
		if old == nil {
			return
		}
		delete(r.entries, name)
	} else {
		if old == nil {
			name = strings.Clone(name) // it may be part of a URL
		}
		r.entries[name] = e
		r.countLocked(name, e, 1)
	}
	r.saveEntryLocked(name, later, given)
}

// dropLostLocked drops copies that the log has lost, because they were damaged. Until the object is read again nothing older is served.
func (r *resource) dropLostLocked(e *entry, given [][]byte) {
	if len(e.copies) == 0 {
		return
	}
	version := e.version()
	e.copies = slices.DeleteFunc(slices.Clone(e.copies), func(c Copy) bool {
		return !r.all.Disk.Has(c.sum) && !slices.ContainsFunc(given, func(b []byte) bool { return len(b) == c.size && wal.SumOf(b) == c.sum })
	})
	if len(e.copies) == 0 {
		e.Own = false
		e.Doubt = orFirst(versions.Higher(versions.Preceding(version), e.Doubt))
		e.Seen = versions.Higher(version, e.Seen)
	}
}

func (r *resource) countLocked(name string, e *entry, n int) {
	switch {
	case e == nil:
	case len(e.copies) == 0:
		r.names += n
		r.user.n.Add(int64(n))
	default:
		r.copied += n
		r.bytes += int64(n) * e.cost(name)
	}
}

// cost is what an entry takes on disk, in bytes, approximately.
func (e *entry) cost(name string) int64 {
	n := int64(len(name) + memberCost)
	for i := range e.copies {
		n += int64(e.copies[i].size)
	}
	return n
}

// learnLocked changes the state of an object. change returns false if nothing is new.
func (r *resource) learnLocked(name string, change func(*state) bool) {
	after := entry{}
	if e := r.entries[name]; e != nil {
		after = *e
	}
	if !change(&after.state) {
		return
	}
	after.since = r.all.changed.Add(1)
	r.setLocked(name, &after)
	if r.overLocked() {
		r.shrinkLocked()
	}
}

func (s *Views) learn(of query.UserResource, name string, change func(*resource, *state) bool) {
	if r := s.note(of); r != nil {
		defer r.unlock()
		r.learnLocked(name, func(one *state) bool { return change(r, one) })
	}
}

// Gone records that an object does not exist at a version. uid is empty if it is unknown; had
// means that the user had read the object before.
func (s *Views) Gone(of query.UserResource, name, version string, uid types.UID, had bool) {
	if r := s.note(of); r != nil {
		defer r.unlock()
		r.goneLocked(name, version, uid, had)
	}
}

func (r *resource) goneLocked(name, version string, uid types.UID, had bool) {
	version = orFirst(version)
	r.learnLocked(name, func(one *state) bool {
		if uid == "" {
			uid = one.UID
		}
		if versions.Valid(one.Gone) && versions.Compare(version, one.Gone) < 0 {
			uid = one.UID // this deletion comes late, and a later one is known
		}
		if uid != "" && one.SeenUID == uid { // the object that was seen last is gone
			version, one.Seen, one.SeenUID = versions.Higher(version, one.Seen), "", ""
		}
		one.Gone, one.UID, one.Had = versions.Higher(version, one.Gone), uid, one.Had || had
		return true
	})
	if e := r.entries[name]; e != nil && len(e.copies) > 0 && e.copies[0].isGone(&state{Gone: version, UID: uid}) {
		without := *e
		without.copies, without.Own = nil, false
		r.setLocked(name, &without)
	}
}

// orFirst returns a valid version as it is, or else "1": an empty version would mean nothing.
func orFirst(version string) string {
	if versions.Valid(version) {
		return version
	}
	return "1"
}

// isGone reports whether this is a copy of an object that is known to be deleted.
func (rev *Revision) isGone(k *state) bool {
	if k.Gone == "" {
		return false
	}
	return versions.Compare(rev.Version, k.Gone) <= 0 || k.UID != "" && rev.UID == k.UID
}

// Doubt records that it is unknown whether an object exists after a version.
func (s *Views) Doubt(of query.UserResource, name, version string) {
	if r := s.note(of); r != nil {
		defer r.unlock()
		r.doubtLocked(name, version)
	}
}

func (r *resource) doubtLocked(name, version string) {
	r.learnLocked(name, func(one *state) bool {
		one.Doubt = orFirst(versions.Higher(version, one.Doubt))
		one.Proven = "" // what has ended an earlier doubt does not end this one
		return true
	})
}

// Seen records that an object existed up to a version, which no copy need show.
func (s *Views) Seen(of query.UserResource, name, version string, uid types.UID) {
	if !versions.Valid(version) {
		return
	}
	s.learn(of, name, func(_ *resource, one *state) bool { return one.seen(version, uid) })
}

func (one *state) seen(version string, uid types.UID) bool {
	switch {
	case one.Gone != "" && one.UID != "" && one.UID == uid:
		one.Gone = versions.Higher(one.Gone, version)
	case versions.Compare(version, one.Seen) > 0:
		one.Seen, one.SeenUID = version, uid
	default:
		return false
	}
	return true
}

// merge adds what an earlier process knew of the object. read means that it was read since.
func (one *state) merge(before *state, read bool) {
	if versions.Compare(before.Gone, one.Gone) > 0 {
		one.Gone, one.UID, one.Had = before.Gone, before.UID, one.Had || before.Had
	}
	one.Doubt = versions.Higher(one.Doubt, before.Doubt)
	if versions.Compare(before.Seen, one.Seen) > 0 {
		one.Seen, one.SeenUID = before.Seen, before.SeenUID
	}
	one.Refused = one.Refused || before.Refused && !one.Allowed && (!read || !one.Own)
}

// Refused records that a GET of an object was refused.
func (s *Views) Refused(of query.UserResource, name string) {
	s.learn(of, name, func(r *resource, one *state) bool {
		if one.Refused || r.ByName && !one.Allowed {
			return false
		}
		one.Refused, one.Allowed = true, false
		return true
	})
}

// Confirm records that an object was read, or written, at a version, by a request that was sent at a moment. consistent means that this was
// the newest state, and not one from an apiserver's watch cache.
func (s *Views) Confirm(of query.UserResource, namespace, name, version string, uid types.UID, began *Moment, consistent bool) {
	r := s.find(of)
	if r == nil {
		return
	}
	defer r.unlock()
	e := r.entries[name]
	if e == nil && !r.ByName && len(r.Doubts) == 0 || e != nil && e.state == (state{}) && !r.ByName && len(r.Doubts) == 0 {
		return
	}
	since := uint64(0)
	if e != nil {
		since = e.since
	}
	r.learnLocked(name, func(one *state) bool {
		before := *one
		after := since <= began.changed // otherwise this answer may be older than the entry
		if after {
			one.Refused = false
			one.Allowed = r.ByName && (one.Allowed || e != nil && len(e.copies) > 0 || r.names < maxNames)
		}
		// A newer object exists besides what is gone, which still applies to older copies.
		anew := versions.Compare(version, one.Gone) > 0 && (one.UID == "" || uid != one.UID)
		if consistent && after && !anew {
			one.Gone, one.UID, one.Had = "", "", false
		}
		if consistent && after && versions.Compare(version, one.Doubt) <= 0 {
			one.Doubt = ""
		}
		if doubt := r.doubtOf(namespace); consistent && doubt != "" &&
			(versions.Compare(began.Version(), doubt) >= 0 || r.doubted <= began.changed) {
			one.Proven = versions.Higher(one.Proven, doubt)
		}
		return *one != before
	})
}

func (b *bounds) doubtOf(namespace string) string {
	return versions.Higher(b.Doubts[""], b.Doubts[namespace])
}

func (r *resource) overLocked() bool {
	return r.names > maxNames || r.user.n.Load() > maxUserNames
}
