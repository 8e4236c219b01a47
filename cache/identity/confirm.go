package identity

import (
	"context"
	"time"

	"github.com/edgehub-io/edgehub/cache/quota"
)

// holder is who has a token: a user in one pod, by its UID, or anywhere else.
type holder struct{ key, pod string }

// secret is a token in memory, where it can be reviewed again. It is not on disk here: after a
// restart of the hub it is known when it is used, or by Recall.
type secret struct {
	text   string
	pod    string  // UID; "" if it is bound to none
	issued float64 // in Unix seconds; 0 if unknown
}

func secretOf(token string) secret {
	c := claimsOf(token)
	return secret{token, c.Kubernetes.Pod.UID, c.Issued}
}

// Recall lets Confirm review a token that is known, and that was not used since a restart of the
// hub. Of an unknown token it keeps nothing.
func (t *Tokens) Recall(token string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.recallLocked(t.tokens[t.hash(token)], token)
}

func (t *Tokens) recallLocked(r *record, token string) {
	if r != nil && r.secret.text == "" {
		r.secret = secretOf(token)
	}
}

// asked returns when an apiserver was last asked for the token's user.
func (r *record) asked() time.Time {
	if r.confirmed.After(r.reviewed) {
		return r.confirmed
	}
	return r.reviewed
}

// Confirm has one token reviewed again, which is forgotten if it is refused. It also forgets
// the tokens that could not be reviewed for long; see quota.Turns. It reports whether there was one to
// review.
//
// Besides the tokens that are in use, these are each holder's newest: a pod that seldom
// reads must be able to without the cloud. A token that has expired is not reviewed: kubelet may
// not have renewed it yet, if the cloud has just come back.
func (t *Tokens) Confirm(ctx context.Context, turns quota.Turns) bool {
	now := time.Now()
	t.mu.Lock()
	newest := t.newestLocked()
	all := make([]quota.Asked[string], 0, len(t.tokens))
	for h, r := range t.tokens {
		inUse := r.used > r.asked().UnixNano() || newest[holder{r.key, r.secret.pod}] == r
		expired := !r.expires.IsZero() && now.After(r.expires)
		all = append(all, quota.Asked[string]{Key: h, User: r.key, Last: r.asked(), Wanted: r.secret.text != "" && inUse && !expired})
	}
	h, ok, forget := quota.Next(turns, all, now)
	for _, old := range forget {
		t.removeLocked(old)
	}
	if !ok {
		t.mu.Unlock()
		return false
	}
	r := t.tokens[h]
	r.confirmed = now
	token := &Token{r.secret.text, h}
	c, isNew := t.callLocked(token)
	t.mu.Unlock()
	_, _ = t.await(ctx, c, isNew, token) // the review itself forgets the token
	return true
}

// newestLocked returns the token of each holder that was issued last, or if that is unknown used.
func (t *Tokens) newestLocked() map[holder]*record {
	newest := make(map[holder]*record)
	for _, r := range t.tokens {
		who := holder{r.key, r.secret.pod}
		if r.newerThan(newest[who]) {
			newest[who] = r
		}
	}
	return newest
}

// newerThan reports whether r is in memory, and newer than old, which may be nil.
func (r *record) newerThan(old *record) bool {
	return r.secret.text != "" && (old == nil || r.secret.issued > old.secret.issued ||
		r.secret.issued == old.secret.issued && r.used > old.used)
}

// Usable returns the token of each user that was issued last, of those that are in memory and have not
// expired. They are in memory once they were used since the start of the hub.
func (t *Tokens) Usable() map[string]*Token {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	newest, tokens := map[string]*record{}, map[string]*Token{}
	for h, r := range t.tokens {
		if expired := !r.expires.IsZero() && now.After(r.expires); !expired && r.newerThan(newest[r.key]) {
			newest[r.key], tokens[r.key] = r, &Token{r.secret.text, h}
		}
	}
	return tokens
}
