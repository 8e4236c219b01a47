package records

import (
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/versions"
)

// resourceLocked returns the record of a resource, which it creates; nil if the user has too many.
func (r *Records) resourceLocked(of query.UserResource) *resourceRecord {
	if resource := r.of[of]; resource != nil {
		return resource
	}
	user := r.users[of.User]
	if user == nil {
		user = new(userRecord)
		r.users[of.User] = user
	}
	if user.closed = user.closed || user.resources >= maxUserResources; user.closed {
		r.learned.Add(1) // and not recorded: see reopen
		r.saveUserLocked(of.User)
		return nil
	}
	user.resources++
	of = of.Clone()
	r.of[of] = &resourceRecord{names: map[string]*Record{}}
	return r.of[of]
}

// learn changes the record of an object. change returns false if nothing is new. The caller must
// not hold the lock of a view.
func (r *Records) learn(of query.UserResource, name string, change func(*Record) bool) {
	r.makeRoom(of)
	if r.learnOnce(of, name, change) {
		r.shrink(of)
	}
}

// learnOnce is learn without the bounds. It reports whether they are exceeded.
func (r *Records) learnOnce(of query.UserResource, name string, change func(*Record) bool) (over bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	resource := r.resourceLocked(of)
	if resource == nil {
		return false
	}
	var after Record
	before, had := resource.names[name]
	if had {
		after = *before
	}
	if !change(&after) {
		return false
	}
	after.since = r.learned.Add(1)
	r.setLocked(of, resource, name, &after)
	return r.overLocked(of, resource)
}

func (r *Records) overLocked(of query.UserResource, resource *resourceRecord) bool {
	return len(resource.names) > maxNames || r.users[of.User].names > maxUserNames
}

// setLocked sets the record of an object, or deletes it if it is empty.
func (r *Records) setLocked(of query.UserResource, resource *resourceRecord, name string, one *Record) {
	_, had := resource.names[name]
	bare := *one
	bare.since = 0
	switch empty := bare == (Record{}); {
	case empty && !had:
		return
	case empty:
		delete(resource.names, name)
		r.users[of.User].names--
	default:
		if !had {
			name = strings.Clone(name) // it may be part of a URL
		}
		if resource.names[name] = one; !had {
			r.users[of.User].names++
		}
	}
	r.saveLocked(of, name)
}

// Gone records that an object does not exist at a version. uid is empty if it is unknown; had
// means that the user had read the object before.
func (r *Records) Gone(of query.UserResource, name, version string, uid types.UID, had bool) {
	r.learn(of, name, func(one *Record) bool {
		if uid == "" {
			uid = one.UID
		}
		if uid != "" && one.SeenUID == uid { // the object that was seen last is gone
			version, one.Seen, one.SeenUID = versions.Higher(version, one.Seen), "", ""
		}
		one.Gone, one.UID, one.Had = OrFirst(versions.Higher(version, one.Gone)), uid, one.Had || had
		return true
	})
}

// OrFirst returns a valid version as it is, or else "1": an empty version would mean no record.
func OrFirst(version string) string {
	if versions.Valid(version) {
		return version
	}
	return "1"
}

// Doubt records that it is unknown whether an object exists after a version.
func (r *Records) Doubt(of query.UserResource, name, version string) {
	r.learn(of, name, func(one *Record) bool {
		one.Doubt = OrFirst(versions.Higher(version, one.Doubt))
		return true
	})
}

// Seen records that an object without a copy existed up to a version.
func (r *Records) Seen(of query.UserResource, name, version string, uid types.UID) {
	r.learn(of, name, func(one *Record) bool {
		switch {
		case !versions.Valid(version):
			return false
		case one.Gone != "" && one.UID != "" && one.UID == uid:
			one.Gone = versions.Higher(one.Gone, version)
		case versions.Compare(version, one.Seen) > 0:
			one.Seen, one.SeenUID = version, uid
		default:
			return false
		}
		return true
	})
}

// Refused records that a GET of an object was refused.
func (r *Records) Refused(of query.UserResource, name string) {
	r.learn(of, name, func(one *Record) bool {
		if one.Refused || r.of[of].ByName && !one.Allowed {
			return false
		}
		one.Refused, one.Allowed = true, false
		return true
	})
}

// Read records that an object was read, or written, at a version. consistent means that this was
// the newest state, and not one from an apiserver's watch cache.
func (r *Records) Read(of query.UserResource, namespace, name, version string, uid types.UID, began Moment, consistent bool) {
	r.mu.RLock()
	resource := r.of[of]
	known := resource != nil && (resource.names[name] != nil || resource.ByName || len(resource.Doubts) > 0)
	r.mu.RUnlock()
	if !known {
		return
	}
	r.learn(of, name, func(one *Record) bool {
		before := *one
		after := one.since <= began.learned // otherwise this answer may be older than the record
		if after {
			one.Refused = false
			one.Allowed = resource.ByName && (one.Allowed || len(resource.names) < maxNames)
		}
		// A newer object exists besides the record, which still applies to older copies.
		anew := versions.Compare(version, one.Gone) > 0 && (one.UID == "" || uid != one.UID)
		if consistent && after && !anew {
			one.Gone, one.UID, one.Had = "", "", false
		}
		if consistent && after && versions.Compare(version, one.Doubt) <= 0 {
			one.Doubt = ""
		}
		if doubt := versions.Higher(resource.Doubts[""], resource.Doubts[namespace]); consistent && doubt != "" &&
			(versions.Compare(began.Version(), doubt) >= 0 || resource.doubted <= began.learned) {
			one.Proven = versions.Higher(one.Proven, doubt)
		}
		return *one != before
	})
}

// SeenUncached records that objects were seen up to a version, and are not cached.
func (r *Records) SeenUncached(of query.UserResource, version string) {
	if r == nil || !versions.Valid(version) {
		return
	}
	r.makeRoom(of)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.raiseLocked(of, version)
}

// Damaged records that damage on disk has lost copies, up to a version, that clients had received.
// It is unknown which ones.
func (r *Records) Damaged(of query.UserResource, version string) {
	if r == nil || !versions.Valid(version) {
		return
	}
	r.makeRoom(of)
	r.mu.Lock()
	defer r.mu.Unlock()
	if resource := r.resourceLocked(of); resource != nil {
		resource.damaged = versions.Higher(resource.damaged, version)
	}
}

func (r *Records) raiseLocked(of query.UserResource, version string) {
	if resource := r.resourceLocked(of); resource != nil && versions.Compare(version, resource.Floor) > 0 {
		resource.Floor = version
		r.saveStateLocked(of)
	}
}

// DoubtAll records that any objects of a namespace, or of all namespaces, may have been deleted at
// a version.
func (r *Records) DoubtAll(of query.UserResource, namespace, version string) {
	r.makeRoom(of)
	r.mu.Lock()
	defer r.mu.Unlock()
	if resource := r.resourceLocked(of); resource != nil {
		r.doubtAllLocked(of, resource, namespace, OrFirst(version))
	}
}

func (r *Records) doubtAllLocked(of query.UserResource, resource *resourceRecord, namespace, version string) {
	doubts := maps.Clone(resource.Doubts)
	if doubts == nil {
		doubts = map[string]string{}
	}
	doubts[namespace] = versions.Higher(version, doubts[namespace])
	if len(doubts) > maxDoubts {
		all := ""
		for _, one := range doubts {
			all = versions.Higher(all, one)
		}
		doubts = map[string]string{"": all}
	}
	resource.Doubts, resource.doubted = doubts, r.learned.Add(1)
	r.saveStateLocked(of)
}

// Restored is called when the etcd of a user's resource was restored from a backup, and is at a
// version now. Earlier versions cannot be compared with later ones, so only refusals remain.
func (r *Records) Restored(back query.UserResource, version string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for resource, h := range r.counted {
		if query.VersionSpace(resource) == back.VersionSpace() {
			h.lower(version)
		}
	}
	for of, resource := range r.of {
		if !of.RestoredWith(back) {
			continue
		}
		resource.Floor, resource.Doubts, resource.damaged = "", nil, ""
		r.saveStateLocked(of)
		for name, one := range resource.names {
			r.setLocked(of, resource, name, &Record{Refused: one.Refused, Allowed: one.Allowed, since: one.since})
		}
	}
}
