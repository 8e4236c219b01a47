package quota

import "time"

// Turns determine which answers of an apiserver are asked for again while the cloud is there, so that what was
// revoked there does not outlive a loss.
//
// One at a time is asked for, the longest unasked first, and tenants take turns. What was not asked for Within an unbroken
// presence of the cloud is forgotten: too many share the turns, it cannot be asked for since a restart of the hub, or
// it is not used any more. So without the cloud only an answer is good that is at most Within older than the loss. Time
// without the cloud, or without the hub, has nothing forgotten.
type Turns struct {
	After  time.Duration // the age from which an answer is asked for again
	Within time.Duration // the age at which it is forgotten
	Since  time.Time     // when the cloud came
}

// Asked is one answer of an apiserver.
type Asked[K any] struct {
	Key  K
	User string    // whom it is about
	Last time.Time // when it was last asked for, with whatever result
	// Wanted is false for what is not asked for again: it is not in use, or cannot be asked for.
	Wanted bool
}

// Next returns what to ask for now, if ok, and what to forget.
func Next[K any](t Turns, all []Asked[K], now time.Time) (next K, ok bool, forget []K) {
	turns := make(map[string]time.Time) // the last of each tenant
	for i := range all {
		if tenant := Tenant(all[i].User); all[i].Last.After(turns[tenant]) {
			turns[tenant] = all[i].Last
		}
	}
	var best *Asked[K]
	for i := range all {
		switch one := &all[i]; {
		case now.Sub(one.Last) >= t.Within && now.Sub(t.Since) >= t.Within:
			forget = append(forget, one.Key)
		case !one.Wanted || now.Sub(one.Last) < t.After:
		case best == nil || before(one, best, turns):
			best = one
		}
	}
	if best == nil {
		return next, false, forget
	}
	return best.Key, true, forget
}

// before reports whether a is asked for before b.
func before[K any](a, b *Asked[K], turns map[string]time.Time) bool {
	if order := turns[Tenant(a.User)].Compare(turns[Tenant(b.User)]); order != 0 {
		return order < 0
	}
	return a.Last.Before(b.Last)
}
