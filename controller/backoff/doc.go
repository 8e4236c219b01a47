// Package backoff decides when to try again: a DaemonSet that could not be reconciled, a
// pod whose patch or deletion failed, and a rollout step while pods and nodes keep
// changing. It sends no request and starts no timer; the caller asks it for a time.
package backoff
