// Package status computes what the controller writes to the status of DaemonSets and pods:
// the conditions that a DaemonSet should have, the mark that a pod should have, and the
// patches that lead there from what they have now. A mark is the condition PodNeedUpgrade
// together with the annotation that names the target; see package ota/upgrade.
//
// Everything here is a pure function and safe for concurrent use. Package podclient sends
// the patches of pods, and the controller those of DaemonSets.
package status
