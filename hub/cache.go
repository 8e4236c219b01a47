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
	"net/http"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgehub-io/edgehub/cache"
	"github.com/edgehub-io/edgehub/hub/access"
	"github.com/edgehub-io/edgehub/hub/binding"
	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/proxy"
	"github.com/edgehub-io/edgehub/proxy/authn"
	"github.com/edgehub-io/edgehub/proxy/upstream"
)

// openCache opens the cache under --root-dir.
func openCache(c *config.Config, cloud *binding.Binding, r prometheus.Registerer, log *slog.Logger) (*cache.Cache, error) {
	key, err := cacheKey(c)
	if err != nil {
		return nil, err
	}
	kept, err := cache.Open(filepath.Join(c.RootDir, "cache"), cloud, cache.Options{
		Withheld:         cloud.Withheld,
		AwaitMaySend:     cloud.AwaitMaySend,
		Unreachable:      unreachable,
		IsNode:           isNode,
		AsNode:           authn.AsNode,
		Peer:             access.PeerOf,
		NodeName:         c.NodeName,
		PodServers:       podServers(c),
		MaxBytes:         c.CacheMaxBytes,
		Key:              key,
		TokenGrace:       c.OfflineTokenGrace,
		AuthorizationTTL: c.OfflineAuthorizationTTL,
		ReconnectJitter:  c.ReconnectJitter,
		SpoolCount:       cmp.Or(c.EventSpoolMaxCount, -1), // 0 means none here, and the default there
		SpoolBytes:       cmp.Or(c.EventSpoolMaxBytes, -1),
		Registerer:       r,
		Logger:           log,
	})
	if err != nil {
		return nil, fmt.Errorf("--root-dir %s: %w", c.RootDir, err)
	}
	return kept, nil
}

// isNode reports whether a request has the node's identity.
func isNode(ctx context.Context) bool { return authn.IdentityOf(ctx) == authn.Node }

// tenantOf returns who is the tenant of a request, by the tokens that the cache knows. Callers whose tokens are not
// known are one tenant, whose users are their connections' other ends: they cannot be many by their tokens.
func tenantOf(kept *cache.Cache) proxy.Tenant {
	return func(r *http.Request) (tenant, user string) {
		if tenant, user = kept.Tenant(r.Header); tenant == "" {
			user = access.PeerOf(r.Context())
		}
		return tenant, user
	}
}

// podServers are the addresses at which pods reach the hub; none if they do not use it.
func podServers(c *config.Config) []netip.AddrPort {
	var servers []netip.AddrPort
	for _, address := range c.PodAddresses {
		servers = append(servers, netip.AddrPortFrom(address, uint16(c.ProxySecurePort)))
	}
	return servers
}

// unreachable reports whether err means that a request reached no apiserver.
func unreachable(err error) bool {
	lost, ok := errors.AsType[*upstream.UnreachableError](err)
	return ok && !lost.Delivered
}

// cacheKey returns the key that the cache is encrypted with, or nil.
func cacheKey(c *config.Config) ([]byte, error) {
	if c.CacheKeyFile == "" {
		return nil, nil
	}
	key, err := readKey(c.CacheKeyFile)
	if err != nil {
		return nil, fmt.Errorf("--cache-encryption-key-file: %w", err)
	}
	return key, nil
}

// keySize is the size of an AES-256 key, in bytes.
const keySize = 32

// readKey reads a key of keySize bytes, raw or as hexadecimal or base64 text.
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
