package imagepull

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// pullTime is how long the scripted engine takes for an image.
const pullTime = time.Second

// scripted is an engine whose results tests set. The real engine is tested with containerd.
type scripted struct {
	mu     sync.Mutex
	calls  []string
	fail   map[string]*engineapi.Error // by image
	absent bool                        // containerd is
	held   map[string]bool
	lost   map[string]bool // images that Keep does not find
	there  map[string]bool // names on the node
	brings []string        // names that images were imported for
	full   bool            // the disk is, almost
	remove chan string
	most   int // pulls at a time that there were
	now    int
	asked  []engineapi.Request
	takes  map[string]time.Duration // by image; others take pullTime
	starts map[string][]time.Time   // of pulls, by image
	tags   []string                 // that were set

	missing int64 // bytes of each image that Measure is asked about
}

func newScripted() *scripted {
	return &scripted{fail: map[string]*engineapi.Error{}, held: map[string]bool{}, lost: map[string]bool{}, there: map[string]bool{}, remove: make(chan string), takes: map[string]time.Duration{}, starts: map[string][]time.Time{}, missing: 100}
}

// set changes what the engine does from now on.
func (e *scripted) set(change func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change()
}

// setAbsent stops containerd, or starts it again.
func (e *scripted) setAbsent(absent bool) { e.set(func() { e.absent = absent }) }

// die makes pulls of an image fail, each after a time.
func (e *scripted) die(image string, reason engineapi.Reason, takes time.Duration) {
	e.set(func() { e.fail[image], e.takes[image] = engineapi.NewError(reason, errors.New("it is dead")), takes })
}

// heal undoes die.
func (e *scripted) heal(image string) {
	e.set(func() { delete(e.fail, image); delete(e.takes, image) })
}

var (
	errAway = engineapi.NewError(engineapi.RuntimeUnavailable, errors.New("containerd is away"))
	errGone = engineapi.NewError(engineapi.Gone, errors.New("it is gone"))
)

// short is an image's name without what each has.
func short(name string) string {
	return strings.TrimSuffix(strings.TrimPrefix(name, "docker.io/library/"), ":latest")
}

func (e *scripted) note(what, name string) { e.calls = append(e.calls, what+" "+short(name)) }

// took returns the calls since the last call of took.
func (e *scripted) took() (calls string) {
	e.set(func() { calls, e.calls = strings.Join(e.calls, ", "), nil })
	return calls
}

func (e *scripted) Pull(ctx context.Context, r engineapi.Request) (engineapi.Image, error) {
	e.mu.Lock()
	e.note("pull", imageName(r.Image))
	e.asked = append(e.asked, r)
	e.now++
	e.most = max(e.most, e.now)
	e.held[imageName(r.Image)] = true
	e.starts[r.Image] = append(e.starts[r.Image], time.Now())
	takes := cmp.Or(e.takes[r.Image], pullTime)
	e.mu.Unlock()
	r.Progress(engineapi.Progress{Done: 50, Total: 100})
	var err error
	select {
	case <-ctx.Done():
		err = ctx.Err()
	case <-time.After(takes):
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.now--
	if f := e.fail[r.Image]; f != nil && err == nil {
		err = f
	}
	if err != nil {
		return engineapi.Image{}, err
	}
	return imageOf(r.Image), nil
}

func imageOf(image string) engineapi.Image {
	return engineapi.Image{
		Name: imageName(image), ID: digest.FromString("id" + image).String(), Size: 100,
		Target: ocispec.Descriptor{Digest: digest.FromString(image)},
	}
}

// do is a call that needs containerd.
func (e *scripted) do(call func() error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.absent {
		return errAway
	}
	return call()
}

func (e *scripted) Keep(_ context.Context, i engineapi.Image) error {
	e.set(func() { e.note("keep", i.Name) })
	return e.do(func() error {
		if e.lost[i.Name] {
			delete(e.lost, i.Name)
			return errGone
		}
		e.held[i.Name] = true
		return nil
	})
}

func (e *scripted) HasRoom(context.Context) (room bool, err error) {
	err = e.do(func() error { room = !e.full; return nil })
	return room, err
}

// Find finds what tests have put on the node.
func (e *scripted) Find(_ context.Context, name string) (engineapi.Image, error) {
	err := e.do(func() error {
		if !e.there[name] {
			return errGone
		}
		return nil
	})
	if err != nil {
		return engineapi.Image{}, err
	}
	return imageOf(name), nil
}

// Imported returns what tests have brought.
func (e *scripted) Imported(_ context.Context, names []string) (here []string, err error) {
	err = e.do(func() error {
		here = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !slices.Contains(e.brings, name) })
		return nil
	})
	return here, err
}

func (e *scripted) Tag(_ context.Context, i engineapi.Image) error {
	return e.do(func() error { e.tags = append(e.tags, short(i.Name)); return nil })
}

// tagged returns the tags that were set since the last call of tagged.
func (e *scripted) tagged() (tags string) {
	e.set(func() { tags, e.tags = strings.Join(e.tags, ", "), nil })
	return tags
}

func (e *scripted) Release(_ context.Context, name string) error {
	e.set(func() { e.note("release", name); delete(e.held, name) })
	return nil
}

func (e *scripted) Retained(context.Context) (held []string, err error) {
	err = e.do(func() error { held = slices.Sorted(maps.Keys(e.held)); return nil })
	return held, err
}

func (e *scripted) Removals(ctx context.Context, each func(string)) {
	for {
		select {
		case <-ctx.Done():
			return
		case name := <-e.remove:
			each(name)
		}
	}
}
