package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// kinds are the ways in which kubectl lets people write DaemonSet.
var kinds = []string{"ds", "daemonset", "daemonsets", "daemonset.apps", "daemonsets.apps", "daemonset.v1.apps", "daemonsets.v1.apps"}

// daemonSetName reads the name from the words of a command line: ds/NAME or
// ds NAME, with any of the kinds, in any letter case.
func daemonSetName(words []string) (string, error) {
	const want = "want one DaemonSet, as ds/NAME or ds NAME"
	var kind, name string
	switch len(words) {
	case 0:
		return "", errors.New("no DaemonSet is named: " + want)
	case 1:
		var ok bool
		if kind, name, ok = strings.Cut(words[0], "/"); !ok {
			return "", fmt.Errorf("%q: %s", words[0], want)
		}
	case 2:
		kind, name = words[0], words[1]
	default:
		return "", fmt.Errorf("%q: %s", strings.Join(words, " "), want)
	}
	if !slices.Contains(kinds, strings.ToLower(kind)) {
		return "", fmt.Errorf("%q is no DaemonSet: %s", strings.Join(words, " "), want)
	}
	if name == "" || strings.Contains(name, "/") {
		return "", fmt.Errorf("%q: %s", strings.Join(words, " "), want)
	}
	return name, nil
}
