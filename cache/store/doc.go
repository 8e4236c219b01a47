// Package store stores views, the objects that they hold and a few small tables in one log, so that
// what belongs together is committed together.
//
// # Model
//
// A view is the result of one query. It has an ID, a header and members; a member is the name
// of an object ("namespace/name") with its resourceVersion and the [Sum] of its bytes. An
// object is stored under (scope, name, resourceVersion, sum), where the scope is the resource
// and the representation. Views with equal bytes share them, and no view can change the
// bytes of another. Objects are removed with their last membership. Tables map keys to values, for
// other state that must survive together with views.
//
// # Life cycle
//
// Open, commit and read, Close. Run writes the log anew from time to time. Package writeback collects
// changes and commits them about once a second, so that no client waits for the disk.
//
// A Store is safe for concurrent use. One process at a time owns a folder.
//
// # Files
//
// The log (cache.log) has the bytes of objects and values, each sealed with a checksum (package
// seal), and for each commit a record of what it changes: headers, members with the places of their
// bytes, and removed ones. A commit appends both, with one sync. What is where is in memory, about
// 200 bytes for each object and 30 more for each view that has it; bytes are read from the log.
//
// The index (cache.index) has the records of commits once more, for a fast start: what comes after its
// last record, or from its first damaged one on, is read from the log. It is not synced. So damage of
// records in one of the files loses nothing, and damage of an object's bytes loses that object.
//
// The log is written anew, in the order in which lists read it, when more than half of it is not
// needed, and every six hours if anything has changed. The old one is overwritten with zeros. An ID
// in the headers and in all checksums shows which index belongs to which log.
//
// # Guarantees
//
//   - Commit is one transaction: after a crash at any instant, each view is as one Commit left
//     it, with its members, their bytes and its version. Of a commit that was not synced, nothing
//     is used unless all of it is there.
//   - A change names the version that it starts from. A view at another version refuses it with
//     ErrConflict, and must then be replaced as a whole.
//   - Nothing is ever silently missing. The checksum of a record covers its place as well as
//     its value; commits are numbered, and the header of a view has the number and a digest of its
//     members. See CheckTable for tables.
//
// # Damage
//
// Damage is an *Error that names the view, object or key, and is ErrCorrupt. An object that is
// damaged is written again when it is given again: what an earlier process has written is checked before
// it takes the place of bytes that are given. Where a log is written anew, all that is damaged is found,
// and reported; see Options. A damaged value can be deleted or replaced. If the log has lost the record
// of a commit, and the index that one or an earlier one, the Recovery has a Cause: a view that was changed
// later has View.Err (drop it, or replace it), and other views may be older than they were.
//
// # Encryption
//
// With a key, objects, values and the records of commits are encrypted with AES-256-GCM (with extended
// nonces, see package seal). Not encrypted are the number and size of these. Opening a file of another
// key, or of none, returns ErrKey, and does not change the file.
//
// # What was removed
//
// The old bytes stay in the log until it is written anew, [Options.RewriteEvery] later at most while
// the store is open, and an hour after that if there were Readers. A log that cannot be read at all is
// moved aside, and erased after a week, as are the files of versions that used bbolt: a hub that goes
// back to such a version finds them.
//
// This does not reach what a device or a file system has kept besides: flash memory that maps its
// blocks, copy-on-write, journals, backups; nor a copy that a crash or a full disk has cut short.
//
// # Why not bbolt
//
// Earlier versions kept the same in a file of bbolt. A page tree without checksums needed a check of
// all pages before it was opened, recovery from panics, a file that noted how the last owner ended,
// reference counts on disk, and snapshots, since a damaged page condemned the whole file. A commit
// wrote whole pages, and synced twice.
package store
