package records

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/disk"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/store/writeback"
	"github.com/edgehub-io/edgehub/cache/versions"
)

// copies are the copies of objects whose names begin so, and the user's resources with views.
type copies struct {
	held   []string
	viewed map[query.UserResource]bool
}

func (c *copies) Needed(_ query.UserResource, name string, _ *Record) bool {
	return slices.ContainsFunc(c.held, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

func (c *copies) ResourcesByUser() map[string]map[query.UserResource]bool {
	if c.viewed == nil {
		return nil
	}
	return map[string]map[query.UserResource]bool{"user": c.viewed}
}

// testRecords are records of pods. There are copies of those whose names begin so.
func testRecords(held ...string) (*Records, query.UserResource) {
	return New(&copies{held: held}), query.UserResource{User: "user", Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}}
}

// loadRecords opens the disk in a folder, and loads what records are there.
func loadRecords(t *testing.T, r *Records, dir string) *disk.Disk {
	t.Helper()
	d, err := disk.Open(dir, disk.Options{
		Store:     store.Options{Logger: slog.New(slog.DiscardHandler)},
		Lost:      func(id store.ID, err error) { t.Errorf("%v is lost: %v", id, err) },
		Opened:    func(*store.Store, error) {},
		Committed: func(writeback.CommitStats) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Load(d, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	return d
}

// runDisk writes what is pending, and closes the disk.
func runDisk(t *testing.T, d *disk.Disk) {
	t.Helper()
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if err := d.Run(stopped); err != nil {
		t.Fatal(err)
	}
}

func TestAnAnswerToAnEarlierRequestRevertsNothing(t *testing.T) {
	r, of := testRecords()
	before := r.Now(of.Resource)
	r.Refused(of, "ns/a")
	r.Gone(of, "ns/a", "100", "", true)
	r.Read(of, "ns", "ns/a", "90", "u", before, true)
	if k := r.Known(of, "ns", "ns/a"); !k.Refused || k.Gone != "100" {
		t.Errorf("an answer of before took back %+v", k.Record)
	}
	r.Read(of, "ns", "ns/a", "90", "u", r.Now(of.Resource), true)
	if k := r.Known(of, "ns", "ns/a"); k.Refused || k.Gone != "" {
		t.Errorf("a later answer left %+v", k.Record)
	}
}

func TestTooManyDeletionsBecomeADoubt(t *testing.T) {
	r, of := testRecords("ns/held")
	for i := range 3 * maxNames { // nobody holds a copy of these
		r.Gone(of, fmt.Sprint("ns/free-", i), fmt.Sprint(100+i), "", true)
	}
	if k := r.Known(of, "ns", "ns/any"); k.Doubt != "" || len(r.of[of].names) > maxNames {
		t.Errorf("there are %d records, and a doubt up to %q", len(r.of[of].names), k.Doubt)
	}
	for i := range 2 * maxNames {
		r.Gone(of, fmt.Sprint("ns/held-", i), fmt.Sprint(10000+i), "", true)
	}
	k := r.Known(of, "ns", "ns/held-0")
	if len(r.of[of].names) > maxNames || k.Gone == "" && versions.Compare(k.Doubt, "10000") < 0 {
		t.Errorf("there are %d records, and what is gone is forgotten: %+v", len(r.of[of].names), k)
	}
}

func TestTooManyRefusalsRefuseByName(t *testing.T) {
	r, of := testRecords()
	for i := range 2 * maxNames {
		r.Refused(of, fmt.Sprint("ns/", i))
	}
	if n := len(r.of[of].names); n > maxNames {
		t.Errorf("there are %d records", n)
	}
	for _, name := range []string{"ns/0", "ns/5000"} {
		if !r.Known(of, "ns", name).Refused {
			t.Errorf("%s is not refused", name)
		}
	}
	r.Read(of, "ns", "ns/5000", "7", "u", r.Now(of.Resource), true)
	if r.Known(of, "ns", "ns/5000").Refused || !r.Known(of, "ns", "ns/0").Refused {
		t.Error("not just what was read is let in")
	}
	r.Refused(of, "ns/5000")
	if !r.Known(of, "ns", "ns/5000").Refused {
		t.Error("what was refused again is let in")
	}
}

func TestMadeUpResourcesAreBounded(t *testing.T) {
	r, of := testRecords()
	r.copies = &copies{viewed: map[query.UserResource]bool{of: true}}
	r.Gone(of, "ns/a", "100", "", true)
	for i := range 2 * maxUserResources {
		other := of
		other.Resource.Resource = fmt.Sprint("made-up-", i)
		r.Refused(other, "x")
	}
	if n := len(r.of); n > maxUserResources {
		t.Errorf("there are %d resources", n)
	}
	if k := r.Known(of, "ns", "ns/a"); k.Gone != "100" || k.Closed {
		t.Errorf("what is known of a resource with views is %+v", k)
	}
}

// madeUp returns a resource that nobody has a view of, unless viewed returns it.
func madeUp(of query.UserResource, i int) query.UserResource {
	of.Resource.Resource = fmt.Sprint("made-up-", i)
	return of
}

func TestWhateverIsNotedMakesRoom(t *testing.T) {
	for what, note := range map[string]func(*Records, query.UserResource){
		"a version that was seen":      func(r *Records, of query.UserResource) { r.SeenUncached(of, "100") },
		"a deletion of many":           func(r *Records, of query.UserResource) { r.DoubtAll(of, "ns", "100") },
		"a refusal of a single object": func(r *Records, of query.UserResource) { r.Refused(of, "ns/a") },
	} {
		t.Run(what, func(t *testing.T) {
			r, of := testRecords()
			r.copies = &copies{viewed: map[query.UserResource]bool{of: true}}
			for i := range maxUserResources {
				r.Refused(madeUp(of, i), "x")
			}
			note(r, of)
			if k := r.Known(of, "ns", "ns/a"); k.Closed || r.of[of] == nil {
				t.Errorf("beside made-up resources it is not noted: %+v", k)
			}
		})
	}
}

func TestAUserWithFewerResourcesIsServedAgain(t *testing.T) {
	r, of := testRecords()
	viewed := map[query.UserResource]bool{of: true}
	r.copies = &copies{viewed: viewed}
	for i := range maxUserResources {
		viewed[madeUp(of, i)] = true
		r.Refused(madeUp(of, i), "x")
	}
	r.Gone(of, "ns/a", "100", "", true)
	if r.Sweep(); !r.Known(of, "ns", "ns/a").Closed {
		t.Fatal("there is no bound to the resources of a user")
	}
	delete(viewed, madeUp(of, 0))
	r.Sweep()
	k := r.Known(of, "ns", "ns/a")
	if k.Closed {
		t.Fatal("a user whose resources fit again is still not served")
	}
	if !k.Refused || k.Doubt == "" || k.Floor == "" {
		t.Errorf("what was not noted counts as nothing: %+v", k)
	}
	if !r.Known(madeUp(of, 1), "", "x").Refused || r.Known(madeUp(of, 1), "", "y").Refused {
		t.Error("what is known of other resources has changed")
	}
	r.Read(of, "ns", "ns/a", "50", "u", r.Now(of.Resource), true)
	if k := r.Known(of, "ns", "ns/a"); k.Refused || versions.Compare(k.Proven, k.Doubt) < 0 {
		t.Errorf("what was read again is still unknown: %+v", k)
	}
}

func TestARestoreTakesVersionsAndLeavesRefusals(t *testing.T) {
	r, of := testRecords()
	r.Count(of.Resource).Raise("500")
	r.Gone(of, "ns/a", "500", "", true)
	r.Refused(of, "ns/b")
	r.SeenUncached(of, "500")
	r.Restored(of, "200")
	if k := r.Known(of, "ns", "ns/a"); k.Gone != "" || k.Floor != "" {
		t.Errorf("of before the restore there is %+v", k)
	}
	if !r.Known(of, "ns", "ns/b").Refused || r.Highest(of.Resource).Version() != "200" {
		t.Errorf("after the restore: version %s", r.Highest(of.Resource).Version())
	}
}

func TestCountsAreBoundedAndForgotten(t *testing.T) {
	r, of := testRecords()
	r.Count(of.Resource).Raise("100")
	r.copies = &copies{viewed: map[query.UserResource]bool{of: true}}
	for i := range 2 * MaxCounted {
		r.Count(schema.GroupVersionResource{Group: fmt.Sprint(i), Version: "v1", Resource: "made-up"}).Raise("1")
	}
	if n := len(r.counted); n > MaxCounted {
		t.Errorf("%d resources are counted", n)
	}
	for range 2 {
		r.Sweep()
	}
	if n := len(r.counted); n != 1 || r.Highest(of.Resource).Version() != "100" {
		t.Errorf("%d resources are counted, that with a view at %q", n, r.Highest(of.Resource).Version())
	}
}

// That a user has too many resources does not affect those on disk, in whatever order the
// disk has them.
func TestRecordsOfAClosedUserAreReadAgain(t *testing.T) {
	r, of := testRecords()
	users, dir := []string{"a", "b", "c", "d", "e"}, t.TempDir()
	each := func(fn func(of query.UserResource)) {
		for _, of.User = range users {
			for i := range 20 {
				fn(madeUp(of, i))
			}
		}
	}
	d := loadRecords(t, r, dir)
	each(func(of query.UserResource) { r.Refused(of, "x") })
	r.mu.Lock()
	for _, user := range users {
		r.users[user].closed = true
		r.saveUserLocked(user)
	}
	r.mu.Unlock()
	runDisk(t, d)
	r, _ = testRecords()
	runDisk(t, loadRecords(t, r, dir))
	each(func(of query.UserResource) {
		if k := r.Known(of, "", "x"); !k.Refused {
			t.Errorf("of %s for %s it is not known any more what was refused: %+v", of.Resource.Resource, of.User, k)
		}
	})
	of.User = "a"
	if !r.Known(madeUp(of, 20), "", "x").Closed {
		t.Error("of further resources something is served")
	}
}
