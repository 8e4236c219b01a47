package satoken

import (
	"cmp"
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

// Account is a service account, and the user who requests a token for it.
type Account struct{ User, Namespace, Name string }

// Options of Tokens. The zero value is usable.
type Options struct {
	// MaxTokens and MaxBytes bound the tokens of the node, and also those of all other
	// users together: 2,000 and 16 MiB by default. A kubelet with 250 pods has some 500,
	// of 2,000 bytes. Package quota determines who loses first.
	MaxTokens int
	MaxBytes  int64
	MaxUnused time.Duration // 400 days by default: longer than any token is valid
	Logger    *slog.Logger  // logs damage; by default nothing is logged
}

// Tokens stores the last token for each pod, service account, user and audiences.
type Tokens struct {
	table *table.Table
	opts  Options

	mu    sync.Mutex
	known map[string]known // by key in the table
}

// known is a token in memory, without its record.
type known struct {
	user string    // user key of whom it was issued to
	used time.Time // when it was issued or last given
	size int64     // of its record
}

// tableName is the name of the store's table.
const tableName = "service-account-tokens"

// maxBody bounds an answer that is stored, in bytes. Answers usually have 2,000.
const maxBody = 64 << 10

// touchEvery is the precision of the stored time of last use: giving a token causes a write
// at most once a day.
const touchEvery = 24 * time.Hour

var tokenRequest = wire.TypeMeta{
	APIVersion: authenticationv1.SchemeGroupVersion.String(),
	Kind:       "TokenRequest",
}

// Open returns the tokens in a table.
func Open(t table.Store, o Options) (*Tokens, error) {
	o.MaxTokens = cmp.Or(o.MaxTokens, 2000)
	o.MaxBytes = cmp.Or(o.MaxBytes, 16<<20)
	o.MaxUnused = cmp.Or(o.MaxUnused, 400*24*time.Hour)
	b, err := table.Open(t, tableName, o.Logger)
	if err != nil {
		return nil, fmt.Errorf("open service account tokens: %w", err)
	}
	k := &Tokens{table: b, opts: o, known: make(map[string]known)}
	err = b.Load(func(key string, value []byte) error {
		r, err := parse(value)
		if err == nil {
			k.known[key] = known{r.user, r.used, int64(len(value))}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open service account tokens: %w", err)
	}
	b.Delete(k.evictLocked()...)
	return k, nil
}

var errNoToken = errors.New("there is none in the answer")

// Keep stores the answer of an apiserver, 201, to a POST of a TokenRequest. It keeps no
// reference to the slices. After an error the token cannot be given again.
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
	k.table.Delete(k.evictLocked()...)
	return nil
}

func (k *Tokens) putLocked(key string, r record) {
	value := r.bytes()
	k.known[key] = known{r.user, r.used, int64(len(value))}
	k.table.Put(key, value)
}

// Answer returns the body of the answer, a 201, to a POST of a TokenRequest, in an encoding
// that accept allows. ok is false if no such token was issued to this user, or the request
// cannot be read.
func (k *Tokens) Answer(a Account, request []byte, requestType, accept string) (body []byte, contentType string, ok bool) {
	asked, err := decode(request, requestType)
	if err != nil {
		return nil, "", false
	}
	r, ok := k.read(k.key(a, asked), a.User)
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

// read returns the record of a user's token, and marks it as used.
func (k *Tokens) read(key, user string) (record, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	last, ok := k.known[key]
	if !ok {
		return record{}, false
	}
	value, ok := k.table.Get(key)
	if !ok {
		return record{}, false // known stays: the disk may recover
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

// Each calls fn with each stored token.
func (k *Tokens) Each(fn func(token string)) error {
	return k.table.All(func(_ string, value []byte) {
		r, err := parse(value)
		if err != nil {
			return
		}
		if object, err := convert.FromBare(wire.Protobuf, tokenRequest, r.bare); err == nil {
			if issued, ok := object.(*authenticationv1.TokenRequest); ok {
				fn(issued.Status.Token)
			}
		}
	})
}

// key returns the key of the token that answers a request.
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

// evictLocked removes tokens that were not used for too long and those beyond the bounds, and
// returns their keys. The node's tokens have bounds of their own, so that no others displace
// them: a pod without its token does not start again.
func (k *Tokens) evictLocked() (keys []string) {
	now := time.Now()
	var node, others []quota.Item[string]
	for key, t := range k.known {
		item := quota.Item[string]{Key: key, User: t.user, Bytes: t.size, Last: t.used.UnixNano()}
		switch {
		case now.Sub(t.used) > k.opts.MaxUnused:
			keys = append(keys, key)
		case t.user == quota.Node:
			node = append(node, item)
		default:
			others = append(others, item)
		}
	}
	bounds := quota.Bounds{Count: k.opts.MaxTokens, Bytes: k.opts.MaxBytes}
	for _, item := range append(quota.Excess(bounds, node), quota.Excess(bounds, others)...) {
		keys = append(keys, item.Key)
	}
	for _, key := range keys {
		delete(k.known, key)
	}
	return keys
}

// decode reads a TokenRequest. Its errors do not quote the body, which may contain a token.
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
