package spool

import (
	"math"

	"github.com/edgehub-io/edgehub/cache/quota"
)

// makeRoomLocked makes room for a user's event, which replaces instead, if that is not nil. It
// reports whether there is room.
//
// If the spool is full, package quota selects who loses its oldest events. If that is the user
// itself, nothing is dropped, and there is no room: its recorder gets an error and tries again.
func (s *Spool) makeRoomLocked(user string, size int64, instead *entry) bool {
	bounds := quota.Bounds{Count: max(s.opts.MaxCount, 0), Bytes: max(s.opts.MaxBytes, 0)}
	count, bytes := s.order.Len()+1, s.bytes+size
	if instead != nil {
		count, bytes = count-1, bytes-instead.size
	}
	if !bounds.Exceeded(count, bytes) {
		return true
	}
	excess := quota.Excess(bounds, s.itemsLocked(user, size, instead))
	for _, item := range excess {
		if item.User == user {
			return false
		}
	}
	for _, item := range excess {
		s.metrics.dropped.WithLabelValues(reasonQuota).Inc()
		s.removeLocked(item.Key)
	}
	return true
}

// itemsLocked returns all events with the new one, for package quota.
func (s *Spool) itemsLocked(user string, size int64, instead *entry) []quota.Item[*entry] {
	items := make([]quota.Item[*entry], 0, s.order.Len()+1)
	for element := s.order.Front(); element != nil; element = element.Next() {
		if e := element.Value.(*entry); e != instead {
			items = append(items, quota.Item[*entry]{Key: e, User: e.name.user, Bytes: e.size, Last: int64(e.number)})
		}
	}
	return append(items, quota.Item[*entry]{User: user, Bytes: size, Last: math.MaxInt64})
}
