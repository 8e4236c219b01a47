package review

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/identity"
	"github.com/edgehub-io/edgehub/cache/quota"
	"github.com/edgehub-io/edgehub/cache/table"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// Options of Reviews.
type Options struct {
	// TTL is how long an answer is repeated. With 0 no answer is stored, and every question
	// is answered with no.
	TTL time.Duration
	// Grace is how long after its expiry a token is still its user's; 0 is the whole outage. See
	// identity.Options.
	Grace time.Duration
	// Bounds are those of the answers about all users together, with the questions in memory:
	// 1,000 and 4 MiB by default. An answer has some 500 bytes, a question up to 2,000, and a
	// user of a kubelet's API needs two to ten.
	Bounds quota.Bounds
	Logger *slog.Logger // logs damage; by default nothing is logged
}

// Reviews are the stored answers.
type Reviews struct {
	opts Options

	mu     sync.Mutex
	clock  *clock
	marked time.Time // the clock, as stored
	// answers have the status as JSON. The user is the reviewed one, without a UID, which does
	// not matter for the quota; Used is when an apiserver last gave the answer, by clock.
	answers *table.Answers[asked]
}

// asked is about the question of an answer, which is in memory only, since the token is not on disk.
type asked struct {
	// Token is the key of the token under review, a salted hash; "" in a SubjectAccessReview. It is on disk, too.
	Token    string    `json:"token,omitempty"`
	at       time.Time // when an apiserver was last asked; zero after a restart
	question *Question // nil after a restart
}

const (
	// tableName is the name of the store's table.
	tableName = "reviews"
	// keyClock is the key of the last known time of the clock. All others are hashes.
	keyClock = "clock"

	// maxBody bounds a question and its answer, in bytes. They usually have 2,000.
	maxBody = 64 << 10

	// writesPerTTL bounds how often an answer that is confirmed again and again, as for a
	// scraper of metrics, is written within its TTL. It is also the precision of its age
	// after a restart.
	writesPerTTL = 24
)

// Open returns the answers in a table that have not expired.
func Open(t table.Store, o Options) (*Reviews, error) {
	k := &Reviews{opts: o}
	answers, err := table.OpenAnswers[asked](t, table.AnswersOptions{
		Name: tableName, Bounds: cmp.Or(o.Bounds, quota.Bounds{Count: 1000, Bytes: 4 << 20}),
		WriteEvery: o.TTL / writesPerTTL, Expired: k.expired, Logger: o.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("open the kept reviews: %w", err)
	}
	if value, ok := answers.Table.Get(keyClock); ok {
		_ = k.marked.UnmarshalText(value) // without it, the answers show the time
	}
	for _, e := range answers.Entries {
		if e.Used.After(k.marked) {
			k.marked = e.Used
		}
	}
	k.clock, k.answers = newClock(k.marked), answers
	answers.Evict()
	return k, nil
}

// expired reports whether an answer that was given at a time is not repeated any more.
func (k *Reviews) expired(given time.Time) bool { return k.clock.now().Sub(given) >= k.opts.TTL }

// Keep stores the answer of an apiserver, 201, to a review that was posted to a resource, or
// deletes the stored one. It keeps no reference to the slices. After an error the answer
// cannot be repeated.
func (k *Reviews) Keep(resource schema.GroupVersionResource, request []byte, requestType string, response []byte, responseType string) error {
	if len(request) > maxBody || len(response) > maxBody {
		return fmt.Errorf("keep a review of %d bytes, and its answer of %d: %w", len(request), len(response), wire.ErrTooLarge)
	}
	q, err := decode(resource, request, requestType)
	if err != nil {
		return err
	}
	answered, err := decode(resource, response, responseType)
	if err != nil {
		return err
	}
	key := k.answers.Table.Key(q.parts...)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.opts.TTL <= 0 || !answered.positive {
		k.answers.Delete(key)
		return nil
	}
	return k.keepLocked(key, answered, k.clock.now(), asked{Token: k.keyOf(q.token), question: &Question{resource, bytes.Clone(request), requestType}})
}

// keepLocked stores a yes that was given at a time.
func (k *Reviews) keepLocked(key string, answered *question, given time.Time, about asked) error {
	status, err := json.Marshal(answered.status)
	if err != nil {
		return err
	}
	about.at = time.Now()
	k.answers.Put(key, table.Answer[asked]{
		User: identity.User{Name: answered.user}.Key(), Used: given, Body: status,
		About: about, Extra: len(about.question.Body),
	})
	return nil
}

// keyOf returns what is stored of a token.
func (k *Reviews) keyOf(token string) string {
	if token == "" {
		return ""
	}
	return k.answers.Table.Key(kindToken, token)
}

// Refused forgets that a token is anybody's, for whatever audiences, and, if none of the user's others is
// known here, what the user may do.
func (k *Reviews) Refused(token, userName string) {
	key, user := k.keyOf(token), identity.User{Name: userName}.Key()
	k.mu.Lock()
	defer k.mu.Unlock()
	var of, rights []string
	others := false
	for name, e := range k.answers.Entries {
		switch {
		case e.About.Token == key:
			of = append(of, name)
		case e.User == user && e.About.Token == "":
			rights = append(rights, name)
		case e.User == user:
			others = true
		}
	}
	if others {
		rights = nil
	}
	k.answers.Delete(append(of, rights...)...)
}

// Answer returns the body of the answer, a 201, to a review that was posted to a resource, in
// an encoding that accept allows: the stored answer, or else no, with the reason why. An
// error means that the review cannot be read, or that no encoding is accepted.
func (k *Reviews) Answer(resource schema.GroupVersionResource, request []byte, requestType, accept, why string) (body []byte, contentType string, err error) {
	q, err := decode(resource, request, requestType)
	if err != nil {
		return nil, "", err
	}
	status := k.status(k.answers.Table.Key(q.parts...))
	if status != nil && identity.Expired(q.token, k.opts.Grace, time.Now()) {
		status, why = nil, "edgehub: "+identity.ErrExpired.Error()
	}
	return q.answer(status, why, accept)
}

// status returns the stored status, or nil.
func (k *Reviews) status(key string) []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.answers.Entries[key]
	if e == nil {
		return nil
	}
	if k.expired(e.Used) {
		k.answers.Delete(key)
		return nil
	}
	k.markLocked(k.clock.now())
	r, _ := k.answers.Get(key)
	return r.Body
}

// markLocked stores the time, so that answers do not last longer after a restart with a
// clock that was set back.
func (k *Reviews) markLocked(now time.Time) {
	if now.Sub(k.marked) < min(k.opts.TTL/writesPerTTL, time.Minute) {
		return
	}
	if value, err := now.MarshalText(); err == nil {
		k.answers.Table.Put(keyClock, value)
		k.marked = now
	}
}
