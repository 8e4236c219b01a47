package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/controller/workload"
)

// None of these gets so far as to connect to anything.
func TestWordsOfTheCommandLine(t *testing.T) {
	tests := map[string]struct {
		args []string
		code int
		out  string // words that must be on stdout
		err  string // words that must be on stderr; "": nothing may be there
	}{
		"nothing shows how to begin":        {nil, cli.Done, "kubectl edgehub status ds/NAME", ""},
		"--help":                            {[]string{"--help"}, cli.Done, "How a DaemonSet opts in", ""},
		"help":                              {[]string{"help"}, cli.Done, "How a DaemonSet opts in", ""},
		"help of a command":                 {[]string{"help", "status"}, cli.Done, "Exit codes:", ""},
		"-h behind a command":               {[]string{"resume", "ds/web", "-h"}, cli.Done, "circuit breaker", ""},
		"--version":                         {[]string{"--version"}, cli.Done, "kubectl-edgehub ", ""},
		"no such command":                   {[]string{"stats", "ds/web"}, cli.Failed, "", "want status, pause, resume, nodes, bundle, release, completion"},
		"completion of bash":                {[]string{"completion", "bash"}, cli.Done, "complete -F _kubectl_edgehub kubectl-edgehub", ""},
		"help of completion":                {[]string{"completion", "--help"}, cli.Done, "kubectl_complete-edgehub", ""},
		"no name":                           {[]string{"pause"}, cli.Failed, "", "nothing is named"},
		"another kind":                      {[]string{"pause", "deploy/web"}, cli.Failed, "", `"deploy/web": want one DaemonSet or StatefulSet`},
		"two names":                         {[]string{"pause", "ds", "web", "log"}, cli.Failed, "", "want one DaemonSet or StatefulSet"},
		"a name without a kind":             {[]string{"status", "web"}, cli.Failed, "", "as ds/NAME or ds NAME"},
		"no name behind the kind":           {[]string{"status", "ds/"}, cli.Failed, "", "as ds/NAME or ds NAME"},
		"a flag of another command":         {[]string{"pause", "ds/web", "-w"}, cli.Failed, "", "--watch is no flag of pause"},
		"a flag that nodes does not have":   {[]string{"nodes", "-w"}, cli.Failed, "", "--watch is no flag of nodes"},
		"two nodes":                         {[]string{"nodes", "a", "b"}, cli.Failed, "", "want one node, or none"},
		"a release of nothing":              {[]string{"release"}, cli.Failed, "", "want one node"},
		"a release for programs":            {[]string{"release", "a", "-o", "json"}, cli.Failed, "", "--output is no flag of release"},
		"help of nodes":                     {[]string{"nodes", "-h"}, cli.Done, "OFFLINE SINCE", ""},
		"help of release":                   {[]string{"help", "release"}, cli.Done, "autonomy-released", ""},
		"an output that does not exist":     {[]string{"status", "ds/web", "-o", "yaml"}, cli.Failed, "", "want json"},
		"a table and JSON":                  {[]string{"status", "ds/web", "-o", "json", "--nodes"}, cli.Failed, "", "leave --nodes out"},
		"a timeout without a watch":         {[]string{"status", "ds/web", "--timeout=1m"}, cli.Failed, "", "add --watch"},
		"a timeout below nothing":           {[]string{"status", "ds/web", "-w", "--timeout=-1m"}, cli.Failed, "", "such as 10m"},
		"Ready nodes only, without a watch": {[]string{"status", "ds/web", "--ready-only"}, cli.Failed, "", "add --watch"},
		"a kubeconfig that is not there":    {[]string{"status", "ds/web", "--kubeconfig", "/nowhere/at/all"}, cli.Failed, "", "read kubeconfig"},
		"flags before the command":          {[]string{"--kubeconfig", "/nowhere/at/all", "status", "ds/web"}, cli.Failed, "", "read kubeconfig"},
		"a watch of nothing":                {[]string{"status", "-w"}, cli.Failed, "", "--watch and --nodes are about one"},
		"a name and all namespaces":         {[]string{"status", "ds/web", "-A"}, cli.Failed, "", "--all-namespaces is for a status without a name"},
		"help of bundle":                    {[]string{"bundle", "-h"}, cli.Done, "edgehubctl import", ""},
		"a bundle of nothing":               {[]string{"bundle"}, cli.Failed, "", "nothing is named"},
		"a bundle without a file":           {[]string{"bundle", "ds/web", "--key=k"}, cli.Failed, "", "--output FILE"},
		"a bundle into a folder":            {[]string{"bundle", "ds/web", "--key=k", "-o", "help"}, cli.Failed, "", "--output=help: it is there, and no file"},
		"a bundle without a key":            {[]string{"bundle", "ds/web", "-o", "-"}, cli.Failed, "", "--key FILE; `openssl genpkey"},
		"a bundle for a moment":             {[]string{"bundle", "ds/web", "-o", "-", "--key=k", "--valid-for=1s"}, cli.Failed, "", "want a duration from 1m to 2160h0m0s"},
		"a bundle for too long":             {[]string{"bundle", "ds/web", "-o", "-", "--key=k", "--valid-for=2161h"}, cli.Failed, "", "want a duration from 1m to 2160h0m0s"},
		"platforms of no images":            {[]string{"bundle", "ds/web", "-o", "-", "--key=k", "--platform=linux/arm64"}, cli.Failed, "", "add --images"},
		"a platform that is none":           {[]string{"bundle", "ds/web", "-o", "-", "--key=k", "--images", "--platform=linux/arm64,arm"}, cli.Failed, "", `"arm" is no platform such as`},
		"a key that is not there":           {[]string{"bundle", "ds/web", "-o", "-", "--key=/nowhere"}, cli.Failed, "", "read --key: open /nowhere"},
		"a key that is none":                {[]string{"bundle", "ds/web", "-o", "-", "--key=main.go"}, cli.Failed, "", "--key main.go: it is not PEM"},
		"a key for status":                  {[]string{"status", "ds/web", "--key=k"}, cli.Failed, "", "--key is no flag of status"},
		"a pause of a StatefulSet":          {[]string{"pause", "sts/db"}, cli.Failed, "", `"sts/db" is no DaemonSet`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			code := run(t.Context(), "kubectl-edgehub", tt.args, &out, &errs)
			if code != tt.code {
				t.Errorf("got exit code %d, want %d", code, tt.code)
			}
			if !strings.Contains(out.String(), tt.out) || !strings.Contains(errs.String(), tt.err) || (tt.err == "") != (errs.Len() == 0) {
				t.Errorf("got on stdout %q and on stderr %q; want %q and %q", out.String(), errs.String(), tt.out, tt.err)
			}
		})
	}
}

func TestNamesOfWorkloads(t *testing.T) {
	for kind, all := range map[workload.Kind][][]string{
		workload.DaemonSet: {
			{"ds/web"}, {"DS/web"}, {"daemonset/web"}, {"daemonsets/web"}, {"daemonset.apps/web"}, {"daemonsets.apps/web"},
			{"ds", "web"}, {"daemonset.apps", "web"}, {"daemonset.v1.apps", "web"},
		},
		workload.StatefulSet: {{"sts/web"}, {"StatefulSet/web"}, {"statefulsets.apps/web"}, {"sts", "web"}, {"statefulset.v1.apps", "web"}},
	} {
		for _, words := range all {
			if got, err := parseName(words); err != nil || got != (named{kind, "web"}) {
				t.Errorf("%q: got %q and %v, want the %s web", words, got, err, kind)
			}
		}
	}
}

// A line of help that wraps is hard to read.
func TestEachCommandHasHelpThatFitsATerminal(t *testing.T) {
	for _, c := range append(new(call).program().Commands, cli.Command{Name: name}) {
		text, err := help.ReadFile("help/" + c.Name + ".txt")
		if err != nil {
			t.Error(err)
		}
		for line := range strings.Lines(string(text)) {
			if n := len(strings.TrimSuffix(line, "\n")); n > 90 {
				t.Errorf("%d columns: %s", n, line)
			}
		}
	}
}
