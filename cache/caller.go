package cache

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/edgehub-io/edgehub/cache/quota"
	"github.com/edgehub-io/edgehub/cache/store"
)

// nodeUser is whom the node's own identity counts as.
const nodeUser = quota.Node

const (
	tableMeta   = "meta"
	keySalt     = "salt"
	tableTokens = "tokens"

	// maxTokens bounds how many accepted tokens are remembered: a node has at
	// most some hundred pods, each with a token that is renewed once an hour.
	maxTokens = 4096
	// touchEvery is how often it is noted again that a token is still accepted.
	touchEvery = time.Hour
)

// callers knows who callers are: the node, or whomever a bearer token was
// accepted as. A token that was never accepted stands for nobody while the cloud
// is away. It is safe for concurrent use.
type callers struct {
	isNode func(context.Context) bool
	grace  time.Duration // beyond a token's expiry; 0 is without end
	disk   *disk
	now    func() time.Time

	mu     sync.Mutex
	salt   []byte
	tokens map[string]token // by salted hash
}

// token is what is remembered of an accepted bearer token.
type token struct {
	User     string    `json:"user"`
	Expires  time.Time `json:"expires,omitzero"`
	Accepted time.Time `json:"accepted"` // last noted
}

// caller is who sent a request.
type caller struct {
	user    string
	hash    string // of the bearer token; empty for the node
	expires time.Time
}

// loadSalt returns the random bytes that all names and hashes on disk are made
// with. Where there are none, those of before stay, or new ones are made.
func loadSalt(d *disk, before []byte) ([]byte, error) {
	salt, err := d.Get(tableMeta, keySalt)
	if err == nil && len(salt) == sha256.Size {
		return salt, nil
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrCorrupt) {
		return nil, fmt.Errorf("read cache: %w", err)
	}
	if before == nil {
		before = make([]byte, sha256.Size)
		rand.Read(before) // never fails
	}
	return before, d.Put(store.Pair{Bucket: tableMeta, Key: keySalt, Value: before})
}

// load reads the tokens that were accepted before, which were hashed with salt.
func (c *callers) load(salt []byte) error {
	tokens := map[string]token{}
	err := rangeAll(c.disk, tableTokens, func(key string, value []byte) {
		var t token
		if json.Unmarshal(value, &t) == nil {
			tokens[key] = t
		}
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if bytes.Equal(salt, c.salt) { // another file has taken the place of one that knew them
		for hash, t := range c.tokens {
			if _, ok := tokens[hash]; !ok {
				tokens[hash] = t
				c.putLocked(hash, t)
			}
		}
	}
	c.salt, c.tokens = salt, tokens
	return err
}

// of tells who sent r. It says no for callers that the cache does not serve:
// those that act for somebody else, or that are known by other means than a
// bearer token.
func (c *callers) of(r *http.Request) (caller, bool) {
	for name := range r.Header {
		if strings.HasPrefix(name, "Impersonate-") {
			return caller{}, false
		}
	}
	if c.isNode(r.Context()) {
		return caller{user: nodeUser}, true
	}
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return caller{}, false
	}
	scheme, secret, ok := strings.Cut(values[0], " ")
	secret = strings.TrimSpace(secret)
	if !ok || !strings.EqualFold(scheme, "Bearer") || secret == "" {
		return caller{}, false
	}
	mac := hmac.New(sha256.New, c.saltNow())
	mac.Write([]byte(secret))
	who := caller{hash: hex.EncodeToString(mac.Sum(nil))}
	who.user, who.expires = subject(secret)
	if who.user == "" {
		who.user = "token:" + who.hash
	}
	return who, true
}

func (c *callers) saltNow() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.salt
}

// subject reads whom a JSON Web Token is about, and until when. That is only
// worth something once an apiserver, which checks the signature, has accepted
// the token.
func subject(secret string) (user string, expires time.Time) {
	parts := strings.Split(secret, ".")
	if len(parts) != 3 {
		return "", time.Time{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", time.Time{}
	}
	var claims struct {
		Issuer  string  `json:"iss"`
		Subject string  `json:"sub"`
		Expires float64 `json:"exp"`
	}
	if json.Unmarshal(payload, &claims) != nil || claims.Subject == "" {
		return "", time.Time{}
	}
	if claims.Expires > 0 {
		expires = time.Unix(int64(claims.Expires), 0)
	}
	return "jwt:" + claims.Issuer + "|" + claims.Subject, expires
}

// accepted notes that an apiserver took the caller for whom it says it is.
func (c *callers) accepted(who caller) {
	if who.hash == "" {
		return
	}
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if t, ok := c.tokens[who.hash]; ok && now.Sub(t.Accepted).Abs() < touchEvery {
		return
	}
	t := token{User: who.user, Expires: who.expires, Accepted: now}
	c.tokens[who.hash] = t
	c.putLocked(who.hash, t)
	if len(c.tokens) > maxTokens {
		_ = c.disk.Put(c.forgetOldestLocked()...) // names are valid
	}
}

func (c *callers) putLocked(hash string, t token) {
	value, err := json.Marshal(t)
	if err != nil {
		return // times beyond the year 9999
	}
	_ = c.disk.Put(store.Pair{Bucket: tableTokens, Key: hash, Value: value}) // the name is valid
}

// forgetOldestLocked makes room, for some time.
func (c *callers) forgetOldestLocked() []store.Pair {
	hashes := make([]string, 0, len(c.tokens))
	for hash := range c.tokens {
		hashes = append(hashes, hash)
	}
	slices.SortFunc(hashes, func(a, b string) int { return c.tokens[a].Accepted.Compare(c.tokens[b].Accepted) })
	var pairs []store.Pair
	for _, hash := range hashes[:len(hashes)/8] {
		delete(c.tokens, hash)
		pairs = append(pairs, store.Pair{Bucket: tableTokens, Key: hash})
	}
	return pairs
}

// refused notes that an apiserver did not know the caller.
func (c *callers) refused(who caller) {
	if who.hash == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.tokens[who.hash]; ok {
		delete(c.tokens, who.hash)
		_ = c.disk.Put(store.Pair{Bucket: tableTokens, Key: who.hash}) // the name is valid
	}
}

// errStranger is returned for a token that was never accepted.
var errStranger = errors.New("this bearer token was never accepted by an apiserver through this hub, so nothing is known of its holder")

// errExpired is returned for a token whose grace is over.
var errExpired = errors.New("this bearer token has expired, and --offline-token-grace has passed since")

// known returns nil if the caller may read offline what it read online.
func (c *callers) known(who caller) error {
	if who.hash == "" {
		return nil
	}
	c.mu.Lock()
	t, ok := c.tokens[who.hash]
	c.mu.Unlock()
	switch {
	case !ok || t.User != who.user:
		return errStranger
	case c.grace > 0 && !t.Expires.IsZero() && c.now().After(t.Expires.Add(c.grace)):
		return errExpired
	}
	return nil
}

// rangeAll calls fn for each key of a table, and removes damaged ones.
func rangeAll(d *disk, table string, fn func(key string, value []byte)) error {
	from := ""
	for {
		err := d.Range(table, from, func(key string, value []byte) error {
			fn(key, value)
			return nil
		})
		var damaged *store.Error
		if err == nil || !errors.As(err, &damaged) || !errors.Is(err, store.ErrCorrupt) || damaged.Name == "" || damaged.Name < from {
			return err
		}
		if err := d.Put(store.Pair{Bucket: table, Key: damaged.Name}); err != nil {
			return err
		}
		from = damaged.Name + "\x00"
	}
}
