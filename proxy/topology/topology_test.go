package topology_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/proxy/topology"
)

func name(s string) types.NamespacedName {
	namespace, name, _ := strings.Cut(s, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// annotated returns what is read of a Service.
func annotated(t corev1.ServiceType, annotations map[string]string) topology.Service {
	return topology.ServiceOf(t, func(key string) (string, bool) {
		v, ok := annotations[key]
		return v, ok
	})
}

func keys(value string) topology.Service {
	return annotated(corev1.ServiceTypeClusterIP, map[string]string{topology.KeysAnnotation: value})
}

// newState returns the State of node n1 that knows its Services, as of version 100, and place.
func newState(t *testing.T, labels map[string]string, services map[string]topology.Service) *topology.State {
	t.Helper()
	s := topology.New("n1", slog.New(slog.DiscardHandler))
	all := map[types.NamespacedName]topology.Versioned{}
	for n, service := range services {
		all[name(n)] = topology.Versioned{Service: service, Version: "10"}
	}
	s.SetServices(all, "100")
	s.SetNode(labels, "50")
	return s
}

var inPool = map[string]string{corev1.LabelTopologyZone: "z1", topology.PoolLabel: "p1"} //nolint:gochecknoglobals // a constant

func TestEndpointsRemainByTheAnnotation(t *testing.T) {
	type endpoint struct{ node, zone string }
	here, sameZone, samePool, far, nowhere := endpoint{"n1", "z1"}, endpoint{"n2", "z1"}, endpoint{"n3", "z9"}, endpoint{"n4", "z9"}, endpoint{}
	all := []endpoint{here, sameZone, samePool, far, nowhere}
	for description, tt := range map[string]struct {
		value   string
		labels  map[string]string
		service string
		want    []endpoint
	}{
		"none":                             {"", inPool, "a/s", all},
		"this node":                        {"kubernetes.io/hostname", inPool, "a/s", []endpoint{here}},
		"the zone":                         {"topology.kubernetes.io/zone", inPool, "a/s", []endpoint{here, sameZone}},
		"the zone by OpenYurt's name":      {"kubernetes.io/zone", inPool, "a/s", []endpoint{here, sameZone}},
		"the pool":                         {"openyurt.io/nodepool", inPool, "a/s", []endpoint{here, samePool}},
		"blanks around it":                 {" openyurt.io/nodepool ", inPool, "a/s", []endpoint{here, samePool}},
		"a node without a zone":            {"kubernetes.io/zone", nil, "a/s", []endpoint{here}},
		"a node without a pool":            {"openyurt.io/nodepool", nil, "a/s", []endpoint{here}},
		"a value that nothing defines":     {"openyurt.io/continent", inPool, "a/s", all},
		"a list of values":                 {"kubernetes.io/hostname,openyurt.io/nodepool", inPool, "a/s", all},
		"another namespace's":              {"kubernetes.io/hostname", inPool, "b/s", all},
		"the apiserver's is never touched": {"kubernetes.io/hostname", inPool, "default/kubernetes", all},
	} {
		t.Run(description, func(t *testing.T) {
			s := newState(t, tt.labels, map[string]topology.Service{"a/s": keys(tt.value), "default/kubernetes": keys(tt.value)})
			s.SetMembers("p1", map[string]bool{"n1": true, "n3": true}, "60")
			var got []endpoint
			keep := s.Endpoints(name(tt.service))
			for _, e := range all {
				if keep == nil || keep(e.node, e.zone) {
					got = append(got, e)
				}
			}
			if len(got) != len(tt.want) {
				t.Fatalf("got %v, want %v", got, tt.want)
			}
			for i := range got {
				if got[i] != tt.want[i] {
					t.Errorf("got %v, want %v", got, tt.want)
				}
			}
		})
	}
}

func TestNoEndpointIsLeftOutForAPoolThatIsNotKnown(t *testing.T) {
	s := newState(t, inPool, map[string]topology.Service{"a/s": keys("openyurt.io/nodepool")})
	if s.Endpoints(name("a/s")) != nil {
		t.Error("before it was read")
	}
	s.MembersRefused("p1")
	if s.Endpoints(name("a/s")) != nil {
		t.Error("when it may not be read")
	}
	s.SetMembers("another", map[string]bool{"n9": true}, "60")
	if s.Endpoints(name("a/s")) != nil {
		t.Error("when another pool was read")
	}
	s.SetMembers("p1", map[string]bool{"n1": true}, "60")
	if s.Endpoints(name("a/s")) == nil {
		t.Error("and not afterwards")
	}
}

func TestNodePortsListenByTheAnnotation(t *testing.T) {
	for value, listens := range map[string]bool{
		"p1": true, "p2,p1": true, "*": true, "*,-p2": true, "-p2,*": true, "p1,-p1": true,
		"": false, "-p1": false, "-p1,*": false, "*,-p1": false, "p2": false, "-p2": false, "-p1,p1": false, "p": false, "p11": false,
		"-": false, ",,": false, "-*": false, "*,": true,
		strings.Repeat("x,", 100_000): false, strings.Repeat("x,", 100_000) + "p1": true,
		strings.Join([]string{" p2", "p1 "}, " , "): true,
	} {
		for kind, hasPorts := range map[corev1.ServiceType]bool{
			corev1.ServiceTypeNodePort: true, corev1.ServiceTypeLoadBalancer: true, corev1.ServiceTypeClusterIP: false, corev1.ServiceTypeExternalName: false,
		} {
			service := annotated(kind, map[string]string{topology.ListenAnnotation: value})
			s := newState(t, inPool, nil)
			if got := s.Isolated(name("a/s"), &service); got != (hasPorts && !listens) {
				t.Errorf("%.40q on %s: isolated %v", value, kind, got)
			}
			if newState(t, nil, nil).Isolated(name("a/s"), &service) {
				t.Errorf("%.40q isolates on a node without a pool", value)
			}
		}
	}
	plain := annotated(corev1.ServiceTypeNodePort, nil)
	if newState(t, inPool, nil).Isolated(name("a/s"), &plain) {
		t.Error("a Service without the annotation is isolated")
	}
}

func TestOnlyAnnotatedLoadBalancersAreDiscarded(t *testing.T) {
	s := newState(t, nil, nil)
	for _, tt := range []struct {
		service string
		kind    corev1.ServiceType
		value   string
		want    bool
	}{
		{"a/s", corev1.ServiceTypeLoadBalancer, "true", true},
		{"a/s", corev1.ServiceTypeLoadBalancer, "True", false},
		{"a/s", corev1.ServiceTypeLoadBalancer, "", false},
		{"a/s", corev1.ServiceTypeNodePort, "true", false},
		{"default/kubernetes", corev1.ServiceTypeLoadBalancer, "true", false},
	} {
		service := annotated(tt.kind, map[string]string{topology.DiscardAnnotation: tt.value})
		if got := s.Discarded(name(tt.service), &service); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

// changedSince returns the Services whose slices, or which themselves, are to be read otherwise,
// and the generation now.
func changedSince(t *testing.T, s *topology.State, since uint64) (names map[string]bool, now uint64) {
	t.Helper()
	names = map[string]bool{}
	for r, prefix := range map[topology.Resource]string{topology.Slices: "slices of ", topology.Services: ""} {
		changed, generation, _ := s.Changes(r, since)
		for name := range changed {
			names[prefix+name.String()] = true
		}
		now = generation
	}
	return names, now
}

func TestAChangeNamesTheServicesItIsFor(t *testing.T) {
	s := newState(t, inPool, map[string]topology.Service{
		"a/plain": {}, "a/node": keys("kubernetes.io/hostname"), "a/zone": keys("kubernetes.io/zone"), "a/pool": keys("openyurt.io/nodepool"),
		"a/listen": annotated(corev1.ServiceTypeNodePort, map[string]string{topology.ListenAnnotation: "p1"}),
	})
	_, now := changedSince(t, s, 0)
	for _, tt := range []struct {
		what string
		do   func()
		want []string
	}{
		{"nothing", func() { s.SetService(name("a/node"), keys("kubernetes.io/hostname"), "101") }, nil},
		{"an annotation", func() { s.SetService(name("a/plain"), keys("kubernetes.io/hostname"), "102") }, []string{"slices of a/plain"}},
		{"an annotation that is taken away", func() { s.SetService(name("a/plain"), keys(""), "103") }, []string{"slices of a/plain"}},
		{"the pool", func() { s.SetMembers("p1", map[string]bool{"n1": true}, "104") }, []string{"slices of a/zone", "slices of a/pool", "a/listen"}},
		{"the same pool", func() { s.SetMembers("p1", map[string]bool{"n1": true}, "105") }, nil},
		{"the node", func() { s.SetNode(nil, "106") }, []string{"slices of a/zone", "slices of a/pool", "a/listen"}},
		{"another label of the node", func() { s.SetNode(map[string]string{"x": "y"}, "107") }, nil},
		{"a Service that is deleted", func() { s.DeleteService(name("a/zone")) }, nil},
	} {
		_, _, next := s.Changes(topology.Slices, now)
		tt.do()
		got, generation := changedSince(t, s, now)
		if len(got) != len(tt.want) {
			t.Errorf("%s: got %v, want %v", tt.what, got, tt.want)
		}
		for _, n := range tt.want {
			if !got[n] {
				t.Errorf("%s: got %v, want %v", tt.what, got, tt.want)
			}
		}
		if len(tt.want) > 0 {
			<-next
		}
		now = generation
	}
}

func TestAClientThatResumesIsGivenWhatChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newState(t, nil, map[string]topology.Service{"a/s": keys("kubernetes.io/hostname"), "a/plain": {}})
		for version, want := range map[string]bool{"99": false, "100": true, "": false, "x": false} {
			stale, known, ready := s.Stale(topology.Slices, version)
			if known != want || !ready {
				t.Errorf("from %q: known %v, ready %v", version, known, ready)
			}
			if _, ok := stale[name("a/s")]; ok == want {
				t.Errorf("from %q: %v", version, stale)
			}
		}
		if stale, _, _ := s.Stale(topology.Slices, "5"); len(stale) != 2 {
			t.Errorf("a Service that has changed since, and may have lost its annotation, is not among %v", stale)
		}
		s.SetService(name("a/plain"), keys("kubernetes.io/hostname"), "200")
		for _, version := range []string{"150", "250"} { // the latter may have been reached before the change was known here
			if stale, known, _ := s.Stale(topology.Slices, version); len(stale) != 1 || !known {
				t.Errorf("from %s: %v, known %v", version, stale, known)
			}
		}
		time.Sleep(time.Hour) //nolint:forbidigo // of synctest's clock
		if stale, _, _ := s.Stale(topology.Slices, "150"); len(stale) != 1 {
			t.Errorf("from 150: %v", stale)
		}
		if stale, _, _ := s.Stale(topology.Slices, "250"); len(stale) != 0 {
			t.Errorf("from 250: %v", stale)
		}
	})
}

func TestAwaitWaitsForWhatDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := topology.New("n1", slog.New(slog.DiscardHandler))
		ready := func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return s.Await(ctx) == nil
		}
		if s.Summary() != nil {
			t.Error("there is a summary before it is wanted")
		}
		if ready() {
			t.Error("nothing is known")
		}
		<-s.Wanted()
		s.SetServices(nil, "1")
		if ready() {
			t.Error("the node is not known")
		}
		s.SetNode(inPool, "2")
		if !ready() {
			t.Error("no Service needs more")
		}
		s.SetService(name("a/s"), keys("openyurt.io/nodepool"), "3")
		if pool, _ := s.NeededPool(); pool != "p1" || ready() {
			t.Errorf("the members of %q are needed", pool)
		}
		s.MembersRefused("p1")
		if !ready() || !s.Summary().PoolRefused {
			t.Errorf("all is read that may be: %+v", s.Summary())
		}
	})
}

func TestAnUnknownValueIsNamedButDoesNotFloodTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := topology.New("n1", slog.New(slog.NewTextHandler(&log, nil)))
		_ = s.Await(canceled(t))
		for range 1000 {
			s.SetService(name("a/s"), keys("x"+strings.Repeat("y", 1000)), "3")
			s.SetService(name("a/s"), keys(""), "4")
		}
		s.SetService(name("a/s"), keys("x"), "5")
		if lines := strings.Count(log.String(), "\n"); lines != 1 || log.Len() > 1000 {
			t.Errorf("%d lines, %d bytes", lines, log.Len())
		}
		if got := s.Summary().UnknownValue; len(got) != 1 || got[0] != "a/s" {
			t.Errorf("got %q", got)
		}
	})
}

func canceled(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
