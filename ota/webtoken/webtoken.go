// Package webtoken decides which browsers may change something through the node's HTTP API. A program on the
// node asks for a one-time code, a browser exchanges it for a token, and sends that as a header from then on.
// [Tokens.Guard] refuses what a browser sends to change something without a token. Programs need none.
//
// There are no cookies: a browser adds a token to no request of another page.
//
// Codes are in memory only, so a restart of the hub invalidates those that were not used. Tokens survive it
// for the rest of their hours. A file has their hashes: whoever reads it, or a copy of the disk, has no token.
//
// Tokens is safe for concurrent use and starts nothing.
package webtoken

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/edgehub-io/edgehub/cache/durable"
	"github.com/edgehub-io/edgehub/ota/api"
)

const (
	codeLife = 10 * time.Minute
	maxCodes = 20 // that wait to be used
	// tokenLife is a working day: the browser of a shop that was left open changes nothing on the next.
	tokenLife = 12 * time.Hour
	maxTokens = 20
)

var (
	errWrongCode    = errors.New("this code was used before, or is older than 10 minutes")
	errTooManyCodes = fmt.Errorf("%d one-time codes wait to be used: try again in some minutes", maxCodes)
)

// Tokens has the codes and tokens of one hub.
type Tokens struct {
	file      string
	plausible func(time.Time) bool
	log       *slog.Logger

	// mu is held while the file is written, so that it agrees with memory. It is written when there is a
	// new token, or one has expired.
	mu     sync.Mutex
	codes  []secret
	tokens []secret // the oldest first; the content of the file
}

// secret is a code or a token. Those are random and too long to be guessed, so their hash needs no salt.
type secret struct {
	Hash    []byte    `json:"hash"` // SHA-256
	Expires time.Time `json:"expires"`
	// monotonic: so is Expires, and changes of the node's clock have no effect. In the file it is not.
	monotonic bool
}

func hashOf(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}

// find returns the index of the secret with this text, or -1. It takes as long for a wrong text as for one
// that is nearly right.
func find(all []secret, text string) int {
	hash, at := hashOf(text), -1
	for i, one := range all {
		if subtle.ConstantTimeCompare(one.Hash, hash) == 1 {
			at = i
		}
	}
	return at
}

// Open reads the tokens in a file, whose folder must exist. There are none if the file does not exist, or
// cannot be read, which is logged: it must not keep the hub from starting. plausible reports whether a
// clock may show a time: a node without a clock battery boots in 1970.
func Open(file string, plausible func(time.Time) bool, log *slog.Logger) *Tokens {
	t := &Tokens{file: file, plausible: plausible, log: log}
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return t
	}
	if err == nil {
		err = json.Unmarshal(content, &t.tokens)
	}
	if err != nil {
		t.tokens = nil
		log.Warn("browsers lose their tokens, which cannot be read: edgehubctl web prints a new link", "file", file, "err", err)
	}
	t.tidyLocked()
	return t
}

// newCode returns a code that one browser may exchange. It fails if too many wait to be used: to drop the
// oldest instead would let any program invalidate the code that somebody is about to use.
func (t *Tokens) newCode() (api.Code, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.codes = slices.DeleteFunc(t.codes, func(c secret) bool { return !time.Now().Before(c.Expires) })
	if len(t.codes) >= maxCodes {
		return api.Code{}, errTooManyCodes
	}
	text, expires := rand.Text(), time.Now().Add(codeLife) // 130 bits
	t.codes = append(t.codes, secret{hashOf(text), expires, true})
	return api.Code{Code: text, Expires: expires.UTC().Truncate(time.Second)}, nil
}

// exchange returns a token for a code, which is used then. It returns errWrongCode for a code that is not
// known, or expired. If the token cannot be written to disk, the code can be used again. After a crash in
// between there may be a token on disk that nobody has.
func (t *Tokens) exchange(code string) (api.Token, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := find(t.codes, code)
	if at < 0 || !time.Now().Before(t.codes[at].Expires) {
		return api.Token{}, errWrongCode
	}
	t.tidyLocked()
	text, expires := rand.Text()+rand.Text(), time.Now().Add(tokenLife) // 260 bits
	all := append(slices.Clone(t.tokens), secret{hashOf(text), expires, true})
	all = all[max(0, len(all)-maxTokens):]
	if err := t.write(all); err != nil {
		return api.Token{}, fmt.Errorf("keep the token of this browser: %w", err)
	}
	t.tokens = all
	t.codes = slices.Delete(t.codes, at, at+1)
	return api.Token{Token: text, Expires: expires.UTC().Truncate(time.Second)}, nil
}

// valid reports whether a browser with this token may change something.
func (t *Tokens) valid(text string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tidyLocked()
	at := find(t.tokens, text)
	return at >= 0 && t.tokens[at].monotonic
}

// tidyLocked drops tokens that have expired. Those of the file count by a monotonic clock from here on, for no
// longer than a new one: a clock was ahead, or is behind now. While it was not set yet they are neither
// good nor dropped: they may be of yesterday, or good once it is set. What changes is written to disk, so
// that a clock which is set back later revives no token.
func (t *Tokens) tidyLocked() {
	now := time.Now()
	set, changed := t.plausible(now), false
	var all []secret
	for _, one := range t.tokens {
		if !one.monotonic && set {
			left := one.Expires.Sub(now)
			changed = changed || left > tokenLife
			one.Expires, one.monotonic = now.Add(min(left, tokenLife)), true
		}
		if !one.monotonic || now.Before(one.Expires) {
			all = append(all, one)
		}
	}
	changed = changed || len(all) < len(t.tokens)
	t.tokens = all
	if !changed {
		return
	}
	if err := t.write(all); err != nil {
		t.log.Warn("tokens of browsers that have expired stay on disk until the hub can write", "err", err)
	}
}

func (t *Tokens) write(all []secret) error {
	content, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return durable.Write(t.file, content)
}
