// Package store is the disk under the cache: views, the objects they hold and
// a few small tables, in one bbolt file, so that what belongs together is
// committed together.
//
// # Model
//
// A view is what one query returned. It has an ID, a header and members; a
// member is the name of an object ("namespace/name") at a resourceVersion, with
// the [Sum] of its bytes. An object is bytes under (scope, name, resourceVersion,
// sum), where the scope is the resource and the representation; views that hold
// equal bytes share them, and they go with their last membership. No view can
// change the bytes that another one holds. Beside them stand tables: named
// buckets of ordered keys, for whatever else must survive together with views.
//
// # Life cycle
//
// Open, Commit and read, Close. Open puts right what it finds: a file that is
// damaged is moved aside and the last snapshot, or an empty store, takes its
// place; [Store.Recovery] tells. Run takes snapshots. Package writeback collects
// changes and commits them once a second, so that nobody who serves clients waits
// for the disk.
//
// # What holds
//
//   - Commit is one transaction: after a crash at any instant each view is as
//     one Commit left it, with its members, their bytes and its version.
//   - A change names the version it starts from. A view that is at another one
//     (the file was restored from a snapshot, a change was lost) refuses it
//     with ErrConflict; the view must then be replaced as a whole.
//   - Nothing is ever silently short. Every record carries a checksum that
//     covers its place as well as its value; every view header carries the
//     number and a digest of its members, and the file the number of views, and of
//     the records of each table: see CheckTable for what that proves.
//   - No callback is called inside a transaction, and none is held open while
//     a callback runs.
//
// # Damage
//
// A damaged record is an *Error that names the view or object, and is
// ErrCorrupt: drop the view, or commit it anew, and fetch it again. Damage to
// the file's pages is ErrDamaged: reads of other views may still work, Commit
// refuses, and whoever owns the store closes it and opens it again, which moves
// the file aside. A marker says so to the next Open even if the process dies.
// bbolt answers damage with panics and, where the file is shorter than its
// map, memory faults: they are caught here and never reach the caller.
//
// # Encryption
//
// With a key, values, and the names and versions of objects, cannot be read on
// disk: values are sealed with AES-256-GCM (with extended nonces, see package seal),
// and the keys under which members and objects lie are keyed hashes of their
// names. In the clear are the IDs of views, the names of tables, the keys in
// them (they are ordered, so they cannot be hashed), and how many records there
// are and how long. So an ID should be a keyed hash of the query, and keys in
// tables should tell nothing. A file of another key, or of none, is ErrKey, and is left as it was.
//
// # Parts
//
// Package pagecheck looks at the pages of a file before bbolt opens it: that comes too late
// for bbolt's own check, because a damaged page can make bbolt recurse until the stack is
// full, which cannot be caught. Package seal writes and reads records, package writeback
// collects changes. What is in the file (views, members, objects, tables, and how many of
// each) and when it is opened, copied and moved aside stay together here: they share
// transactions and the types that callers see.
//
// Objects have a count of the views that hold them. To look for what no view holds at each
// commit would be simpler, and would read the keys of all members and objects, thousands,
// where a commit changes a few. It is done where damage has made the counts unknown: see
// refcount.go.
//
// A Store is safe for concurrent use. One process at a time owns
// a folder.
package store
