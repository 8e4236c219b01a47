// Package overlay keeps what a node writes about itself while the cloud is away: its status,
// the status of its pods, and its lease.
//
// A kubelet that cannot write them retries forever, and relies on what it reads back. So an
// update is applied to the cached object, the client gets the merged object, and everybody who
// has read the object sees the status, too. Updates are never sent to the cloud: a kubelet
// sends its lease within seconds of the return, and its status when its own watch shows it that
// the cloud does not have it.
//
// # Invariants
//
//   - An update lies over a cached object with a certain version and UID. When the cache gets a
//     newer version, or another object of that name, the update is void, with or without Drop.
//   - The resourceVersion stays that of the cached object: no version is invented.
//   - The node reads its own updates in full. Other users read the status, and a Node's annotations, and only over a
//     copy of the same object at the same version.
//   - Updates of pods and nodes are also in a table, for a restart of the hub; those of leases
//     are in memory only.
//   - Computed updates, of package localendpoints, are in no Overlay. Touch announces them to
//     those that show updates.
//
// # Life cycle
//
// New and Load; Apply, Find and Updates while the cloud is away; and Drop when it has been back
// long enough for the kubelet to report everything again. If the next outage comes before, the
// updates are shown again, unless they are void. OnChange notifies whoever shows updates to
// clients. An Overlay is safe for concurrent use; updates of one object are serialized.
package overlay
