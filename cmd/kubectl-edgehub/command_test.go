package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/edgehub-io/edgehub/cmd/kubectl-edgehub/progress"
	"github.com/edgehub-io/edgehub/controller/workload"
)

// None of these gets so far as to connect to anything.
func TestWordsOfTheCommandLine(t *testing.T) {
	tests := map[string]struct {
		args []string
		code progress.ExitCode
		out  string // words that must be on stdout
		err  string // words that must be on stderr; "": nothing may be there
	}{
		"nothing shows how to begin":        {nil, progress.ExitDone, "kubectl edgehub status ds/NAME", ""},
		"--help":                            {[]string{"--help"}, progress.ExitDone, "How a DaemonSet opts in", ""},
		"help":                              {[]string{"help"}, progress.ExitDone, "How a DaemonSet opts in", ""},
		"help of a command":                 {[]string{"help", "status"}, progress.ExitDone, "Exit codes:", ""},
		"-h behind a command":               {[]string{"resume", "ds/web", "-h"}, progress.ExitDone, "circuit breaker", ""},
		"help of what is no command":        {[]string{"help", "stop"}, progress.ExitFailed, "", `unknown command "stop"`},
		"--version":                         {[]string{"--version"}, progress.ExitDone, "kubectl-edgehub ", ""},
		"no such command":                   {[]string{"stats", "ds/web"}, progress.ExitFailed, "", "want status, pause, resume, nodes, release or completion"},
		"completion of no shell":            {[]string{"completion"}, progress.ExitFailed, "", "want one shell: bash, zsh, fish"},
		"completion of another shell":       {[]string{"completion", "tcsh"}, progress.ExitFailed, "", `"tcsh" is no shell: want bash, zsh, fish`},
		"completion of bash":                {[]string{"completion", "bash"}, progress.ExitDone, "complete -F _kubectl_edgehub kubectl-edgehub", ""},
		"help of completion":                {[]string{"completion", "--help"}, progress.ExitDone, "kubectl_complete-edgehub", ""},
		"no such flag":                      {[]string{"status", "ds/web", "--all"}, progress.ExitFailed, "", "--all"},
		"no name":                           {[]string{"pause"}, progress.ExitFailed, "", "nothing is named"},
		"another kind":                      {[]string{"pause", "deploy/web"}, progress.ExitFailed, "", `"deploy/web": want one DaemonSet or StatefulSet`},
		"two names":                         {[]string{"pause", "ds", "web", "log"}, progress.ExitFailed, "", "want one DaemonSet or StatefulSet"},
		"a name without a kind":             {[]string{"status", "web"}, progress.ExitFailed, "", "as ds/NAME or ds NAME"},
		"no name behind the kind":           {[]string{"status", "ds/"}, progress.ExitFailed, "", "as ds/NAME or ds NAME"},
		"a flag of another command":         {[]string{"pause", "ds/web", "-w"}, progress.ExitFailed, "", "--watch is no flag of pause"},
		"a flag that nodes does not have":   {[]string{"nodes", "-w"}, progress.ExitFailed, "", "--watch is no flag of nodes"},
		"two nodes":                         {[]string{"nodes", "a", "b"}, progress.ExitFailed, "", "want one node, or none"},
		"a release of nothing":              {[]string{"release"}, progress.ExitFailed, "", "want one node"},
		"a release for programs":            {[]string{"release", "a", "-o", "json"}, progress.ExitFailed, "", "--output is no flag of release"},
		"help of nodes":                     {[]string{"nodes", "-h"}, progress.ExitDone, "OFFLINE SINCE", ""},
		"help of release":                   {[]string{"help", "release"}, progress.ExitDone, "autonomy-released", ""},
		"an output that does not exist":     {[]string{"status", "ds/web", "-o", "yaml"}, progress.ExitFailed, "", "want json"},
		"a table and JSON":                  {[]string{"status", "ds/web", "-o", "json", "--nodes"}, progress.ExitFailed, "", "leave --nodes out"},
		"a timeout without a watch":         {[]string{"status", "ds/web", "--timeout=1m"}, progress.ExitFailed, "", "add --watch"},
		"a timeout below nothing":           {[]string{"status", "ds/web", "-w", "--timeout=-1m"}, progress.ExitFailed, "", "such as 10m"},
		"Ready nodes only, without a watch": {[]string{"status", "ds/web", "--ready-only"}, progress.ExitFailed, "", "add --watch"},
		"a kubeconfig that is not there":    {[]string{"status", "ds/web", "--kubeconfig", "/nowhere/at/all"}, progress.ExitFailed, "", "read kubeconfig"},
		"flags before the command":          {[]string{"--kubeconfig", "/nowhere/at/all", "status", "ds/web"}, progress.ExitFailed, "", "read kubeconfig"},
		"a watch of nothing":                {[]string{"status", "-w"}, progress.ExitFailed, "", "--watch and --nodes are about one"},
		"a name and all namespaces":         {[]string{"status", "ds/web", "-A"}, progress.ExitFailed, "", "--all-namespaces is for a status without a name"},
		"a pause of a StatefulSet":          {[]string{"pause", "sts/db"}, progress.ExitFailed, "", `"sts/db" is no DaemonSet`},
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
func TestHelpFitsATerminal(t *testing.T) {
	for _, text := range []string{helpAll, helpStatus, helpPause, helpResume, helpNodes, helpRelease, helpCompletion} {
		for line := range strings.Lines(text) {
			if n := len(strings.TrimSuffix(line, "\n")); n > 90 {
				t.Errorf("%d columns: %s", n, line)
			}
		}
	}
}
