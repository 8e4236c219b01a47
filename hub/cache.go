package hub

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgehub-io/edgehub/cache"
	"github.com/edgehub-io/edgehub/hub/access"
	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/ota/nodeapi"
	"github.com/edgehub-io/edgehub/proxy"
)

// openCache opens the cache under --root-dir.
func openCache(c *config.Config, upstream *proxy.Upstream, r prometheus.Registerer, log *slog.Logger) (*cache.Cache, error) {
	var key []byte
	if c.CacheKeyFile != "" {
		var err error
		if key, err = readKey(c.CacheKeyFile); err != nil {
			return nil, fmt.Errorf("--cache-encryption-key-file: %w", err)
		}
	}
	kept, err := cache.Open(filepath.Join(c.RootDir, "cache"), upstream, cache.Options{
		Unreachable:      unreachable,
		IsNode:           func(ctx context.Context) bool { return proxy.IdentityOf(ctx) == proxy.Node },
		AsNode:           proxy.AsNode,
		Peer:             access.PeerOf,
		NodeName:         c.NodeName,
		MaxBytes:         c.CacheMaxBytes,
		Key:              key,
		TokenGrace:       c.OfflineTokenGrace,
		AuthorizationTTL: c.OfflineAuthorizationTTL,
		ReconnectJitter:  c.ReconnectJitter,
		SpoolCount:       cmp.Or(c.EventSpoolMaxCount, -1), // 0 is none here, and the default there
		SpoolBytes:       cmp.Or(c.EventSpoolMaxBytes, -1),
		Registerer:       r,
		Logger:           log,
	})
	if err != nil {
		return nil, fmt.Errorf("--root-dir %s: %w", c.RootDir, err)
	}
	return kept, nil
}

// unreachable reports whether err says that a request reached no apiserver.
func unreachable(err error) bool {
	var lost *proxy.UnreachableError
	return errors.As(err, &lost) && !lost.Delivered
}

// keySize is that of an AES-256 key, in bytes.
const keySize = 32

// readKey reads a key of 32 bytes: as they are, or as hexadecimal or base64 text.
func readKey(file string) ([]byte, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if len(raw) == keySize {
		return raw, nil
	}
	text := string(bytes.TrimSpace(raw))
	for _, decode := range []func(string) ([]byte, error){hex.DecodeString, base64.StdEncoding.DecodeString} {
		if key, err := decode(text); err == nil && len(key) == keySize {
			return key, nil
		}
	}
	return nil, fmt.Errorf("%s has no key of %d bytes, as they are, or in hexadecimal or base64: make one with `openssl rand -hex %[2]d`", file, keySize)
}

// offline says since when the node cannot reach the cloud, or nothing.
func (h *Hub) offline() string {
	state := h.upstream.State()
	switch {
	case state.Refused:
		return h.creds.Refused(state)
	case state.Up:
		return ""
	}
	return fmt.Sprintf("offline since %s: no apiserver can be reached, and the node is served from the cache",
		state.Since.UTC().Format(time.RFC3339))
}

// nodeIsAway reports whether the node cannot reach the cloud, be it that nobody can, or
// that it is not let in.
func (h *Hub) nodeIsAway() bool {
	select {
	case <-h.upstream.Lost(proxy.AsNode(context.Background())):
		return true
	default:
		return false
	}
}

// cacheState is what GET /debug/cache shows.
type cacheState struct {
	Cloud nodeapi.CloudState `json:"cloud"`
	Views []cache.ViewState  `json:"views"`
}

func (h *Hub) cacheState() cacheState {
	up := h.upstream.State()
	state := cacheState{Cloud: nodeapi.CloudState{Up: up.Up, Since: up.Since}, Views: h.cache.State()}
	for _, s := range up.Servers {
		one := nodeapi.APIServerState{Address: s.Address, Up: s.Up, Since: s.Since}
		if s.Err != nil {
			one.Error = s.Err.Error()
		} else if s.Refused != nil {
			one.Error = s.Refused.Error()
		}
		state.Cloud.APIServers = append(state.Cloud.APIServers, one)
	}
	return state
}
