package main

import (
	"bytes"
	"strings"
	"testing"
)

// None of these gets so far as to connect to anything.
func TestWordsOfTheCommandLine(t *testing.T) {
	tests := map[string]struct {
		args []string
		code exitCode
		out  string // words that must be on stdout
		err  string // words that must be on stderr; "": nothing may be there
	}{
		"nothing shows how to begin":        {nil, exitDone, "kubectl edgehub status ds/NAME", ""},
		"--help":                            {[]string{"--help"}, exitDone, "How a DaemonSet opts in", ""},
		"help":                              {[]string{"help"}, exitDone, "How a DaemonSet opts in", ""},
		"help of a command":                 {[]string{"help", "status"}, exitDone, "Exit codes:", ""},
		"-h behind a command":               {[]string{"resume", "ds/web", "-h"}, exitDone, "circuit breaker", ""},
		"help of what is no command":        {[]string{"help", "stop"}, exitFailed, "", `unknown command "stop"`},
		"--version":                         {[]string{"--version"}, exitDone, "kubectl-edgehub ", ""},
		"no such command":                   {[]string{"stats", "ds/web"}, exitFailed, "", "want status, pause, resume, nodes, release or completion"},
		"completion of no shell":            {[]string{"completion"}, exitFailed, "", "want one shell: bash, zsh, fish"},
		"completion of another shell":       {[]string{"completion", "tcsh"}, exitFailed, "", `"tcsh" is no shell: want bash, zsh, fish`},
		"completion of bash":                {[]string{"completion", "bash"}, exitDone, "complete -F _kubectl_edgehub kubectl-edgehub", ""},
		"help of completion":                {[]string{"completion", "--help"}, exitDone, "kubectl_complete-edgehub", ""},
		"no such flag":                      {[]string{"status", "ds/web", "--all"}, exitFailed, "", "--all"},
		"no name":                           {[]string{"status"}, exitFailed, "", "no DaemonSet is named"},
		"another kind":                      {[]string{"pause", "deploy/web"}, exitFailed, "", `"deploy/web" is no DaemonSet`},
		"two names":                         {[]string{"pause", "ds", "web", "log"}, exitFailed, "", "want one DaemonSet"},
		"a name without a kind":             {[]string{"status", "web"}, exitFailed, "", "as ds/NAME or ds NAME"},
		"no name behind the kind":           {[]string{"status", "ds/"}, exitFailed, "", "as ds/NAME or ds NAME"},
		"a flag of another command":         {[]string{"pause", "ds/web", "-w"}, exitFailed, "", "--watch is no flag of pause"},
		"a flag that nodes does not have":   {[]string{"nodes", "-w"}, exitFailed, "", "--watch is no flag of nodes"},
		"two nodes":                         {[]string{"nodes", "a", "b"}, exitFailed, "", "want one node, or none"},
		"a release of nothing":              {[]string{"release"}, exitFailed, "", "want one node"},
		"a release for programs":            {[]string{"release", "a", "-o", "json"}, exitFailed, "", "--output is no flag of release"},
		"help of nodes":                     {[]string{"nodes", "-h"}, exitDone, "OFFLINE SINCE", ""},
		"help of release":                   {[]string{"help", "release"}, exitDone, "autonomy-released", ""},
		"an output that does not exist":     {[]string{"status", "ds/web", "-o", "yaml"}, exitFailed, "", "want json"},
		"a table and JSON":                  {[]string{"status", "ds/web", "-o", "json", "--nodes"}, exitFailed, "", "leave --nodes out"},
		"a timeout without a watch":         {[]string{"status", "ds/web", "--timeout=1m"}, exitFailed, "", "add --watch"},
		"a timeout below nothing":           {[]string{"status", "ds/web", "-w", "--timeout=-1m"}, exitFailed, "", "such as 10m"},
		"Ready nodes only, without a watch": {[]string{"status", "ds/web", "--ready-only"}, exitFailed, "", "add --watch"},
		"a kubeconfig that is not there":    {[]string{"status", "ds/web", "--kubeconfig", "/nowhere/at/all"}, exitFailed, "", "read kubeconfig"},
		"flags before the command":          {[]string{"--kubeconfig", "/nowhere/at/all", "status", "ds/web"}, exitFailed, "", "read kubeconfig"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			code := run(t.Context(), "kubectl-edgehub", tt.args, streams{out: &out, err: &errs})
			if code != tt.code {
				t.Errorf("got exit code %d, want %d", code, tt.code)
			}
			if !strings.Contains(out.String(), tt.out) || !strings.Contains(errs.String(), tt.err) || (tt.err == "") != (errs.Len() == 0) {
				t.Errorf("got on stdout %q and on stderr %q; want %q and %q", out.String(), errs.String(), tt.out, tt.err)
			}
		})
	}
}

func TestNamesOfDaemonSets(t *testing.T) {
	for _, words := range [][]string{
		{"ds/web"}, {"DS/web"}, {"daemonset/web"}, {"daemonsets/web"}, {"daemonset.apps/web"}, {"daemonsets.apps/web"},
		{"ds", "web"}, {"daemonset.apps", "web"}, {"daemonset.v1.apps", "web"},
	} {
		if name, err := daemonSetName(words); err != nil || name != "web" {
			t.Errorf("%q: got %q and %v, want web", words, name, err)
		}
	}
}

// A line of help that wraps is hard to read.
func TestHelpFitsATerminal(t *testing.T) {
	for _, text := range []string{helpAll, helpStatus, helpPause, helpResume, helpNodes, helpRelease, helpCompletion} {
		for line := range strings.Lines(text) {
			if n := len(strings.TrimSuffix(line, "\n")); n > 90 {
				t.Errorf("%d columns: %s", n, line)
			}
		}
	}
}
