package cache

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// testRecords are records of pods. There are copies of those whose names begin so.
func testRecords(held ...string) (*records, userResource) {
	r := newRecords()
	r.needed = func(_ userResource, name string, _ *record) bool {
		return slices.ContainsFunc(held, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
	}
	r.viewed = func() map[string]map[userResource]bool { return nil }
	return r, userResource{"user", schema.GroupVersionResource{Version: "v1", Resource: "pods"}}
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

func TestAUIDDoesNotComeBack(t *testing.T) {
	v := newTestView(t)
	fill(t, v, "", "100", true, nil)
	v.apply("100", &change{name: "ns/a", version: "105", object: pod(t, "a", "105", "its")})
	for name, test := range map[string]struct {
		gone string
		uid  types.UID
		want bool
	}{
		"older than the deletion":             {"107", "", true},
		"newer, and the UID is not known":     {"100", "", false},
		"newer, and another object":           {"100", "another", false},
		"a change that came with a delay":     {"100", "its", true},
		"a deletion at the very same version": {"105", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			c, _, ok := v.copyOf("ns/a")
			if !ok {
				t.Fatal("there is no copy")
			}
			k := &known{record: record{Gone: test.gone, UID: test.uid}}
			if got := k.isOf(&c); got != test.want {
				t.Errorf("the copy is of the object that is gone: %v", got)
			}
		})
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

func TestWatchesThatAnObjectLeavesOnlyByItsDeletion(t *testing.T) {
	for _, test := range []struct {
		resource, labels, fields string
		want                     bool
	}{
		{"pods", "", "", true},
		{"pods", "", "metadata.name=a", true},
		{"pods", "", "metadata.namespace=ns,metadata.name!=a", true},
		{"pods", "", "spec.nodeName=n", true},
		{"pods", "", "spec.nodeName=", false},
		{"pods", "", "spec.nodeName!=n", false},
		{"pods", "", "spec.nodeName=n,status.phase=Running", false},
		{"things", "", "spec.nodeName=n", false},
		{"pods", "l=red", "", false},
		{"pods", "", "(", false},
	} {
		k := &viewKey{Version: "v1", Resource: test.resource, Labels: test.labels, Fields: test.fields}
		if got := k.lasting(); got != test.want {
			t.Errorf("%+v: %v", test, got)
		}
	}
}

// A copy that was read only as metadata, and is newer, does not bring an older whole object.
func TestAnOlderCopyIsNoAnswerWhereTheNewestCannotBeConverted(t *testing.T) {
	u, c := startListed(t, "100", podJSON("a", "50"))
	u.on("get", func(*http.Request) *http.Response {
		return respond(http.StatusOK, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a","namespace":"ns","uid":"u-a","resourceVersion":"60"}}`)
	})
	ask(context.WithValue(t.Context(), acceptKey{}, "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"), t, c, http.MethodGet, urlPodA)
	u.goAway()
	if got := get(t, c, urlPodA); !strings.Contains(got, errOnlyMetadata.Error()) {
		t.Errorf("a whole object is read: %q", got)
	}
}

// An event that its view cannot take yet was seen all the same: an older copy is no answer
// until the view has caught up.
func TestAnOlderCopyIsNoAnswerWhileTheViewIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, c := startListed(t, "100", podJSON("a", "50"))
		get(t, c, urlPodA)
		u.onText("list", http.StatusInternalServerError, "{}") // it cannot catch up
		startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=150")
		send(t, <-u.feeds, podEvent("MODIFIED", "a", "160"))
		synctest.Wait()
		u.goAway()
		if got := get(t, c, urlPodA); got != "a=160" { // which was kept apart
			t.Errorf("GET while the view is behind: %q", got)
		}
		u.comeBack()
		u.shows("170", podJSON("a", "160"))
		get(t, c, urlPods)
		u.goAway()
		if got := get(t, c, urlPodA); got != "a=160" {
			t.Errorf("GET after the view has caught up: %q", got)
		}
	})
}
