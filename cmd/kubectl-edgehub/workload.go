package main

import (
	"slices"
	"strings"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/controller/workload"
)

// spellings are the ways in which kubectl lets people write kind, the shortest first.
func spellings(kind workload.Kind) []string {
	out := []string{"ds"}
	if kind == workload.StatefulSet {
		out = []string{"sts"}
	}
	name := strings.ToLower(string(kind))
	for _, name := range []string{name, name + "s"} {
		out = append(out, name, name+".apps", name+".v1.apps")
	}
	return out
}

// kindOf returns the kind that somebody wrote, in any letter case, or "".
func kindOf(word string) workload.Kind {
	for _, kind := range []workload.Kind{workload.DaemonSet, workload.StatefulSet} {
		if slices.Contains(spellings(kind), strings.ToLower(word)) {
			return kind
		}
	}
	return ""
}

// named is the workload that a command is about.
type named struct {
	kind workload.Kind
	name string
}

// parseName reads the words of a command line: ds/NAME or ds NAME, with any spelling of a kind.
func parseName(words []string) (named, error) {
	const want = "want one DaemonSet or StatefulSet, as ds/NAME or ds NAME"
	var kind, name string
	switch len(words) {
	case 0:
		return named{}, cli.WrongUse("nothing is named: %s", want)
	case 1:
		var ok bool
		if kind, name, ok = strings.Cut(words[0], "/"); !ok {
			return named{}, cli.WrongUse("%q: %s", words[0], want)
		}
	case 2:
		kind, name = words[0], words[1]
	default:
		return named{}, cli.WrongUse("%q: %s", strings.Join(words, " "), want)
	}
	n := named{kindOf(kind), name}
	if n.kind == "" || name == "" || strings.Contains(name, "/") {
		return named{}, cli.WrongUse("%q: %s", strings.Join(words, " "), want)
	}
	return n, nil
}
