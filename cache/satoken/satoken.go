package satoken

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/quota"
	"github.com/edgehub-io/edgehub/cache/table"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// Account is a service account, and who asks for a token of it.
type Account struct{ User, Namespace, Name string }

// Options of Tokens. The zero value is usable.
type Options struct {
	// MaxTokens and MaxBytes bound the tokens of the node, and also those of all other
	// users together: 2,000 and 16 MiB by default. A kubelet with 250 pods has some 500,
	// of 2,000 bytes. Package quota determines who loses first.
	MaxTokens int
	MaxBytes  int64
	MaxUnused time.Duration // 400 days by default: longer than any token is good for
	Logger    *slog.Logger  // of damage; by default nothing is logged
}

// Tokens are the last token of each kind.
type Tokens struct {
	table *table.Table
	opts  Options

	mu    sync.Mutex
	known map[string]known // by key in the table
	node  held
	other held
}

// held is what is bounded together.
type held struct {
	count int
	bytes int64
}

// known is what is known of a token without reading it.
type known struct {
	user string    // whom it was issued to
	used time.Time // when it was kept or last given
	size int64     // of its record
}

// tableName is the one of the store's table.
const tableName = "service-account-tokens"

// maxBody bounds what is kept of one answer, in bytes; usual ones have 2,000.
const maxBody = 64 << 10

// touchEvery is how exactly the last use of a token is known after a restart: giving one
// costs a write at most once a day.
const touchEvery = 24 * time.Hour

var tokenRequest = wire.TypeMeta{
	APIVersion: authenticationv1.SchemeGroupVersion.String(),
	Kind:       "TokenRequest",
}

// Open returns the tokens that t holds.
func Open(t table.Store, o Options) (*Tokens, error) {
	if o.MaxTokens <= 0 {
		o.MaxTokens = 2000
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = 16 << 20
	}
	if o.MaxUnused <= 0 {
		o.MaxUnused = 400 * 24 * time.Hour
	}
	b, err := table.Open(t, tableName, o.Logger)
	if err != nil {
		return nil, fmt.Errorf("open service account tokens: %w", err)
	}
	k := &Tokens{table: b, opts: o, known: make(map[string]known)}
	var unreadable []string
	err = b.All(func(key string, value []byte) {
		r, err := parse(value)
		if err != nil {
			unreadable = append(unreadable, key)
			return
		}
		k.set(key, known{r.user, r.used, int64(len(value))})
	})
	if err != nil {
		return nil, fmt.Errorf("open service account tokens: %w", err)
	}
	b.Delete(append(unreadable, k.forget()...)...)
	return k, nil
}

// Keep remembers the answer of an apiserver, 201, to a POST of a TokenRequest. It keeps
// nothing of the slices. An error says that the token cannot be given later, and why;
// there is nothing to be done about it.
func (k *Tokens) Keep(a Account, request []byte, requestType string, response []byte, responseType string) error {
	if len(response) > maxBody {
		return fmt.Errorf("keep the token of service account %s/%s: an answer of %d bytes: %w", a.Namespace, a.Name, len(response), wire.ErrTooLarge)
	}
	asked, err := decode(request, requestType)
	if err != nil {
		return fmt.Errorf("keep the token of service account %s/%s: read the request: %w", a.Namespace, a.Name, err)
	}
	issued, err := decode(response, responseType)
	if err != nil {
		return fmt.Errorf("keep the token of service account %s/%s: read the answer: %w", a.Namespace, a.Name, err)
	}
	if issued.Status.Token == "" {
		return fmt.Errorf("keep the token of service account %s/%s: %w", a.Namespace, a.Name, errNoToken)
	}
	bare, err := convert.ToBare(wire.Protobuf, issued)
	if err != nil {
		return err
	}
	key := k.key(a, asked)

	k.mu.Lock()
	defer k.mu.Unlock()
	k.putLocked(key, record{used: time.Now(), user: a.User, bare: bare})
	k.table.Delete(k.forget()...)
	return nil
}

// putLocked keeps a token.
func (k *Tokens) putLocked(key string, r record) {
	value := r.bytes()
	k.set(key, known{r.user, r.used, int64(len(value))})
	k.table.Put(key, value)
}

var errNoToken = errors.New("there is none in the answer")

// Answer returns the answer, for a 201, to a POST of a TokenRequest, in an encoding that
// accept allows. ok is false where no such token was issued to this user, or the request
// cannot be read.
func (k *Tokens) Answer(a Account, request []byte, requestType, accept string) (body []byte, contentType string, ok bool) {
	asked, err := decode(request, requestType)
	if err != nil {
		return nil, "", false
	}
	key := k.key(a, asked)
	r, ok := k.read(key, a.User)
	if !ok {
		return nil, "", false
	}
	issued, err := convert.FromBare(wire.Protobuf, tokenRequest, r.bare)
	if err != nil {
		return nil, "", false
	}
	contentType, body, err = convert.EncodeBody(accept, issued)
	return body, contentType, err == nil
}

// Len is the number of tokens.
func (k *Tokens) Len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.known)
}

// read returns the record of a token of a user, and marks it as used.
func (k *Tokens) read(key, user string) (record, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	last, ok := k.known[key]
	if !ok {
		return record{}, false
	}
	value, ok := k.table.Get(key)
	if !ok {
		return record{}, false // for this time: the disk may come round
	}
	r, err := parse(value)
	if err != nil {
		return record{}, false
	}
	if now := time.Now(); now.Sub(last.used) > touchEvery {
		r.used, r.user = now, user
		k.putLocked(key, r)
	}
	return r, true
}

// key stands for all that decides which token answers a request.
func (k *Tokens) key(a Account, asked *authenticationv1.TokenRequest) string {
	parts := []string{a.User, a.Namespace, a.Name, string(asked.UID)}
	bound := asked.Spec.BoundObjectRef
	if bound == nil {
		bound = &authenticationv1.BoundObjectReference{}
	}
	parts = append(parts, bound.Kind, bound.Name, string(bound.UID))
	audiences := slices.Clone(asked.Spec.Audiences)
	slices.Sort(audiences)
	return k.table.Key(append(parts, slices.Compact(audiences)...)...)
}

// set and unset change what is known. The caller holds mu, or is alone.
func (k *Tokens) set(key string, t known) {
	k.unset(key)
	k.known[key] = t
	k.heldBy(t.user).add(1, t.size)
}

func (k *Tokens) unset(key string) {
	if t, ok := k.known[key]; ok {
		k.heldBy(t.user).add(-1, -t.size)
		delete(k.known, key)
	}
}

// heldBy is where a user's tokens count. Nobody's tokens push out the kubelet's, of which
// there are as many as its pods need: without one a pod does not start again.
func (k *Tokens) heldBy(user string) *held {
	if user == quota.Node {
		return &k.node
	}
	return &k.other
}

func (h *held) add(count int, bytes int64) {
	h.count += count
	h.bytes += bytes
}

// forget drops what is too old or too much, and returns its keys. The caller holds mu,
// or is alone.
func (k *Tokens) forget() (keys []string) {
	now := time.Now()
	for key, t := range k.known {
		if now.Sub(t.used) > k.opts.MaxUnused {
			keys = append(keys, key)
			k.unset(key)
		}
	}
	return append(append(keys, k.evict(&k.node)...), k.evict(&k.other)...)
}

// evict drops what is too much of what is bounded together, and returns its keys.
func (k *Tokens) evict(of *held) (keys []string) {
	bounds := quota.Bounds{Count: k.opts.MaxTokens, Bytes: k.opts.MaxBytes}
	if !bounds.Exceeded(of.count, of.bytes) {
		return nil
	}
	items := make([]quota.Item[string], 0, of.count)
	for key, t := range k.known {
		if k.heldBy(t.user) != of {
			continue
		}
		items = append(items, quota.Item[string]{Key: key, User: t.user, Bytes: t.size, Last: t.used.UnixNano()})
	}
	for _, item := range quota.Excess(bounds, items) {
		k.unset(item.Key)
		keys = append(keys, item.Key)
	}
	return keys
}

// decode never says what stands in the body: that may be a token.
func decode(body []byte, contentType string) (*authenticationv1.TokenRequest, error) {
	object, err := convert.DecodeBody(contentType, body, tokenRequest)
	if err != nil {
		for _, known := range []error{convert.ErrMediaType, convert.ErrUnknownType, wire.ErrTruncated, wire.ErrTooLarge} {
			if errors.Is(err, known) {
				return nil, known
			}
		}
		return nil, wire.ErrMalformed
	}
	r, ok := object.(*authenticationv1.TokenRequest)
	if !ok {
		return nil, fmt.Errorf("it is not a TokenRequest of %s: %w", tokenRequest.APIVersion, wire.ErrMalformed)
	}
	return r, nil
}
