package fuzzcache

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// change is one write to etcd. States are never changed.
type change struct {
	rev      int64
	resource string
	key      string    // "namespace/name"
	before   *state    // nil: there was none
	after    *state    // nil: a deletion
	at       time.Time // when etcd sent it
}

// history is what etcd had, as it reports itself.
type history struct {
	mu      sync.Mutex
	last    int64                // every change up to here is known
	changes map[string][]*change // by resource, in order
	objects map[string][]*change // by resource and key, in order
	more    chan struct{}        // closed, and replaced, when there is more
	failed  error
}

func objectKey(resource, key string) string { return resource + "/" + key }

// watchEtcd follows all that etcd stores, from its first revision on, until ctx ends.
func watchEtcd(ctx context.Context) (*history, error) {
	url, client, err := env.EtcdClient()
	if err != nil {
		return nil, err
	}
	create := map[string]any{"create_request": map[string]any{
		"key": []byte("/"), "range_end": []byte("0"), "prev_kv": true, "start_revision": 1,
	}}
	body, err := json.Marshal(create)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v3/watch", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("watch etcd: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		_ = res.Body.Close()
		return nil, fmt.Errorf("watch etcd: %s", res.Status)
	}
	h := &history{changes: map[string][]*change{}, objects: map[string][]*change{}, more: make(chan struct{})}
	go func() {
		defer res.Body.Close()
		err := h.read(json.NewDecoder(res.Body))
		h.mu.Lock()
		defer h.mu.Unlock()
		h.failed = err
		close(h.more)
		h.more = make(chan struct{})
	}()
	return h, nil
}

// etcdMessage is what etcd's gateway sends: numbers are strings, bytes are base64.
type etcdMessage struct {
	Result struct {
		Canceled bool
		Events   []struct {
			Type   string
			KV     etcdValue `json:"kv"`
			PrevKV etcdValue `json:"prev_kv"`
		}
	}
}

type etcdValue struct {
	Key   []byte
	Value []byte
	Rev   string `json:"mod_revision"`
}

func (h *history) read(in *json.Decoder) error {
	for {
		var m etcdMessage
		if err := in.Decode(&m); err != nil {
			return err
		}
		if m.Result.Canceled {
			return errors.New("etcd has ended the watch")
		}
		var all []*change
		var last int64
		for _, e := range m.Result.Events {
			rev, err := strconv.ParseInt(e.KV.Rev, 10, 64)
			if err != nil {
				return err
			}
			last = rev
			c, err := newChange(rev, e.KV, e.PrevKV, e.Type == "DELETE")
			if err != nil {
				return fmt.Errorf("%s: %w", e.KV.Key, err)
			}
			if c != nil {
				all = append(all, c)
			}
		}
		h.add(all, last)
	}
}

func (h *history) add(all []*change, last int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range all {
		name := objectKey(c.resource, c.key)
		h.changes[c.resource] = append(h.changes[c.resource], c)
		h.objects[name] = append(h.objects[name], c)
	}
	h.last = max(h.last, last)
	close(h.more)
	h.more = make(chan struct{})
}

// newChange returns nil for what no client here reads.
func newChange(rev int64, now, before etcdValue, deleted bool) (c *change, err error) {
	rest, ok := strings.CutPrefix(string(now.Key), "/registry/")
	if !ok {
		return nil, nil
	}
	for _, r := range resources {
		key, ok := strings.CutPrefix(rest, r.stored+"/")
		if !ok {
			continue
		}
		c := &change{rev: rev, resource: r.name, key: key, at: time.Now()}
		if before.Value != nil {
			old, err := strconv.ParseInt(before.Rev, 10, 64)
			if err != nil {
				return nil, err
			}
			if c.before, err = decodeState(before.Value, old); err != nil {
				return nil, err
			}
		}
		if !deleted {
			c.after, err = decodeState(now.Value, rev)
		}
		return c, err
	}
	return nil, nil
}

// patience is how long anything may take that has to happen at some time.
const patience = 30 * time.Second

// await returns nil once all changes up to rev are known.
func (h *history) await(rev int64) error {
	deadline := time.After(patience)
	for {
		h.mu.Lock()
		last, more, failed := h.last, h.more, h.failed
		h.mu.Unlock()
		switch {
		case last >= rev:
			return nil
		case failed != nil:
			return fmt.Errorf("etcd is not watched any more: %w", failed)
		}
		select {
		case <-more:
		case <-deadline:
			return fmt.Errorf("etcd is at revision %d; an answer names %d", last, rev)
		}
	}
}

func (h *history) now() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

// of are an object's changes.
func (h *history) of(resource, key string) []*change {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.objects[objectKey(resource, key)]
}

// since are a resource's changes after rev.
func (h *history) since(resource string, rev int64) []*change {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.changes[resource]
	i, _ := slices.BinarySearchFunc(all, rev+1, func(c *change, rev int64) int { return int(c.rev - rev) })
	return all[i:]
}

// changed reports whether an object changed at the revision of a state.
func (h *history) changed(r *resource, s *state) bool {
	all := h.of(r.name, s.key())
	_, ok := slices.BinarySearchFunc(all, s.rev, func(c *change, rev int64) int { return int(c.rev - rev) })
	return ok
}

// stateAt is an object's state at rev; nil: there was none.
func stateAt(changes []*change, rev int64) *state {
	i, _ := slices.BinarySearchFunc(changes, rev+1, func(c *change, rev int64) int { return int(c.rev - rev) })
	if i == 0 {
		return nil
	}
	return changes[i-1].after
}

// list is what a query returns at rev, by key.
func (h *history) list(q *query, rev int64) map[string]*state {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[string]*state{}
	for name, changes := range h.objects {
		if changes[0].resource != q.resource.name {
			continue
		}
		if s := stateAt(changes, rev); s != nil && q.selects(s) {
			out[strings.TrimPrefix(name, q.resource.name+"/")] = s
		}
	}
	return out
}
