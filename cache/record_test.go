package cache

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// testRecords are records of pods. There are copies of those whose names begin so.
func testRecords(held ...string) (*records, userResource) {
	r := newRecords()
	r.needed = func(_ userResource, name string, _ *record) bool {
		return slices.ContainsFunc(held, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
	}
	r.viewed = func() map[string]map[userResource]bool { return nil }
	return r, userResource{user: "user", resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}}
}

func TestAnAnswerThatBeganEarlierTakesNothingBack(t *testing.T) {
	r, of := testRecords()
	before := r.now(of.resource)
	r.refused(of, "ns/a")
	r.gone(of, "ns/a", "100", "", true)
	r.read(of, "ns", "ns/a", "90", "u", before, true)
	if k := r.known(of, "ns", "ns/a"); !k.Refused || k.Gone != "100" {
		t.Errorf("an answer of before took back %+v", k.record)
	}
	r.read(of, "ns", "ns/a", "90", "u", r.now(of.resource), true)
	if k := r.known(of, "ns", "ns/a"); k.Refused || k.Gone != "" {
		t.Errorf("a later answer left %+v", k.record)
	}
}

func TestTooManyDeletionsBecomeADoubt(t *testing.T) {
	r, of := testRecords("ns/held")
	for i := range 3 * maxNames { // nobody holds a copy of these
		r.gone(of, fmt.Sprint("ns/free-", i), fmt.Sprint(100+i), "", true)
	}
	if k := r.known(of, "ns", "ns/any"); k.doubt != "" || len(r.of[of].names) > maxNames {
		t.Errorf("there are %d records, and a doubt up to %q", len(r.of[of].names), k.doubt)
	}
	for i := range 2 * maxNames {
		r.gone(of, fmt.Sprint("ns/held-", i), fmt.Sprint(10000+i), "", true)
	}
	k := r.known(of, "ns", "ns/held-0")
	if len(r.of[of].names) > maxNames || k.Gone == "" && compare(k.doubt, "10000") < 0 {
		t.Errorf("there are %d records, and what is gone is forgotten: %+v", len(r.of[of].names), k)
	}
}

func TestTooManyRefusalsRefuseByName(t *testing.T) {
	r, of := testRecords()
	for i := range 2 * maxNames {
		r.refused(of, fmt.Sprint("ns/", i))
	}
	if n := len(r.of[of].names); n > maxNames {
		t.Errorf("there are %d records", n)
	}
	for _, name := range []string{"ns/0", "ns/5000"} {
		if !r.known(of, "ns", name).Refused {
			t.Errorf("%s is not refused", name)
		}
	}
	r.read(of, "ns", "ns/5000", "7", "u", r.now(of.resource), true)
	if r.known(of, "ns", "ns/5000").Refused || !r.known(of, "ns", "ns/0").Refused {
		t.Error("not just what was read is let in")
	}
	r.refused(of, "ns/5000")
	if !r.known(of, "ns", "ns/5000").Refused {
		t.Error("what was refused again is let in")
	}
}

func TestMadeUpResourcesAreBounded(t *testing.T) {
	r, of := testRecords()
	r.viewed = func() map[string]map[userResource]bool { return map[string]map[userResource]bool{"user": {of: true}} }
	r.gone(of, "ns/a", "100", "", true)
	for i := range 2 * maxUserResources {
		other := of
		other.resource.Resource = fmt.Sprint("made-up-", i)
		r.refused(other, "x")
	}
	if n := len(r.of); n > maxUserResources {
		t.Errorf("there are %d resources", n)
	}
	if k := r.known(of, "ns", "ns/a"); k.Gone != "100" || k.closed {
		t.Errorf("what is known of a resource with views is %+v", k)
	}
}

// madeUp returns a resource that nobody has a view of, unless viewed returns it.
func madeUp(of userResource, i int) userResource {
	of.resource.Resource = fmt.Sprint("made-up-", i)
	return of
}

func TestWhateverIsNotedMakesRoom(t *testing.T) {
	for what, note := range map[string]func(*records, userResource){
		"a version that is forgotten":  func(r *records, of userResource) { r.forgot(of, "100") },
		"a deletion of many":           func(r *records, of userResource) { r.doubtAll(of, "ns", "100") },
		"a refusal of a single object": func(r *records, of userResource) { r.refused(of, "ns/a") },
	} {
		t.Run(what, func(t *testing.T) {
			r, of := testRecords()
			r.viewed = func() map[string]map[userResource]bool { return map[string]map[userResource]bool{"user": {of: true}} }
			for i := range maxUserResources {
				r.refused(madeUp(of, i), "x")
			}
			note(r, of)
			if k := r.known(of, "ns", "ns/a"); k.closed || r.of[of] == nil {
				t.Errorf("beside made-up resources it is not noted: %+v", k)
			}
		})
	}
}

func TestAUserWithFewerResourcesIsServedAgain(t *testing.T) {
	r, of := testRecords()
	viewed := map[userResource]bool{of: true}
	r.viewed = func() map[string]map[userResource]bool { return map[string]map[userResource]bool{"user": viewed} }
	for i := range maxUserResources {
		viewed[madeUp(of, i)] = true
		r.refused(madeUp(of, i), "x")
	}
	r.gone(of, "ns/a", "100", "", true)
	if r.sweep(); !r.known(of, "ns", "ns/a").closed {
		t.Fatal("there is no bound to the resources of a user")
	}
	delete(viewed, madeUp(of, 0))
	r.sweep()
	k := r.known(of, "ns", "ns/a")
	if k.closed {
		t.Fatal("a user whose resources fit again is still not served")
	}
	if !k.Refused || k.doubt == "" || k.floor == "" {
		t.Errorf("what was not noted counts as nothing: %+v", k)
	}
	if !r.known(madeUp(of, 1), "", "x").Refused || r.known(madeUp(of, 1), "", "y").Refused {
		t.Error("what is known of other resources has changed")
	}
	r.read(of, "ns", "ns/a", "50", "u", r.now(of.resource), true)
	if k := r.known(of, "ns", "ns/a"); k.Refused || compare(k.Proven, k.doubt) < 0 {
		t.Errorf("what was read again is still unknown: %+v", k)
	}
}

func TestARestoreTakesVersionsAndLeavesRefusals(t *testing.T) {
	r, of := testRecords()
	r.count(of.resource).raise("500")
	r.gone(of, "ns/a", "500", "", true)
	r.refused(of, "ns/b")
	r.forgot(of, "500")
	r.restored(of, "200")
	if k := r.known(of, "ns", "ns/a"); k.Gone != "" || k.floor != "" {
		t.Errorf("of before the restore there is %+v", k)
	}
	if !r.known(of, "ns", "ns/b").Refused || r.highest(of.resource).version() != "200" {
		t.Errorf("after the restore: version %s", r.highest(of.resource).version())
	}
}

func TestCountsAreBoundedAndForgotten(t *testing.T) {
	r, of := testRecords()
	r.count(of.resource).raise("100")
	r.viewed = func() map[string]map[userResource]bool { return map[string]map[userResource]bool{"user": {of: true}} }
	for i := range 2 * maxCounted {
		r.count(schema.GroupVersionResource{Group: fmt.Sprint(i), Version: "v1", Resource: "made-up"}).raise("1")
	}
	if n := len(r.counted); n > maxCounted {
		t.Errorf("%d resources are counted", n)
	}
	for range 2 {
		r.sweep()
	}
	if n := len(r.counted); n != 1 || r.highest(of.resource).version() != "100" {
		t.Errorf("%d resources are counted, that with a view at %q", n, r.highest(of.resource).version())
	}
}
