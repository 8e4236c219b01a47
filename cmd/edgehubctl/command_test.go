package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
)

// None of these gets so far as to ask a hub, or containerd.
func TestWordsOfTheCommandLine(t *testing.T) {
	tests := map[string]struct {
		args []string
		code int
		out  string // words that must be on stdout
		err  string // words that must be on stderr; "": nothing may be there
	}{
		"nothing shows how to begin":        {nil, cli.Done, "edgehubctl pull NAMESPACE/POD", ""},
		"--help":                            {[]string{"--help"}, cli.Done, "Exit codes:", ""},
		"help":                              {[]string{"help"}, cli.Done, "Exit codes:", ""},
		"help of a command":                 {[]string{"help", "pods"}, cli.Done, "What the columns mean", ""},
		"-h behind a command":               {[]string{"upgrade", "shop/web", "-h"}, cli.Done, "--wait", ""},
		"--version":                         {[]string{"--version"}, cli.Done, "edgehubctl ", ""},
		"no such command":                   {[]string{"pod"}, cli.Usage, "", "want pods, pull, upgrade, import, queue, cancel, hold, rollback, history, status, events, web, check, bundle, logs, exec, restart, completion"},
		"no pod":                            {[]string{"pull"}, cli.Usage, "", "want one POD, got 0 words; see edgehubctl pull --help"},
		"two pods":                          {[]string{"upgrade", "a/b", "c/d"}, cli.Usage, "", "want one POD, got 2 words"},
		"a word too many":                   {[]string{"status", "now"}, cli.Usage, "", "want nothing behind the command, got 1 word"},
		"a flag of another command":         {[]string{"status", "--wait"}, cli.Usage, "", "--wait is no flag of status; see edgehubctl status --help"},
		"an output that does not exist":     {[]string{"pods", "-o", "yaml"}, cli.Usage, "", "want json or wide, or leave it out"},
		"a wide form of what is no table":   {[]string{"pull", "shop/web-1", "-o", "wide"}, cli.Usage, "", "want json, or leave it out"},
		"a timeout below nothing":           {[]string{"pull", "a/b", "--timeout=-1m"}, cli.Usage, "", "such as 10m"},
		"a timeout that is no duration":     {[]string{"pull", "a/b", "--timeout=10"}, cli.Usage, "", "--timeout"},
		"a timeout of nothing to wait for":  {[]string{"pull", "a/b", "--timeout=1m", "--no-wait"}, cli.Usage, "", "leave it out, or --no-wait"},
		"an upgrade's timeout without wait": {[]string{"upgrade", "a/b", "--no-pull", "--timeout=1m"}, cli.Usage, "", "add --wait"},
		"a later upgrade's, without wait":   {[]string{"upgrade", "a/b", "--at=03:00", "--timeout=1m"}, cli.Usage, "", "add --wait"},
		"a rollback's, without wait":        {[]string{"rollback", "a/b", "--timeout=1m"}, cli.Usage, "", "add --wait"},
		"all pods and one":                  {[]string{"upgrade", "a/b", "--all"}, cli.Usage, "", "leave the pod out, or --all"},
		"neither all pods nor one":          {[]string{"upgrade"}, cli.Usage, "", "want one POD, got 0 words"},
		"a time and a window":               {[]string{"upgrade", "a/b", "--at=03:00", "--window=02:00-05:00"}, cli.Usage, "", "give one"},
		"a time zone of no window":          {[]string{"upgrade", "a/b", "--at=03:00", "--tz=UTC"}, cli.Usage, "", "add --window"},
		"a time that is none":               {[]string{"upgrade", "a/b", "--at=24:00"}, cli.Usage, "", "want 03:00"},
		"half a time":                       {[]string{"upgrade", "--all", "--at=3:00"}, cli.Usage, "", "want 03:00"},
		"to hold and not to hold":           {[]string{"hold", "a/b", "--for=2h", "--remove"}, cli.Usage, "", "leave the other flags out"},
		"to hold for nothing":               {[]string{"hold", "a/b", "--for=0s"}, cli.Usage, "", "such as 2h"},
		"a reason without a hold":           {[]string{"hold", "a/b", "--reason=driving"}, cli.Usage, "", "add --for"},
		"to cancel and to wait":             {[]string{"pull", "a/b", "--cancel", "--timeout=1m"}, cli.Usage, "", "--cancel ends a pull"},
		"an empty pod":                      {[]string{"pull", "shop/"}, cli.Usage, "", "want a pod as NAMESPACE/POD"},
		"an empty namespace":                {[]string{"pull", "/web"}, cli.Usage, "", "want a pod as NAMESPACE/POD"},
		"too many parts":                    {[]string{"pull", "a/b/c"}, cli.Usage, "", "want a pod as NAMESPACE/POD"},
		"two namespaces":                    {[]string{"pull", "a/b", "-n", "c"}, cli.Usage, "", "leave -n out"},
		"an address without a port":         {[]string{"pods", "--address", "127.0.0.1"}, cli.Usage, "", "want HOST:PORT"},
		"an address that is a URL":          {[]string{"pods", "--address", "http://127.0.0.1:10267"}, cli.Usage, "", "want HOST:PORT"},
		"an address that cannot be one":     {[]string{"pods", "--address", "a b:1"}, cli.Usage, "", "--address"},
		"a bundle and JSON on stdout":       {[]string{"bundle", "--output-file=-", "-o", "json"}, cli.Usage, "", "leave --output out"},
		"a file of another command":         {[]string{"events", "--output-file=x"}, cli.Usage, "", "--output-file is no flag of events"},
		"no file to import":                 {[]string{"import"}, cli.Usage, "", "want one FILE, or - for stdin, got 0 words"},
		"two files to import":               {[]string{"import", "a", "b"}, cli.Usage, "", "want one FILE"},
		"all of the disk to stay free":      {[]string{"import", "--min-free=100", "a"}, cli.Usage, "", "want a percentage"},
		"nothing listens on that port":      {[]string{"--address", "127.0.0.1:1", "pods"}, cli.Failed, "", "the hub does not answer on 127.0.0.1:1: is it running? systemctl status edgehub"},
		"a host that is left out is this":   {[]string{"--address", ":1", "pods"}, cli.Failed, "", "the hub does not answer on 127.0.0.1:1:"},
		"a host that cannot be looked up":   {[]string{"--address", "no.invalid:1", "pods"}, cli.Failed, "", "the hub does not answer on no.invalid:1: "},
		"a log of the past that comes":      {[]string{"logs", "-fp", "a/b"}, cli.Usage, "", "leave one out"},
		"fewer lines than none":             {[]string{"logs", "--tail=-2", "a/b"}, cli.Usage, "", "want a number of lines"},
		"a time to come":                    {[]string{"logs", "--since=-1m", "a/b"}, cli.Usage, "", "such as 10m"},
		"logs as JSON":                      {[]string{"logs", "-o", "json", "a/b"}, cli.Usage, "", "--output is no flag of logs"},
		"no command to run":                 {[]string{"exec", "a/b"}, cli.Usage, "", "want POD -- COMMAND behind exec"},
		"a command without --":              {[]string{"exec", "a/b", "ls"}, cli.Usage, "", "want POD -- COMMAND behind exec"},
		"a command without a pod":           {[]string{"exec", "--", "ls", "-l"}, cli.Usage, "", "want POD -- COMMAND behind exec"},
		"a command in two pods":             {[]string{"exec", "a/b", "c/d", "--", "ls"}, cli.Usage, "", "want POD -- COMMAND behind exec"},
		"a terminal without stdin":          {[]string{"exec", "-t", "a/b", "--", "sh"}, cli.Usage, "", "write -it"},
		"to wait for a restart and not":     {[]string{"restart", "--no-wait", "--timeout=1m", "a/b"}, cli.Usage, "", "leave it out, or --no-wait"},
		"a socket that is none":             {[]string{"logs", "--container-runtime-endpoint=x", "a/b"}, cli.Usage, "", "is no socket"},
		"a socket that is not there":        {[]string{"logs", "--container-runtime-endpoint=unix:///none/cri.sock", "a/b"}, cli.Failed, "", "run this on the node itself, not in a container"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			code := run(t.Context(), tt.args, &out, &errs, usualTiming())
			result{code, out.String(), errs.String()}.has(t, tt.code, tt.out, tt.err)
			if n := strings.Count(errs.String(), "\n"); n > 1 {
				t.Errorf("%d lines on stderr, want one: %s", n, errs.String())
			}
		})
	}
}

func TestTheAddressIsTakenFromTheEnvironment(t *testing.T) {
	h := newFakeHub(t).on("GET", "/pods", podList())
	t.Setenv("EDGEHUB_ADDRESS", h.address)
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1") // must not be asked
	var out, errs bytes.Buffer
	code := run(t.Context(), []string{"pods"}, &out, &errs, usualTiming())
	result{code, out.String(), errs.String()}.is(t, cli.Done, "No pods on this node.\n", "")
}
