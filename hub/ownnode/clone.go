package ownnode

import (
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// cloneWindow is within what time a clone must have been seen twice. Two kubelets take turns every 10 s. Where one of them has a
// bad link, they do more slowly.
const cloneWindow = 10 * time.Minute

// clone recognizes another machine that runs as this node, as one does that starts from a copy of its disk, with the node's name
// and credentials. Both kubelets write their boot ID to the status of the one Node, and renew the one lease, with the version that
// they have read: so another boot ID follows on ours, again and again, and our renewals meet another version.
//
// Nothing else tells the two apart: a copy has the same machine-id and holder of the lease, often the same SystemUUID, and a board
// that is replaced has another. One boot ID that follows on ours is not enough: a backup of etcd that is restored has one. Nor are
// conflicts: a renewal whose answer is lost causes the next one's. A machine that is resumed from a snapshot of its memory in two
// places has one boot ID, and is not recognized.
//
// It is not safe for concurrent use.
type clone struct {
	boot string // ours; "": not known, and nothing is recognized

	uid     types.UID // of the Node that the rest is about
	version uint64    // the highest resourceVersion of it that was seen
	ours    bool      // the boot ID in it is ours
	other   string    // the last one that was not

	taken, refused twice // another boot ID followed on ours; a renewal of the lease met a conflict
}

// saw takes note of an answer that has the Node. One that is not newer than what was seen, as caches of apiservers give, is passed over.
// A Node that was deleted and created again starts anew.
func (c *clone) saw(uid types.UID, version uint64, boot string, now time.Time) {
	if uid != c.uid {
		*c = clone{boot: c.boot, uid: uid}
	}
	if version <= c.version || boot == "" {
		return
	}
	if boot != c.boot {
		c.other = boot
		if c.ours {
			c.taken.add(now)
		}
	}
	c.version, c.ours = version, boot == c.boot
}

// conflict takes note of a renewal of our lease that was answered 409.
func (c *clone) conflict(now time.Time) { c.refused.add(now) }

// there reports whether there is a clone, as of now.
func (c *clone) there(now time.Time) bool {
	return c.taken.within(cloneWindow, now) && c.refused.within(cloneWindow, now)
}

// twice is when something has happened last, and before that.
type twice struct{ last, before time.Time }

func (t *twice) add(now time.Time) { t.last, t.before = now, t.last }

func (t *twice) within(d time.Duration, now time.Time) bool {
	return !t.before.IsZero() && now.Sub(t.before) <= d
}

// BootID returns the ID of this machine's boot, as kubelet reports it, or "" if the kernel has none.
func BootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}
