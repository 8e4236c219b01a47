package rollout

import (
	"cmp"
	"slices"
)

// order is that in which candidates get their turn. Pods whose deletion was refused come
// last, and of them first the one that may be tried again first. Of the others, nodes that
// may be touched come first, so that the rest holds up nothing; then pods that serve
// nobody; then those whose images are there, and those that have waited for them long
// enough; then the pods that have been Ready for longest; then by name.
func order(a, b candidate) int {
	return cmp.Or(
		a.refusal.until().Compare(b.refusal.until()),
		cmp.Compare(rank(a.settled), rank(b.settled)),
		cmp.Compare(rank(!a.ready), rank(!b.ready)),
		cmp.Compare(a.wait.images, b.wait.images),
		a.turned.Compare(b.turned),
		cmp.Compare(a.node, b.node),
	)
}

func rank(first bool) int {
	if first {
		return 0
	}
	return 1
}

// choose says which candidates are deleted and what the others wait for.
func (m *maker) choose() {
	slices.SortFunc(m.candidates, order)
	allowed := m.old - m.in.Options.Partition.Of(len(m.places))
	for _, c := range m.candidates {
		switch {
		case m.in.Options.Paused:
			m.put(c.node, c.pod, HeldByPause, c.trouble)
		case m.plan.Breaker.Holds():
			m.put(c.node, c.pod, HeldByBreaker, c.trouble)
		case allowed <= 0:
			m.put(c.node, c.pod, HeldByPartition, c.trouble)
		default:
			allowed--
			m.turn(c)
		}
	}
}

// turn deletes the candidate's pod if there is room for it.
func (m *maker) turn(c candidate) {
	switch {
	case !c.settled:
		if c.settles.After(m.in.Now) { // else its taints are still to go, which is an event
			m.plan.wakeAt(c.settles)
		}
		m.wait(c, "node became Ready a moment ago")
	case c.ready && c.wait.images == imagesAwaited:
		m.awaitImages(c)
	case c.refusal != nil && m.in.Now.Before(c.refusal.Until):
		m.plan.wakeAt(c.refusal.Until)
		m.wait(c, "")
	case !m.room(c):
		m.wait(c, "")
	case len(m.plan.Delete) == Burst:
		m.plan.wakeAt(m.in.Now)
		m.wait(c, "")
	default:
		m.replace(c)
	}
}

// room tells whether c's pod may go. One that is not Ready serves nobody. One that
// counts as unavailable, being Ready for too short a time, adds nothing to the
// count; but after a restart, when this holds for every pod, only as many of them
// may go as if they were available.
func (m *maker) room(c candidate) bool {
	switch {
	case !c.ready:
		return true
	case c.avail:
		return m.plan.Unavailable < m.plan.Max
	default:
		return m.plan.Unavailable <= m.plan.Max
	}
}

func (m *maker) wait(c candidate, reason string) {
	state := Pending
	if !c.avail {
		state, reason = Unavailable, c.trouble
	}
	if c.refusal.named() {
		reason = c.refusal.reason()
	}
	m.put(c.node, c.pod, state, reason)
	m.plan.Nodes[len(m.plan.Nodes)-1].Refused = c.refusal.named()
}

// awaitImages keeps a pod, which uses up nothing of the maximum meanwhile.
func (m *maker) awaitImages(c candidate) {
	if !c.wait.until.IsZero() { // else the pod will change
		m.plan.wakeAt(c.wait.until)
	}
	m.wait(c, c.wait.reason)
	n := &m.plan.Nodes[len(m.plan.Nodes)-1]
	n.AwaitsImages = n.State == Pending
}

func (m *maker) replace(c candidate) {
	reason := "its turn has come"
	if c.wait.images == imagesLate {
		reason += ", though " + c.wait.reason
	}
	switch {
	case !c.ready:
		reason = "it serves nobody: " + c.trouble
	case c.avail:
		m.plan.Unavailable++
	}
	m.plan.Delete = append(m.plan.Delete, Deletion{
		Pod: c.pod, Idle: !c.ready, Reason: reason, avail: c.avail, trouble: c.trouble,
	})
	m.put(c.node, nil, Unavailable, "its old pod is replaced now")
}
