package topology

import (
	"context"
	"log/slog"
	"maps"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// lag is how long after a change a client is sent it again that resumes a watch from a later
// version: it may have read so far before this State knew of the change.
const lag = 5 * time.Minute

// warnEvery limits the warnings of wrong annotations, which the authors of Services cause.
const warnEvery = 10 * time.Second

// State is what the filters know. See the package's comment.
type State struct {
	node string
	log  *slog.Logger

	start  sync.Once
	wanted chan struct{}

	mu       sync.Mutex
	services map[types.NamespacedName]versioned
	floor    uint64 // the version of the first services
	place    place
	cluster  clusterIP
	ready    chan struct{} // closed while all that the decisions need is known
	isReady  bool

	generation uint64
	changes    map[Resource]map[types.NamespacedName]change
	changed    chan struct{} // closed at the next change
	warned     time.Time
}

// clusterIP is whether the Service of the apiserver leads to the hub while the cloud is there, too.
type clusterIP struct {
	pending bool // that is about to be decided
	toHub   bool
	decided time.Time // when it was last decided otherwise; zero: never
}

// place is where the node is.
type place struct {
	known      bool
	zone, pool string
	members    map[string]bool // of pool; never changed, only replaced
	membership membership
}

// membership is what is known of a pool's members.
type membership int

const (
	unread  membership = iota
	refused            // they may not be read: no endpoint is left out for its pool
	read
)

// Versioned is a Service at a resourceVersion.
type Versioned struct {
	Service
	Version string
}

type versioned struct {
	Service
	version uint64
}

// Resource is what is read of a Service.
type Resource int

// The resources that filters are for.
const (
	Slices   Resource = iota // its EndpointSlices
	Services                 // the Service itself
)

// change is the last change of what is decided for a Service.
type change struct {
	generation uint64
	version    uint64 // of the object that caused it
	learned    time.Time
}

// New returns the State of a node.
func New(node string, log *slog.Logger) *State {
	return &State{
		node: node, log: log, wanted: make(chan struct{}), ready: make(chan struct{}), changed: make(chan struct{}),
		changes: map[Resource]map[types.NamespacedName]change{Slices: {}, Services: {}},
	}
}

// Wanted returns a channel that is closed when a client reads what is filtered for the first
// time. Until then nobody has to feed the State.
func (s *State) Wanted() <-chan struct{} { return s.wanted }

// Await waits until Services, the node and, if a Service needs them, the members of its pool
// have been read. It returns ctx's error if that ends earlier.
func (s *State) Await(ctx context.Context) error {
	s.start.Do(func() { close(s.wanted) })
	s.mu.Lock()
	ready := s.ready
	s.mu.Unlock()
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// SetServices replaces all Services, as a list at this version has them.
func (s *State) SetServices(services map[types.NamespacedName]Versioned, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := number(version)
	if s.services == nil {
		s.floor, s.services = at, map[types.NamespacedName]versioned{}
	}
	for name := range s.services {
		if _, ok := services[name]; !ok {
			s.deleteLocked(name)
		}
	}
	for name, service := range services {
		s.setLocked(name, service.Service, number(service.Version))
	}
	s.settleLocked()
}

// SetService adds or replaces a Service.
func (s *State) SetService(name types.NamespacedName, service Service, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.services == nil {
		s.services = map[types.NamespacedName]versioned{}
	}
	s.setLocked(name, service, number(version))
	s.settleLocked()
}

// DeleteService removes a Service. Its slices are about to be deleted, too, and are not sent
// again.
func (s *State) DeleteService(name types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deleteLocked(name)
	s.settleLocked()
}

func (s *State) setLocked(name types.NamespacedName, service Service, version uint64) {
	before := s.services[name]
	s.services[name] = versioned{service, version}
	if service.Keys == before.Keys { // the others are decided by the Service itself, in its own event
		return
	}
	s.changeLocked(Slices, name, version)
	if _, known := scopeOf(service.Keys); !known && time.Since(s.warned) > warnEvery {
		s.warned = time.Now()
		s.log.Warn("a Service's annotation has an unknown value, and all its endpoints are used: known are kubernetes.io/hostname, topology.kubernetes.io/zone and openyurt.io/nodepool",
			"service", name.String(), "annotation", KeysAnnotation, "value", brief(service.Keys))
	}
}

func (s *State) deleteLocked(name types.NamespacedName) {
	delete(s.services, name)
	for _, changes := range s.changes {
		delete(changes, name)
	}
}

// SetNode records where the node is: the labels of its Node at this version.
func (s *State) SetNode(labels map[string]string, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.place
	s.place.known, s.place.zone, s.place.pool = true, labels[corev1.LabelTopologyZone], labels[PoolLabel]
	if s.place.pool != before.pool {
		s.place.members, s.place.membership = nil, unread
	}
	if before.known && s.place.zone == before.zone && s.place.pool == before.pool {
		return
	}
	s.movedLocked(number(version))
	s.settleLocked()
}

// SetMembers records the nodes of a pool, since this version.
func (s *State) SetMembers(pool string, members map[string]bool, version string) {
	s.setMembers(pool, members, read, number(version))
}

// MembersRefused records that the hub may not read which nodes a pool has.
func (s *State) MembersRefused(pool string) { s.setMembers(pool, nil, refused, 0) }

func (s *State) setMembers(pool string, members map[string]bool, m membership, version uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pool != s.place.pool || m == s.place.membership && maps.Equal(members, s.place.members) {
		return
	}
	s.place.members, s.place.membership = maps.Clone(members), m
	s.movedLocked(version)
	s.settleLocked()
}

// movedLocked marks the Services whose decisions depend on where the node is.
func (s *State) movedLocked(version uint64) {
	for name, service := range s.services {
		if where, _ := scopeOf(service.Keys); where == sameZone || where == samePool {
			s.changeLocked(Slices, name, version)
		}
		if service.Listens {
			s.changeLocked(Services, name, version)
		}
	}
}

func (s *State) changeLocked(r Resource, name types.NamespacedName, version uint64) {
	s.generation++
	s.changes[r][name] = change{generation: s.generation, version: version, learned: time.Now()}
	close(s.changed)
	s.changed = make(chan struct{})
}

// settleLocked opens or closes the gate of Await.
func (s *State) settleLocked() {
	isReady := s.services != nil && s.place.known && !s.cluster.pending && (s.neededPoolLocked() == "" || s.place.membership != unread)
	switch {
	case isReady && !s.isReady:
		close(s.ready)
	case !isReady && s.isReady:
		s.ready = make(chan struct{})
	default:
		return
	}
	s.isReady = isReady
	close(s.changed) // for those who could not wait
	s.changed = make(chan struct{})
}

// NeededPool returns the pool whose members have to be read, or "" while no Service needs
// them, and a channel that is closed when that may have changed.
func (s *State) NeededPool() (pool string, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.neededPoolLocked(), s.changed
}

func (s *State) neededPoolLocked() string {
	for _, service := range s.services {
		if where, _ := scopeOf(service.Keys); where == samePool {
			return s.place.pool
		}
	}
	return ""
}

// number returns a resourceVersion as a number, or 0 if it is none.
func number(version string) uint64 {
	n, _ := strconv.ParseUint(version, 10, 64)
	return n
}

// brief cuts a text that somebody else has written short, for a log.
func brief(s string) string {
	const most = 80
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
