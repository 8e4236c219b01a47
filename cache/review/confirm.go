package review

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/confirm"
)

// Question is a review as it was posted.
type Question struct {
	Resource schema.GroupVersionResource
	Body     []byte
	Type     string // of the body
}

// Confirm asks one question again by post, which returns the body and content type of an
// apiserver's 201, and forgets the stored answer if the new one is no. It also forgets the answers
// that could not be asked for since the cloud came, for long; see package confirm. It reports
// whether there was one to ask for.
//
// The answer is good as long as before: its TTL begins when the node itself asks.
func (k *Reviews) Confirm(since time.Time, post func(*Question) (answer []byte, contentType string, err error)) bool {
	key, q := k.next(since)
	if q == nil {
		return false
	}
	body, contentType, err := post(q)
	if err != nil {
		return true // it is asked again later
	}
	answered, err := decode(q.Resource, body, contentType)
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.answers.Entries[key]
	switch {
	case e == nil || err != nil:
	case !answered.positive:
		k.answers.Delete(key)
	default:
		_ = k.keepLocked(key, answered, e.Used, asked{Token: e.About.Token, question: q}) // without it the answer stands
	}
	return true
}

// next returns the question to ask now, or nil, and forgets the answers that are due for it.
func (k *Reviews) next(since time.Time) (string, *Question) {
	k.mu.Lock()
	defer k.mu.Unlock()
	items := make([]confirm.Item[string], 0, len(k.answers.Entries))
	for key, e := range k.answers.Entries {
		items = append(items, confirm.Item[string]{Key: key, User: e.User, Asked: e.About.at, Wanted: e.About.question != nil})
	}
	now := time.Now()
	key, ok, forget := confirm.Next(items, since, now)
	k.answers.Delete(forget...)
	if !ok {
		return "", nil
	}
	about := &k.answers.Entries[key].About
	about.at = now
	return key, about.question
}
