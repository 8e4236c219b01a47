package cache

import (
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// resourceLocked returns the record of a resource, nil if there may be no more.
func (r *records) resourceLocked(of userResource) *resourceRecord {
	if resource := r.of[of]; resource != nil {
		return resource
	}
	user := r.users[of.user]
	if user == nil {
		user = new(userRecord)
		r.users[of.user] = user
	}
	if user.closed = user.closed || user.resources >= maxUserResources; user.closed {
		r.learned.Add(1) // and was not noted: see reopen
		r.saveUserLocked(of.user)
		return nil
	}
	user.resources++
	of = of.clone()
	r.of[of] = &resourceRecord{names: map[string]*record{}}
	return r.of[of]
}

// learn changes the record of an object. change reports whether there is something new. No
// lock of a view may be held.
func (r *records) learn(of userResource, name string, change func(*record) bool) {
	r.makeRoom(of)
	if r.learnOnce(of, name, change) {
		r.shrink(of)
	}
}

// learnOnce reports whether there are more records than there may be.
func (r *records) learnOnce(of userResource, name string, change func(*record) bool) (over bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	resource := r.resourceLocked(of)
	if resource == nil {
		return false
	}
	var after record
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

func (r *records) overLocked(of userResource, resource *resourceRecord) bool {
	return len(resource.names) > maxNames || r.users[of.user].names > maxUserNames
}

// setLocked keeps the record of an object; one that says nothing goes.
func (r *records) setLocked(of userResource, resource *resourceRecord, name string, one *record) {
	_, had := resource.names[name]
	bare := *one
	bare.since = 0
	switch empty := bare == (record{}); {
	case empty && !had:
		return
	case empty:
		delete(resource.names, name)
		r.users[of.user].names--
	default:
		if !had {
			name = strings.Clone(name) // it may be part of a URL
		}
		if resource.names[name] = one; !had {
			r.users[of.user].names++
		}
	}
	r.saveLocked(of, name)
}

// gone notes that an object is not there at a version. uid is empty where it is not known,
// had says whether the user knew the object before.
func (r *records) gone(of userResource, name, version string, uid types.UID, had bool) {
	r.learn(of, name, func(one *record) bool {
		if uid == "" {
			uid = one.UID
		}
		if uid != "" && one.SeenUID == uid { // what was seen last is what is gone
			version, one.Seen, one.SeenUID = higher(version, one.Seen), "", ""
		}
		one.Gone, one.UID, one.Had = orFirst(higher(version, one.Gone)), uid, one.Had || had
		return true
	})
}

// orFirst is a version that is not empty, which would say nothing.
func orFirst(version string) string {
	if isVersion(version) {
		return version
	}
	return "1"
}

// doubt notes that it is not known whether an object is there after a version.
func (r *records) doubt(of userResource, name, version string) {
	r.learn(of, name, func(one *record) bool {
		one.Doubt = orFirst(higher(version, one.Doubt))
		return true
	})
}

// seen notes that an object was there up to a version, of which there is no copy.
func (r *records) seen(of userResource, name, version string, uid types.UID) {
	r.learn(of, name, func(one *record) bool {
		switch {
		case !isVersion(version):
			return false
		case one.Gone != "" && one.UID != "" && one.UID == uid:
			one.Gone = higher(one.Gone, version)
		case compare(version, one.Seen) > 0:
			one.Seen, one.SeenUID = version, uid
		default:
			return false
		}
		return true
	})
}

// refused notes that a GET of an object was refused.
func (r *records) refused(of userResource, name string) {
	r.learn(of, name, func(one *record) bool {
		if one.Refused || r.of[of].ByName && !one.Allowed {
			return false
		}
		one.Refused, one.Allowed = true, false
		return true
	})
}

// read notes that an object was read, or written, at a version. consistent says that this
// was the newest state there was, and not one that an apiserver remembered.
func (r *records) read(of userResource, namespace, name, version string, uid types.UID, began moment, consistent bool) {
	r.mu.RLock()
	resource := r.of[of]
	known := resource != nil && (resource.names[name] != nil || resource.ByName || len(resource.Doubts) > 0)
	r.mu.RUnlock()
	if !known {
		return
	}
	r.learn(of, name, func(one *record) bool {
		before := *one
		after := one.since <= began.learned // else this may be the older answer
		if after {
			one.Refused = false
			one.Allowed = resource.ByName && (one.Allowed || len(resource.names) < maxNames)
		}
		// What is newer stands beside the record, which is still true of older copies.
		anew := compare(version, one.Gone) > 0 && (one.UID == "" || uid != one.UID)
		if consistent && after && !anew {
			one.Gone, one.UID, one.Had = "", "", false
		}
		if consistent && after && compare(version, one.Doubt) <= 0 {
			one.Doubt = ""
		}
		if doubt := higher(resource.Doubts[""], resource.Doubts[namespace]); consistent && doubt != "" &&
			(compare(began.version(), doubt) >= 0 || resource.doubted <= began.learned) {
			one.Proven = higher(one.Proven, doubt)
		}
		return *one != before
	})
}

// forgot notes that something was seen up to a version, and is forgotten.
func (r *records) forgot(of userResource, version string) {
	if r == nil || !isVersion(version) {
		return
	}
	r.makeRoom(of)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.raiseLocked(of, version)
}

// damaged notes that copies up to a version, which clients were given, were lost by damage on
// the disk. Which ones is not known.
func (r *records) damaged(of userResource, version string) {
	if r == nil || !isVersion(version) {
		return
	}
	r.makeRoom(of)
	r.mu.Lock()
	defer r.mu.Unlock()
	if resource := r.resourceLocked(of); resource != nil {
		resource.damaged = higher(resource.damaged, version)
	}
}

func (r *records) raiseLocked(of userResource, version string) {
	if resource := r.resourceLocked(of); resource != nil && compare(version, resource.Floor) > 0 {
		resource.Floor = version
		r.saveStateLocked(of)
	}
}

// doubtAll notes that many objects of a namespace, or of all, may have been deleted at a
// version, and it is not known which.
func (r *records) doubtAll(of userResource, namespace, version string) {
	r.makeRoom(of)
	r.mu.Lock()
	defer r.mu.Unlock()
	if resource := r.resourceLocked(of); resource != nil {
		r.doubtAllLocked(of, resource, namespace, orFirst(version))
	}
}

func (r *records) doubtAllLocked(of userResource, resource *resourceRecord, namespace, version string) {
	doubts := maps.Clone(resource.Doubts)
	if doubts == nil {
		doubts = map[string]string{}
	}
	doubts[namespace] = higher(version, doubts[namespace])
	if len(doubts) > maxDoubts {
		all := ""
		for _, one := range doubts {
			all = higher(all, one)
		}
		doubts = map[string]string{"": all}
	}
	resource.Doubts, resource.doubted = doubts, r.learned.Add(1)
	r.saveStateLocked(of)
}

// restored is called when the store of a user's resource was restored from a backup, and is
// at a version now. Nothing can be compared with the versions of before; what was refused
// stays so.
func (r *records) restored(back userResource, version string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for resource, h := range r.counted {
		if versionSpace(resource) == back.versionSpace() {
			h.lower(version)
		}
	}
	for of, resource := range r.of {
		if !of.restoredWith(back) {
			continue
		}
		resource.Floor, resource.Doubts, resource.damaged = "", nil, ""
		r.saveStateLocked(of)
		for name, one := range resource.names {
			r.setLocked(of, resource, name, &record{Refused: one.Refused, Allowed: one.Allowed, since: one.since})
		}
	}
}
