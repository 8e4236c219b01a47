package view

import (
	"encoding/json"
	"errors"

	wal "github.com/edgehub-io/edgehub/cache/log"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// loaded is what the file has.
type loaded struct {
	views   map[string]*loadedView     // by tables
	objects map[string]*loadedResource // by tables
	// lost means that changes are missing, which may be of any resource.
	lost bool
	// unreadable resources have a row that cannot be decoded.
	unreadable map[resourceKey]bool
}

// loadedView is a view as the file has it.
type loadedView struct {
	header savedHeader
	index  map[string]Revision
	err    error // why it cannot be used
}

// loadedResource is what the file has of a resource besides views.
type loadedResource struct {
	key      resourceKey
	readable bool // the key is
	bounds   bounds
	entries  map[string]*entry
}

func newLoaded() *loaded {
	return &loaded{map[string]*loadedView{}, map[string]*loadedResource{}, false, map[resourceKey]bool{}}
}

func (l *loaded) applyView(c *wal.Change) {
	v := l.views[c.Table]
	if c.Clear && len(c.Put) == 0 {
		delete(l.views, c.Table)
		return
	}
	if v == nil || c.Clear {
		v = &loadedView{index: map[string]Revision{}, err: errRow} // until there is a header
		if !c.Clear && l.lost {                                    // what was before this is missing
			v.err = wal.ErrCorrupt
		}
		l.views[c.Table] = v
	}
	for _, name := range c.Delete {
		delete(v.index, name)
	}
	for i := range c.Put {
		r := &c.Put[i]
		var err error
		if r.Key == rowHeader {
			v.header = savedHeader{}
			if err = json.Unmarshal(r.Value, &v.header); errors.Is(v.err, errRow) {
				v.err = nil
			}
		} else {
			v.index[r.Key], err = revisionFrom(r)
		}
		if err != nil {
			v.err = err
		}
	}
}

func (l *loaded) applyObjects(c *wal.Change) {
	o := l.objects[c.Table]
	if c.Clear && len(c.Put) == 0 {
		delete(l.objects, c.Table)
		return
	}
	if o == nil || c.Clear {
		o = &loadedResource{entries: map[string]*entry{}}
		o.key, o.readable = resourceKeyOf(c.Table)
		l.objects[c.Table] = o
	}
	for _, name := range c.Delete {
		delete(o.entries, name)
	}
	for i := range c.Put {
		r := &c.Put[i]
		if r.Key == rowHeader {
			o.bounds = bounds{}
			if err := json.Unmarshal(r.Value, &o.bounds); err != nil {
				l.unreadable[o.key] = true
			}
			continue
		}
		e, err := readEntry(r)
		if err != nil {
			l.unreadable[o.key] = true
			continue
		}
		o.entries[r.Key] = e
	}
}

func readEntry(r *wal.Row) (*entry, error) {
	var s savedEntry
	if err := json.Unmarshal(r.Value, &s); err != nil || len(s.Copies) != len(r.Bodies) {
		return nil, errRow
	}
	e := &entry{state: s.state}
	for i, one := range s.Copies {
		repr, err := wire.ParseRepresentation(one.Form)
		if err != nil {
			return nil, err
		}
		e.copies = append(e.copies, Copy{
			Name: r.Key, Revision: Revision{Version: s.Version, UID: s.ObjUID, body: body{encoding: repr.Encoding, size: one.Size, sum: r.Bodies[i].Sum}},
			Type: wire.TypeMeta{APIVersion: one.APIVersion, Kind: one.Kind}, Repr: repr,
		})
	}
	return e, nil
}

// lose is called for a gap. What was read before it may lack changes, so that no list of it is one that ever was.
func (l *loaded) lose(cause error) {
	l.lost = true
	for _, v := range l.views {
		v.err = cause
	}
}

// restore adds what the file has.
func (s *Views) restore(l *loaded) {
	for table, o := range l.objects {
		if o.readable {
			s.restoreObjects(o)
		} else {
			s.Log.Warn("a part of the cache cannot be read; it is dropped, and read again from the cloud", "objects", table)
			_ = s.Disk.Put(wal.Change{Table: table, Clear: true}) // it needs no bodies
		}
	}
	for table, one := range l.views {
		key, ok := keyOfTable(table)
		if !ok || !key.IsValid() {
			s.Log.Warn("a part of the cache cannot be read; it is dropped, and read again from the cloud", "view", table)
			_ = s.Disk.Put(wal.Change{Table: table, Clear: true}) // it needs no bodies
			continue
		}
		v := s.Acquire(key)
		if v.restore(one); one.err != nil {
			s.Log.Warn("a part of the cache cannot be read; it is dropped, and read again from the cloud", "view", v.String(), "err", one.err)
		}
		s.count(v)
		v.Release()
	}
	for _, r := range s.allResources() {
		if l.lost || l.unreadable[r.resourceKey] {
			r.lock()
			r.unknownLocked()
			r.unlock()
		}
		s.count(r)
	}
}

// restoreObjects adds what the file has of a resource besides views.
func (s *Views) restoreObjects(o *loadedResource) {
	r := s.keep(query.UserResource{User: o.key.user, Resource: o.key.WithVersion("")})
	defer r.unlock()
	r.saved = true
	r.Touch()
	r.Floor, r.ByName = versions.Higher(r.Floor, o.bounds.Floor), r.ByName || o.bounds.ByName
	doubted := r.doubted
	for namespace, version := range o.bounds.Doubts {
		r.doubtAllLocked(namespace, version)
	}
	r.doubted = doubted // those of the file are of before every request
	for name, e := range o.entries {
		r.highest.Raise(versions.Higher(e.Gone, e.version())) // what was only seen may be at a made-up version
		if now := r.entries[name]; now != nil {               // it was read before the file was opened
			both := *now
			both.merge(&e.state, len(now.copies) > 0)
			r.setLocked(name, &both)
			continue
		}
		for i := range e.copies {
			e.copies[i].of = r
		}
		r.entries[name] = e
		r.countLocked(name, e, 1)
	}
	r.saveBoundsLocked()
}

// restore sets the view's state to that on disk.
func (v *View) restore(l *loadedView) {
	v.of.lock()
	defer v.of.unlock()
	if v.onDisk { // it was read before the file was opened
		v.of.put(wal.Change{Table: v.table, Clear: true, Put: v.rowsLocked()}, false) // the log has its bodies
		return
	}
	v.of.highest.Raise(l.header.Version)
	if v.onDisk = true; l.err != nil {
		v.dropLocked()
		return
	}
	v.header, v.version, v.complete = l.header.viewHeader, l.header.Version, l.header.Complete
	members := make([]Member, 0, len(l.index))
	for name, rev := range l.index {
		members = append(members, Member{name, rev})
	}
	v.contents = newContents(members)
	v.used.Store(l.header.Used.UnixNano())
	if v.header.Boot != "" && v.header.Boot == v.of.all.Boot {
		v.seen = versions.Higher(v.seen, v.header.Seen)
	}
	v.saveSeenLocked()
}
