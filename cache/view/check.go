package view

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Check recounts all that is counted, and returns an error for each count that is wrong. It is for tests: nothing may change
// meanwhile.
func (s *Views) Check() error {
	var errs []error
	expect := func(what any, got, want int64) {
		if got != want {
			errs = append(errs, fmt.Errorf("count %v: it is %d, and there are %d", what, got, want))
		}
	}
	var total usage
	names, resources := map[*userNames]int64{}, map[*userNames]int64{}
	together, highest := map[*history]int64{}, map[schema.GroupResource]int64{}
	for _, r := range s.allResources() {
		r.lock()
		counted := resource{resourceKey: r.resourceKey, user: new(userNames)}
		for name, e := range r.entries {
			counted.countLocked(name, e, 1)
		}
		expect(r.String()+" without copies", int64(r.names), int64(counted.names))
		expect(r.String()+" with copies", int64(r.copied), int64(counted.copied))
		expect(r.String()+" in bytes", r.bytes, counted.bytes)
		names[r.user] += int64(r.names)
		r.unlock()
		resources[r.user]++
		together[r.history]++
		highest[r.GroupResource]++
	}
	for _, v := range s.All() {
		v.of.lock()
		counted := newContents(slices.Clone(v.members))
		expect(v.String()+" in bytes", v.bytes, counted.bytes)
		for i := range counted.members {
			at, _ := v.find(counted.members[i].Name)
			expect(v.String()+" in order", int64(at), int64(i))
		}
		v.of.unlock()
	}
	for _, h := range s.holders() {
		total.count, total.bytes = total.count+h.part().count, total.bytes+h.part().bytes
	}
	count, bytes := s.Used()
	expect("views", int64(count), int64(total.count))
	expect("bytes", bytes, total.bytes)
	s.mu.RLock()
	defer s.mu.RUnlock()
	expect("users", int64(len(s.users)), int64(len(names)))
	expect("resources with versions", int64(len(s.highest)), int64(len(highest)))
	for user, n := range names {
		expect("names of a user", user.n.Load(), n)
		expect("resources of a user", int64(user.resources), resources[user])
	}
	for h, n := range together {
		expect("resources of a store", int64(h.uses), n)
	}
	return errors.Join(errs...)
}
