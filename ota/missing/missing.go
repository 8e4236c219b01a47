// Package missing knows which pods this node should run and lacks: those that the hub deleted for an upgrade and that
// did not come back, which it remembers itself, and those that the controller names on the Node, with the reason. A
// node may read neither Events nor a pod that is not bound to it.
package missing

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/podfiles"
)

const (
	// grace is how long a pod's successor may take before it counts as missing.
	grace = 10 * time.Second
	// rememberFor is for how long the hub runs until it forgets a deletion: the admin may have deleted the DaemonSet since,
	// which it cannot know. Clocks of nodes jump, so no date decides.
	rememberFor = 24 * time.Hour
	// lookEvery is how often the Node is read while somebody looks, and lookSoon while the hub misses a pod itself: a Node
	// is some 10 kB.
	lookEvery, lookSoon = time.Minute, 10 * time.Second
	lookTimeout         = 3 * time.Second
	// maxDeletions is more than a node has apps. It bounds what whoever may create pods can have remembered.
	maxDeletions = 250
)

// Options are the options of Open. All are required, and functions must be safe for concurrent use.
type Options struct {
	Dir string // of the files; it is created if it does not exist
	// Pods returns the pods of this node, read-only; Synced reports whether they are known.
	Pods   func() []*corev1.Pod
	Synced func() bool
	// Node reads this Node. It is called only while Online.
	Node   func(context.Context) (*corev1.Node, error)
	Online func() bool
	Logger *slog.Logger
}

// Missing is safe for concurrent use.
type Missing struct {
	Options
	files *podfiles.Folder[deletion]

	mu        sync.Mutex // also held while files are written, which happens once or twice in an upgrade
	deletions map[types.NamespacedName]*deletion

	look   sync.Mutex // held while the Node is read
	looked time.Time
	told   []api.MissingWorkload // by the controller, as last read
}

// deletion is of a pod of a DaemonSet, by the DaemonSet's namespace and UID.
type deletion struct {
	Workload string    `json:"workload"` // name of the DaemonSet
	Pod      types.UID `json:"pod"`
	At       time.Time `json:"at"`
	known    time.Time // since the hub's start; for the monotonic clock
}

// Open reads the files. It starts nothing.
func Open(o Options) (*Missing, error) {
	files, deletions, err := podfiles.Open[deletion](o.Dir, o.Logger)
	if err != nil {
		return nil, err
	}
	m := &Missing{Options: o, files: files, deletions: map[types.NamespacedName]*deletion{}}
	for key, d := range deletions {
		d.known = time.Now()
		m.deletions[key] = &d
	}
	return m, nil
}

// Deleted remembers that the hub has deleted a pod, so that another one should come.
func (m *Missing) Deleted(pod *corev1.Pod) {
	key, name := daemonSetOf(pod)
	if name == "" {
		return // the next pod of a StatefulSet may run on another node
	}
	d := deletion{Workload: name, Pod: pod.UID, At: time.Now().UTC().Truncate(time.Second), known: time.Now()}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.deletions) >= maxDeletions {
		return
	}
	m.deletions[key] = &d
	if err := m.files.Put(key, d); err != nil {
		m.Logger.Warn("that a pod was deleted for an upgrade is forgotten if the hub restarts", "pod", pod.Namespace+"/"+pod.Name, "err", err)
	}
}

// Update forgets deletions after which a pod has come. It must be called with the pods of this node after changes.
func (m *Missing) Update(pods []*corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.deletions) == 0 {
		return
	}
	for _, pod := range pods {
		key, _ := daemonSetOf(pod)
		if d := m.deletions[key]; d != nil && d.Pod != pod.UID {
			m.forget(key)
		}
	}
	for key, d := range m.deletions {
		if time.Since(d.known) > rememberFor {
			m.forget(key)
		}
	}
}

// forget is called with mu held.
func (m *Missing) forget(key types.NamespacedName) {
	delete(m.deletions, key)
	if err := m.files.Delete(key); err != nil {
		m.Logger.Warn("a deletion that is over cannot be forgotten", "workload", key.String(), "err", err)
	}
}

// List returns what this node lacks, the longest first. While the cloud can be reached, it may read the Node for
// that, which takes a few seconds at most.
func (m *Missing) List() []api.Missing {
	list := []api.Missing{}
	if !m.Synced() {
		return list
	}
	there := map[api.Missing]bool{} // by kind and names
	for _, pod := range m.Pods() {
		if owner := metav1.GetControllerOf(pod); owner != nil {
			there[api.Missing{Kind: owner.Kind, Namespace: pod.Namespace, Workload: owner.Name}] = true
		}
	}
	found := map[api.Missing]api.Missing{}
	own := m.own()
	for _, l := range slices.Concat(own, m.fromNode(len(own) > 0)) {
		key := api.Missing{Kind: l.Kind, Namespace: l.Namespace, Workload: l.Workload}
		if there[key] {
			continue
		}
		if before, ok := found[key]; ok && before.Since.Before(l.Since) {
			l.Since = before.Since
		}
		found[key] = l
	}
	list = slices.AppendSeq(list, maps.Values(found))
	slices.SortFunc(list, func(a, b api.Missing) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Workload, b.Workload))
	})
	return list
}

// own returns what the hub remembers.
func (m *Missing) own() (list []api.Missing) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, d := range m.deletions {
		if time.Since(d.known) >= grace || time.Since(d.At) >= grace {
			list = append(list, api.Missing{
				Kind: "DaemonSet", Namespace: key.Namespace, Workload: d.Workload, Since: d.At,
				Why: "its pod was deleted here for an upgrade, and no other has come; the cloud has not said why",
			})
		}
	}
	return list
}

// fromNode returns what the controller says, as the Node had it at most a minute ago, or a few seconds if soon; while
// the cloud is away, as it had it before.
func (m *Missing) fromNode(soon bool) (list []api.Missing) {
	m.look.Lock()
	defer m.look.Unlock()
	every := lookEvery
	if soon {
		every = lookSoon
	}
	if m.Online() && time.Since(m.looked) >= every {
		m.read()
	}
	for _, l := range m.told {
		list = append(list, api.Missing{Kind: l.Kind, Namespace: l.Namespace, Workload: l.Name, Since: l.Since, Why: l.Why})
	}
	return list
}

// read is called with look held.
func (m *Missing) read() {
	ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
	defer cancel()
	node, err := m.Node(ctx)
	m.looked = time.Now()
	if err == nil {
		m.told, err = api.MissingOn(node)
	}
	if err != nil {
		m.Logger.Debug("it cannot be read which pods this node lacks", "err", err)
	}
}

// daemonSetOf returns the key and the name of the DaemonSet that controls a pod; "" if none does. Whoever may create pods
// can write anything into an owner reference, and the key becomes the name of a file.
func daemonSetOf(pod *corev1.Pod) (types.NamespacedName, string) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "DaemonSet" || len(validation.IsDNS1123Label(string(owner.UID))) > 0 {
		return types.NamespacedName{}, ""
	}
	return types.NamespacedName{Namespace: pod.Namespace, Name: string(owner.UID)}, owner.Name
}
