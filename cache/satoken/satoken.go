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
	// Bounds are those of the node's tokens, and also those of all other users' together:
	// 2,000 and 16 MiB by default. A kubelet with 250 pods has some 500, of 2,000 bytes.
	// Package quota determines who loses first.
	Bounds quota.Bounds
	Logger *slog.Logger // logs damage; by default nothing is logged
}

// Tokens stores the last token for each pod, service account, user and audiences.
type Tokens struct {
	mu      sync.Mutex
	answers *table.Answers[struct{}] // their bodies are bare protobuf
}

// tableName is the name of the store's table.
const tableName = "service-account-tokens"

// maxBody bounds an answer that is stored, in bytes. Answers usually have 2,000.
const maxBody = 64 << 10

// maxUnused is longer than any token is valid.
const maxUnused = 400 * 24 * time.Hour

// touchEvery is the precision of the time of last use: giving a token causes a write at most
// once a day.
const touchEvery = 24 * time.Hour

var tokenRequest = wire.TypeMeta{
	APIVersion: authenticationv1.SchemeGroupVersion.String(),
	Kind:       "TokenRequest",
}

// Open returns the tokens in a table.
func Open(t table.Store, o Options) (*Tokens, error) {
	answers, err := table.OpenAnswers[struct{}](t, table.AnswersOptions{
		Name: tableName, Bounds: cmp.Or(o.Bounds, quota.Bounds{Count: 2000, Bytes: 16 << 20}),
		NodeApart:  true, // a pod without its token does not start again
		WriteEvery: touchEvery, Expired: func(used time.Time) bool { return time.Since(used) > maxUnused },
		Logger: o.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("open service account tokens: %w", err)
	}
	answers.Evict()
	return &Tokens{answers: answers}, nil
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
	k.answers.Put(key, table.Answer[struct{}]{User: a.User, Used: time.Now(), Body: bare})
	return nil
}

// Answer returns the body of the answer, a 201, to a POST of a TokenRequest, in an encoding
// that accept allows. ok is false if no such token was issued to this user, or the request
// cannot be read.
func (k *Tokens) Answer(a Account, request []byte, requestType, accept string) (body []byte, contentType string, ok bool) {
	asked, err := decode(request, requestType)
	if err != nil {
		return nil, "", false
	}
	bare, ok := k.read(k.key(a, asked))
	if !ok {
		return nil, "", false
	}
	issued, err := convert.FromBare(wire.Protobuf, tokenRequest, bare)
	if err != nil {
		return nil, "", false
	}
	contentType, body, err = convert.EncodeBody(accept, issued)
	return body, contentType, err == nil
}

// read returns a token, and marks it as used.
func (k *Tokens) read(key string) (bare []byte, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r, ok := k.answers.Get(key)
	if now := time.Now(); ok && now.Sub(r.Used) > touchEvery {
		r.Used = now
		k.answers.Put(key, r)
	}
	return r.Body, ok
}

// Each calls fn, which must not call the Tokens, with each stored token.
func (k *Tokens) Each(fn func(token string)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key := range k.answers.Entries {
		r, ok := k.answers.Get(key)
		if !ok {
			continue
		}
		if object, err := convert.FromBare(wire.Protobuf, tokenRequest, r.Body); err == nil {
			if issued, ok := object.(*authenticationv1.TokenRequest); ok {
				fn(issued.Status.Token)
			}
		}
	}
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
	return k.answers.Table.Key(append(parts, slices.Compact(audiences)...)...)
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
