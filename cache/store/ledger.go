package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	bolt "go.etcd.io/bbolt"
)

// ledger keeps account of the objects of one batch: which memberships came and
// went, and whose bytes were given. Settled at the end and in one go, it lets an
// object move from one view to another in any order of changes.
type ledger struct {
	codec
	objects, refs, trash *bolt.Bucket
	tx                   *bolt.Tx

	accounts map[ObjectKey]*account
	// uncertain says that damage has made a count unknown: all are taken anew.
	uncertain bool
	// held says whether a Reader is open that may need what goes.
	held    func() bool
	maxHeld int64
}

// account is of one object.
type account struct {
	key     []byte // in the file
	change  int    // of the number of views
	bytes   []byte // if offered
	offered bool
}

func (s *Store) newLedger(tx *bolt.Tx) *ledger {
	return &ledger{
		codec:    s.codec,
		tx:       tx,
		objects:  tx.Bucket(bucketObjects),
		refs:     tx.Bucket(bucketRefs),
		trash:    tx.Bucket(bucketTrash),
		accounts: map[ObjectKey]*account{},
		held:     s.pins.held,
		maxHeld:  s.opts.MaxHeld,
	}
}

func (l *ledger) account(k ObjectKey) *account {
	a := l.accounts[k]
	if a == nil {
		a = &account{key: l.hide(kindObject, nil, k.bytes())}
		l.accounts[k] = a
	}
	return a
}

func (l *ledger) acquire(k ObjectKey) { l.account(k).change++ }
func (l *ledger) release(k ObjectKey) { l.account(k).change-- }

func (l *ledger) offer(k ObjectKey, b []byte) {
	a := l.account(k)
	a.bytes, a.offered = b, true
}

// size of an object that was offered or is stored.
func (l *ledger) size(k ObjectKey) (int, error) {
	a := l.account(k)
	if a.offered {
		return len(a.bytes), nil
	}
	stored, err := l.stored(a.key)
	if err != nil {
		return 0, err
	}
	if stored == nil {
		return 0, ErrNoObject
	}
	return len(stored), nil
}

// stored returns an object's bytes, or nil if it is not there.
func (l *ledger) stored(key []byte) ([]byte, error) {
	record := l.objects.Get(key)
	if record == nil {
		return nil, nil
	}
	return l.openObject(key, record)
}

// settle writes what the accounts come to, neighbours in the file together.
func (l *ledger) settle() error {
	names := make([]ObjectKey, 0, len(l.accounts))
	for k := range l.accounts {
		names = append(names, k)
	}
	slices.SortFunc(names, func(a, b ObjectKey) int {
		if c := bytes.Compare(l.accounts[a].key, l.accounts[b].key); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	for _, k := range names {
		if err := l.settleOne(k, l.accounts[k]); err != nil {
			return err
		}
	}
	if l.uncertain {
		return l.recount()
	}
	return l.emptyTrash()
}

func (l *ledger) settleOne(k ObjectKey, a *account) error {
	if a.change == 0 && !a.offered {
		return nil
	}
	before, err := l.count(a.key)
	if err != nil {
		l.uncertain = true
	}
	count := max(before+a.change, 0)
	if count > 0 {
		err = l.keep(k, a)
	} else {
		err = l.discard(a.key)
	}
	if err != nil {
		return err
	}
	return l.setCount(a.key, count)
}

// keep stores what was offered, unless the same is there and whole.
func (l *ledger) keep(k ObjectKey, a *account) error {
	if err := l.trash.Delete(a.key); err != nil || !a.offered {
		return err
	}
	stored, err := l.stored(a.key)
	if err == nil && stored != nil && bytes.Equal(stored, a.bytes) {
		return nil
	}
	return l.objects.Put(a.key, l.seal(place{kindObject, nil, a.key}, k.bytes(), a.bytes))
}

// discard removes an object that no view holds, or puts it in the trash for
// those who still read it.
func (l *ledger) discard(key []byte) error {
	record := l.objects.Get(key)
	if record == nil || !l.held() {
		return l.remove(key)
	}
	size := binary.AppendUvarint(nil, uint64(len(record)))
	return l.trash.Put(key, l.seal(place{kindTrash, nil, key}, nil, size))
}

func (l *ledger) remove(key []byte) error {
	return errors.Join(l.objects.Delete(key), l.trash.Delete(key))
}

// count returns how many views hold an object.
func (l *ledger) count(key []byte) (int, error) {
	if record := l.refs.Get(key); record != nil {
		_, payload, err := l.open(place{kindRefs, nil, key}, record)
		r := reader{b: payload}
		return int(r.uint()), errors.Join(err, r.err)
	}
	if l.objects.Get(key) == nil || l.trash.Get(key) != nil {
		return 0, nil
	}
	return 1, nil
}

func (l *ledger) setCount(key []byte, n int) error {
	if n < 2 {
		return l.refs.Delete(key)
	}
	payload := binary.AppendUvarint(nil, uint64(n))
	record := l.seal(place{kindRefs, nil, key}, nil, payload)
	if !l.encrypts() && bytes.Equal(l.refs.Get(key), record) {
		return nil
	}
	return l.refs.Put(key, record)
}

// emptyTrash removes what is in the trash if nobody reads, or it is too much.
func (l *ledger) emptyTrash() error {
	var keys [][]byte
	var total uint64
	err := l.trash.ForEach(func(key, record []byte) error {
		_, payload, err := l.open(place{kindTrash, nil, key}, record)
		r := reader{b: payload}
		if total += r.uint(); err != nil {
			total = 1 << 62 // unknown: too much
		}
		keys = append(keys, bytes.Clone(key))
		return nil
	})
	if err != nil || l.held() && total <= uint64(l.maxHeld) {
		return err
	}
	for _, key := range keys {
		if err := l.remove(key); err != nil {
			return err
		}
	}
	return nil
}
