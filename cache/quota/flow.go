package quota

import "slices"

// flow holds the waiters under a path: further flows or, at the end of a path, waiters. next and
// evictNewest must not be called on an empty flow.
type flow struct {
	waiting int
	flows   map[string]*flow
	order   []string  // names of flows, in round-robin order
	waiters []*waiter // oldest first
}

func (f *flow) add(path []string, w *waiter) {
	f.waiting++
	if len(path) == 0 {
		f.waiters = append(f.waiters, w)
		return
	}
	name := path[0]
	if f.flows == nil {
		f.flows = map[string]*flow{}
	}
	if f.flows[name] == nil {
		f.flows[name] = &flow{}
		f.order = append(f.order, name)
	}
	f.flows[name].add(path[1:], w)
}

// next removes and returns the next waiter.
func (f *flow) next() (w *waiter) {
	f.waiting--
	if len(f.order) == 0 {
		w, f.waiters = f.waiters[0], f.waiters[1:]
		return w
	}
	name := f.order[0]
	w = f.flows[name].next()
	if f.order = f.order[1:]; f.flows[name].waiting > 0 {
		f.order = append(f.order, name)
	} else {
		delete(f.flows, name)
	}
	return w
}

// evictNewest removes and returns the newest waiter of the longest flow at each level; of
// several such flows, of the one that would be served last.
func (f *flow) evictNewest() (w *waiter) {
	f.waiting--
	if len(f.order) == 0 {
		last := len(f.waiters) - 1
		w, f.waiters = f.waiters[last], f.waiters[:last]
		return w
	}
	most := f.order[0]
	for _, name := range f.order {
		if f.flows[name].waiting >= f.flows[most].waiting {
			most = name
		}
	}
	w = f.flows[most].evictNewest()
	f.prune(most)
	return w
}

// remove removes a waiter, and returns false if it is no longer in the queue.
func (f *flow) remove(path []string, w *waiter) bool {
	if len(path) == 0 {
		place := slices.Index(f.waiters, w)
		if place < 0 {
			return false
		}
		f.waiters = slices.Delete(f.waiters, place, place+1)
		f.waiting--
		return true
	}
	child := f.flows[path[0]]
	if child == nil || !child.remove(path[1:], w) {
		return false
	}
	f.waiting--
	f.prune(path[0])
	return true
}

// prune drops an empty flow.
func (f *flow) prune(name string) {
	if f.flows[name].waiting > 0 {
		return
	}
	delete(f.flows, name)
	f.order = slices.DeleteFunc(f.order, func(other string) bool { return other == name })
}
