// Package store stores views, the objects that they hold and a few small tables in one bbolt
// file, so that what belongs together is committed together.
//
// # Model
//
// A view is the result of one query. It has an ID, a header and members; a member is the name
// of an object ("namespace/name") with its resourceVersion and the [Sum] of its bytes. An
// object is stored under (scope, name, resourceVersion, sum), where the scope is the resource
// and the representation. Views with equal bytes share them, and no view can change the
// bytes of another. Objects are removed with their last membership. Tables are named buckets
// of ordered keys, for other state that must survive together with views.
//
// # Life cycle
//
// Open, commit and read, Close. Open replaces a damaged file by the last snapshot, or by an
// empty file; see [Store.Recovery]. Run takes snapshots. Package writeback collects changes
// and commits them once a second, so that no client waits for the disk.
//
// A Store is safe for concurrent use. One process at a time owns a folder.
//
// # Guarantees
//
//   - Commit is one transaction: after a crash at any instant, each view is as one Commit left
//     it, with its members, their bytes and its version.
//   - A change names the version that it starts from. A view at another version (the file was
//     restored from a snapshot, a change was lost) refuses it with ErrConflict, and must then
//     be replaced as a whole.
//   - Nothing is ever silently missing. The checksum of a record covers its place as well as
//     its value; the header of a view has the number and a digest of its members, and the file
//     those of all views and of the records of each table; see CheckTable.
//   - No callback runs inside a transaction.
//
// # Damage
//
// A damaged record is an *Error that names the view or object, and is ErrCorrupt: drop the view
// or replace it. Damaged pages are ErrDamaged: reads of other views may still work, Commit
// fails, and the store's owner closes it and opens it again, which moves the file aside. A
// state file ensures this even if the process dies before. bbolt panics on damage, or causes
// memory faults if the file is shorter than its map: these are recovered here.
//
// # Encryption
//
// With a key, values are encrypted with AES-256-GCM (with extended nonces, see package seal),
// and the keys of members and objects are keyed hashes of their names. Not encrypted are the
// IDs of views, the names of tables, the keys in tables (they are ordered, so they cannot be
// hashed), and the number and size of records. So an ID should be a keyed hash of the query,
// and keys in tables should reveal nothing. Opening a file of another key, or of none, returns
// ErrKey, and does not change the file.
//
// # What was removed
//
// bbolt leaves the old bytes in pages that are free. Run overwrites these with zeros before each
// snapshot, and the files that were replaced, such as the earlier snapshot, after it. So what was
// removed is in no file of the folder [Options.SnapshotEvery] later, while the store is open; a
// damaged file is removed after a week. Rewriting the whole file instead (as the compaction at
// Open does) would write more, and leave the old one to the file system, which frees blocks and
// does not overwrite them. A key for each object, forgotten with it, would itself be in a page.
//
// This does not reach what a device or a file system has kept besides: flash memory that maps its
// blocks, copy-on-write, journals, backups; nor a copy that a crash or a full disk has cut short.
//
// # Design
//
// Package pagecheck checks the pages of a file before bbolt opens it. bbolt's own Tx.Check would
// be too late: a damaged page can make bbolt recurse until the stack is full, which cannot be
// recovered. The file's contents and its life cycle stay together in this package: they share
// transactions and types.
//
// Objects have reference counts. Searching for unreferenced objects at each commit (mark and
// sweep) would be simpler, but it reads the keys of all members and objects, thousands, where
// a commit changes a few. It is only done if damage has made the counts unknown; see recount.
package store
