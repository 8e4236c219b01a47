// Package log is the write-ahead log in which the cache survives a restart: one file, to which batches are appended, each
// with one sync. The log does not know what it stores.
//
// # Model
//
// The owner's state is in memory: tables of rows. A row has a key, a small value, and the SHA-256 of the bodies
// that it needs: of a view a row for each member, with the object as its body. Equal bodies are stored once, in whichever tables
// they are; nothing counts how often. Memory is the only writer, so there is nothing to agree on with the file: no version that a change
// starts from, no conflict, and no second index. The log has in memory where each body is, about 100 bytes for each, and what waits
// to be written.
//
// What else must outlive a start, and is too small to have a package for it, are rows of a [Table], of which the log itself has
// the keys in memory.
//
// # Life cycle
//
// [New], [Log.Open], which applies what the file has to the owner's [State], then [Log.Run] until the end of the process. [Log.Put] does
// no I/O: changes wait in a queue, in which a later change of a row replaces an earlier one, and Run commits the queue about once
// a second. So what one Put has changed is on disk as a whole or not at all, and no client waits for the disk. If the
// queue becomes too large for a disk that is slow, full or absent, the table with the most bytes in it is given up, and its
// owner is told.
//
// A folder that cannot be opened is tried again by Run. By then memory is the truth, and is written to a new file; only if it
// has nothing to answer with, the file is read.
//
// # The file
//
//	slot | slot | bodies … | checkpoint | commit | commit | … | checkpoint | commit | …
//
// A commit has a number, and the record of what it changes: rows that were put or deleted, and the bodies that are new. The
// record stands before these bodies and once more behind them, so that no single bit, nor the sector that it is in, takes a
// commit back. Rows name bodies by their sums, and only records and checkpoints say where bodies are.
//
// A checkpoint is all rows, and the places of the bodies that they need, in parts that are sealed one by one. It is written in
// the batch of the commit that follows it, since it is exact only together with that one: the owner is asked for one table
// after the other while changes go on, and these are in that commit. One is due after 16 MiB, or after 16 times its own
// size. Then a slot of the header names it, in turns with the other slot, which names the one before.
//
// A start reads the newest checkpoint that is whole, and the commits behind it. So it takes as long with a file of 500 MB
// as with one of 30 MB.
//
// # The commit point
//
// The commit point is the sync of the file, after the second record of a commit was written. For a new file it is the renaming, after
// a sync of the file; nothing else is committed until the folder is synced, too. A slot is written after the sync of its
// checkpoint, so it never names one that a power cut has taken.
//
// A write that fails, as on a full disk, leaves nothing that counts: the file is cut, and the batch is written there again. After a sync
// that failed nobody knows what is on disk: a new file is written from memory and the old one.
//
// # Torn or damaged
//
// After a crash, the last batch may be torn. A commit counts if one of its two records and all of its bodies are there. If
// bodies are not, it counts nevertheless if something valid follows, or if its second record is there and no sector of zeros, which a
// power cut leaves behind: then they are damaged, and are missing. Reading a missing or damaged body is an [ErrCorrupt]: its object is
// unknown, and nothing else. To mend it, put a row with its bytes: what an earlier process has written is compared with what is given
// before it counts as the same.
//
// Of a checkpoint that is damaged the one before is read, with more commits; one of a new file is there twice. If both records of a commit
// are damaged, and what follows them is not, or no checkpoint is whole, the log calls [State.Lost]: what was deleted or
// revoked then must not come back.
//
// Not noticed is damage of all of the last commit, which looks like one that was never synced.
//
// # A new file
//
// The file is replaced when more than half of it is not needed and that is more than 8 MiB, when damage was found, and a day
// after it was begun if something deleted is in it. Bodies are copied in the order in which lists read them, while commits go on
// to the old file; commits wait only for the last of them, and for a checkpoint from memory. Readers that
// are open keep the old file, for an hour at most. Then it is overwritten with zeros. That does not reach what a device or a file
// system has kept besides: flash memory that maps its blocks, copy-on-write, journals, backups; nor what was left by a crash.
//
// A file of which no slot can be read, or of another format, is set aside, and erased after a week.
//
// # Encryption
//
// With a key, bodies, records and parts are encrypted with AES-256-GCM, with extended nonces (xaes.go). Each is bound to
// its place: a body to its sum; a record or part to the ID of its file, the number of the commit, and its number among
// the parts; frames, by a checksum, to their place in the file, too. Not encrypted are the numbers and sizes of these. A file
// of another key, or of none, is an [ErrKey], and is not changed.
package log
