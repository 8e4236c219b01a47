package log

import "crypto/sha256"

// State is what the owner has in memory, and the log writes down: tables of rows. The log knows neither
// what they mean, nor has a copy of them.
//
// The owner changes a row and calls [Log.Put] before it releases the lock under which it has changed
// it, and Rows takes that lock. If an event changes several tables, it holds the locks of all of them
// until Put, which gets all of these changes. So a checkpoint, which asks for one table after the
// other while changes go on, is exact together with the commit behind it. No lock that a method of State takes may be
// held by a caller of Open, Flush, Rewrite or Close, which call these methods.
type State interface {
	// Tables returns the names of all tables.
	Tables() []string
	// Rows returns all rows of a table, in the order in which lists read their bodies, or none if there
	// is no such table. The bytes of bodies are not needed. The log does no I/O until it returns, and
	// does not change the rows; the owner must not do so, either.
	Rows(table string) []Row
	// Apply applies changes that were put by an earlier process, in their order: of a checkpoint all rows,
	// and then those of each commit behind it. Bodies have no bytes; they can be read as soon as Open
	// has returned. Values are valid until Apply returns. If the file is opened late, memory may have
	// rows already: these are newer.
	Apply(Change)
	// Lost is called between two calls of Apply, or before or after all of them, if the changes of at least
	// one commit were lost there: what was deleted or revoked by them may be in rows that were applied
	// before. What the owner concludes it puts like any other change. Run begins with a new file, without the loss; until it is
	// there, each Open finds the loss again.
	Lost(cause error)
	// IsEmpty reports whether memory has nothing to answer with. A file that is opened late is then read,
	// and otherwise written from memory.
	IsEmpty() bool

	// GivenUp is called for a table whose changes did not fit into Options.MaxPending: they are lost, the table becomes empty on
	// disk, and further changes of it are ignored until one with Clear. It is called by Put and by Run, must not block, and may
	// be called under a lock of the owner's.
	GivenUp(table string)
	// Damaged is called once for each body that is found damaged or missing: when it is read, given again, or copied to a
	// new file. It must not block, and may be called under a lock of the owner's.
	Damaged(Sum, error)
}

// Sum is the SHA-256 of a body.
type Sum [sha256.Size]byte

// SumOf returns the Sum of a body, which may be given in parts.
func SumOf(body ...[]byte) (sum Sum) {
	h := sha256.New()
	for _, part := range body {
		h.Write(part)
	}
	h.Sum(sum[:0])
	return sum
}

// Body is a body of a row.
type Body struct {
	Sum Sum
	// Bytes are those of the body, whose Sum is not checked. They are not copied: nobody may change them.
	// Nil stands for a body that the log holds; see [Log.Holds].
	Bytes []byte
}

// Row is a row of a table.
type Row struct {
	Key    string
	Value  []byte // small and opaque; not copied
	Bodies []Body // that it needs
}

// Change is a change of one table.
type Change struct {
	Table  string
	Clear  bool     // all rows are removed, before the rest
	Delete []string // keys of rows that are removed, before the rest
	Put    []Row

	own bool // of a Table of the log
}

func (c *Change) id() tableID { return tableID{c.own, c.Table} }

// tableID distinguishes the tables of the owner from the log's own.
type tableID struct {
	own  bool
	name string
}
