package view

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/edgehub-io/edgehub/cache/query"
)

// getPod is the node's query for a pod.
func getPod(name string) *query.Query {
	k := keyOfPods(query.NodeUser)
	return &query.Query{User: k.User, Verb: "get", Resource: k.GVR(), Namespace: "ns", Name: name}
}

// Entries are bounded, whoever makes up names. What is forgotten then brings nothing back, and proves nothing.
func TestEntriesAreBounded(t *testing.T) {
	const held = maxNames + maxNames/2 // pods that a view has
	for name, test := range map[string]struct {
		note func(s *Views, of query.UserResource, name, version string)
		pod  int
		want error
	}{
		"a pod that is gone": {func(s *Views, of query.UserResource, name, version string) { s.Gone(of, name, version, "", true) }, 0, ErrDoubtful},
		"a pod in doubt":     {func(s *Views, of query.UserResource, name, version string) { s.Doubt(of, name, version) }, 0, ErrDoubtful},
		"a pod that is refused": {
			func(s *Views, of query.UserResource, name, _ string) { s.Refused(of, name) }, 0, ErrForgotten,
		},
		"a pod that was seen after the list": {
			func(s *Views, of query.UserResource, name, version string) { s.Seen(of, name, version, "") }, held, ErrNeverRead,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, of := newTestViews(t, t.TempDir(), enough), getPod("").UserResource()
			v := s.Acquire(keyOfPods(query.NodeUser))
			defer v.Release()
			members := map[string]string{}
			for i := range held {
				members[fmt.Sprint("p", i)] = "50"
			}
			fillPods(t, v, "", "100", true, members)
			if _, err := s.Seek(getPod(fmt.Sprint("p", held))); !apierrors.IsNotFound(err) {
				t.Fatalf("what the list lacks: %v", err)
			}
			for i := range 3 * maxNames {
				test.note(s, of, fmt.Sprint("ns/p", i), fmt.Sprint(200+i))
			}
			r := s.find(of)
			n := len(r.entries)
			r.unlock()
			if n > maxNames {
				t.Errorf("there are %d entries", n)
			}
			if _, err := s.Seek(getPod(fmt.Sprint("p", test.pod))); !errors.Is(err, test.want) {
				t.Errorf("it is read with %v, want %v", err, test.want)
			}
		})
	}
}

// A URL can name any resource. Those that a user makes up are forgotten, and what is known of others stays.
func TestMadeUpResourcesAreBounded(t *testing.T) {
	dir := t.TempDir()
	s, of := newTestViews(t, dir, enough), getPod("").UserResource()
	v := s.Acquire(keyOfPods(query.NodeUser))
	defer v.Release()
	fillPods(t, v, "", "100", true, map[string]string{"a": "50", "b": "51"})
	s.Refused(of, "ns/a")
	for i := range 3 * maxUserResources {
		other := of
		other.Resource.Group, other.Resource.Resource = fmt.Sprint("made-up-", i), "things"
		s.Refused(other, "x")
	}
	s.Refused(of, "ns/b")
	secret := getPod("a")
	secret.Resource.Resource = "secrets"
	s.Refused(secret.UserResource(), "ns/a")
	n := len(s.allResources())
	if n > maxUserResources {
		t.Errorf("there are %d resources", n)
	}
	if err := s.Check(); err != nil { // stores of made-up groups, too
		t.Error(err)
	}
	if read := reopened(t, s, dir); len(read.objects) != n {
		t.Errorf("after a restart there are %d resources, want %d", len(read.objects), n)
	}
	for _, q := range []*query.Query{getPod("a"), getPod("b"), secret} {
		if _, err := s.Seek(q); !errors.Is(err, ErrDenied) {
			t.Errorf("%s %s is read with %v, though it was refused", q.Resource.Resource, q.Name, err)
		}
	}
}
