package topology

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Filter reports whether an endpoint remains, by the names of its node and its zone, which may
// be empty.
type Filter func(node, zone string) bool

// Endpoints returns the Filter of a Service's endpoints, or nil if all remain. So they do while
// the members of the node's pool are not known. A node without a zone, or without a pool, is
// one of its own.
func (s *State) Endpoints(service types.NamespacedName) Filter {
	s.mu.Lock()
	defer s.mu.Unlock()
	if service == APIServer() {
		return nil
	}
	here, own := s.place, s.node
	where, _ := scopeOf(s.services[service].Keys)
	switch {
	case where == everywhere, where != sameNode && !here.known, where == samePool && here.pool != "" && here.membership != read:
		return nil
	case where == sameZone && here.zone != "":
		return func(node, zone string) bool { return node == own || zone == here.zone }
	case where == samePool && here.pool != "":
		return func(node, _ string) bool { return node == own || node != "" && here.members[node] }
	}
	return func(node, _ string) bool { return node == own }
}

// ExpectAPIServer has Await wait for LeadAPIServer.
func (s *State) ExpectAPIServer() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cluster.pending = true
	s.settleLocked()
}

// LeadAPIServer decides whether the slices of the apiserver's Service lead to the hub, or are as the apiserver
// sent them.
func (s *State) LeadAPIServer(toHub bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.cluster.pending && s.cluster.toHub == toHub {
		return
	}
	s.cluster = clusterIP{toHub: toHub, decided: time.Now()}
	s.changeLocked(Slices, APIServer(), 0)
	s.settleLocked()
}

// APIServerLeads reports whether the slices of the apiserver's Service lead to the hub.
func (s *State) APIServerLeads() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cluster.toHub
}

// Discarded reports whether programs that carry the traffic of Services do not read this one: a
// load balancer that only the cloud is to use.
func (s *State) Discarded(name types.NamespacedName, service *Service) bool {
	return name != APIServer() && service.Discard && service.Type == corev1.ServiceTypeLoadBalancer
}

// Isolated reports whether they do not read a Service since its NodePorts are not to listen in
// the node's pool. On a node without a pool, or whose pool is not known yet, they listen.
func (s *State) Isolated(name types.NamespacedName, service *Service) bool {
	s.mu.Lock()
	pool := s.place.pool
	s.mu.Unlock()
	return name != APIServer() && pool != "" && service.Listens && service.hasNodePorts() && !listensIn(service.Listen, pool)
}

// HasKeys reports whether there is a Service with KeysAnnotation.
func (s *State) HasKeys() bool {
	return s.any(func(service *Service) bool { return service.Keys != "" })
}

// any reports whether a Service matches.
func (s *State) any(matches func(*Service) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, service := range s.services {
		if matches(&service.Service) {
			return true
		}
	}
	return false
}

// Set is a set of Services.
type Set map[types.NamespacedName]struct{}

// Changes returns the Services of which something else is to be read since a generation, the
// generation now, and a channel that is closed at the next change of any kind. What a Service's
// own event decides is no change.
func (s *State) Changes(r Resource, since uint64) (changed Set, now uint64, next <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed = Set{}
	for name, c := range s.changes[r] {
		if c.generation > since {
			changed[name] = struct{}{}
		}
	}
	return changed, s.generation, s.changed
}

// Stale returns the Services for which a client may know an older decision that resumes a
// watch from a version. known is false if the client may have read that version before this
// State knew anything: from an earlier process, for example. ready is false until Await would
// return, and the result must be asked for again.
func (s *State) Stale(r Resource, version string) (stale Set, known, ready bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := number(version)
	known = from >= s.floor && s.floor > 0
	stale = Set{}
	for name, c := range s.changes[r] {
		if c.version > from || known && c.version > s.floor && time.Since(c.learned) < lag {
			stale[name] = struct{}{}
		}
	}
	if r == Slices && (s.cluster.toHub || time.Since(s.cluster.decided) < lag) {
		stale[APIServer()] = struct{}{} // no version names this decision
	}
	if !known {
		for name, service := range s.services {
			isStale := service.Discard || service.Listens
			if r == Slices {
				isStale = service.Keys != "" || service.version > from // it may have lost its annotation
			}
			if isStale {
				stale[name] = struct{}{}
			}
		}
	}
	return stale, known, s.isReady
}

// EachOf calls fn with every Service that has not changed since a version.
func (s *State) EachOf(version string, fn func(types.NamespacedName, *Service)) {
	from := number(version)
	s.mu.Lock()
	all := make(map[types.NamespacedName]Service, len(s.services))
	for name, service := range s.services {
		if service.version <= from {
			all[name] = service.Service
		}
	}
	s.mu.Unlock()
	for name, service := range all {
		fn(name, &service)
	}
}
