// Package events reports what the controller does with a DaemonSet, in Events and in the
// log. Each thing is reported once, when it begins to be so: the caller keeps what was
// reported last, and after a restart the conditions on the DaemonSet have it.
package events
