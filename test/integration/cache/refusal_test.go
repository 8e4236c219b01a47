package cache

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
)

// readAll reads ConfigMaps that do not exist, several at once.
func (c *client) readAll(t *testing.T, s *space, from, to, status int) {
	t.Helper()
	var readers sync.WaitGroup
	for k := range 8 {
		readers.Go(func() {
			for i := from + k; i < to; i += 8 {
				a := c.try(t.Context(), request{path: s.one(fmt.Sprintf("other-%d", i)), accept: asJSON})
				if a.status != status {
					t.Errorf("GET of another: want %d; got %v", status, a)
				}
			}
		})
	}
	readers.Wait()
}

// defect 12: who was refused an object by a GET does not read it by a GET, in no
// representation and from no list, however many others were refused since; until a GET of it
// is let through.
func TestARefusalIsNotForgotten(t *testing.T) {
	t.Parallel()
	forms := []string{protobuf, asJSON, metaList[:len(protobuf)] + ";as=PartialObjectMetadata;v=v1;g=meta.k8s.io"}
	for _, others := range []int{0, 300, 2000} {
		t.Run(fmt.Sprint(others, " others"), func(t *testing.T) {
			t.Parallel()
			h, s := newHub(t), newSpace(t)
			s.fill("c", 2)
			alice := h.as(s.account("alice"))
			alice.servedList(t, s.path, protobuf)
			for _, accept := range []string{protobuf, asJSON} {
				alice.get(t, s.one("c-000"), accept)
			}
			s.forbid("alice")
			alice.refused(t, request{path: s.one("c-000"), accept: asJSON}, http.StatusForbidden)
			alice.readAll(t, s, 0, others, http.StatusForbidden)
			refused := func(t *testing.T) {
				t.Helper()
				for _, accept := range forms {
					alice.refused(t, request{path: s.one("c-000"), accept: accept}, http.StatusServiceUnavailable)
				}
				alice.servedList(t, s.path, protobuf) // to list is another verb
			}
			h.afterwards(t, refused)
			h.connect()
			s.allow("alice")
			alice.get(t, s.one("c-000"), asJSON)
			h.afterwards(t, func(t *testing.T) {
				for _, accept := range forms {
					alice.get(t, s.one("c-000"), accept)
				}
			})
		})
	}
}
