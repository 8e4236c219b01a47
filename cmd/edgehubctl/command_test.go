package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/edgehub-io/edgehub/cmd/edgehubctl/cri"
)

// None of these gets so far as to ask a hub, or containerd.
func TestWordsOfTheCommandLine(t *testing.T) {
	tests := map[string]struct {
		args []string
		code exitCode
		out  string // words that must be on stdout
		err  string // words that must be on stderr; "": nothing may be there
	}{
		"nothing shows how to begin":        {nil, exitDone, "edgehubctl pull NAMESPACE/POD", ""},
		"--help":                            {[]string{"--help"}, exitDone, "Exit codes:", ""},
		"help":                              {[]string{"help"}, exitDone, "Exit codes:", ""},
		"help of a command":                 {[]string{"help", "pods"}, exitDone, "What the columns mean", ""},
		"-h behind a command":               {[]string{"upgrade", "shop/web", "-h"}, exitDone, "--wait", ""},
		"help of what is no command":        {[]string{"help", "stop"}, exitUsage, "", `unknown command "stop"`},
		"--version":                         {[]string{"--version"}, exitDone, "edgehubctl ", ""},
		"no such command":                   {[]string{"pod"}, exitUsage, "", "want pods, pull, upgrade, queue, cancel, hold, rollback, history, status, events, web, bundle, completion"},
		"no such flag":                      {[]string{"pods", "--every"}, exitUsage, "", "--every"},
		"no pod":                            {[]string{"pull"}, exitUsage, "", "want POD behind pull, got 0 words"},
		"two pods":                          {[]string{"upgrade", "a/b", "c/d"}, exitUsage, "", "want POD behind upgrade, got 2 words"},
		"a word too many":                   {[]string{"status", "now"}, exitUsage, "", "want nothing behind status, got 1 word"},
		"a flag of another command":         {[]string{"status", "--wait"}, exitUsage, "", "--wait is no flag of status; see edgehubctl status --help"},
		"an output that does not exist":     {[]string{"pods", "-o", "yaml"}, exitUsage, "", "want json or wide, or leave it out"},
		"a wide form of what is no table":   {[]string{"pull", "shop/web-1", "-o", "wide"}, exitUsage, "", "want json, or leave it out"},
		"a timeout below nothing":           {[]string{"pull", "a/b", "--timeout=-1m"}, exitUsage, "", "such as 10m"},
		"a timeout that is no duration":     {[]string{"pull", "a/b", "--timeout=10"}, exitUsage, "", "--timeout"},
		"a timeout of nothing to wait for":  {[]string{"pull", "a/b", "--timeout=1m", "--no-wait"}, exitUsage, "", "leave it out, or --no-wait"},
		"an upgrade's timeout without wait": {[]string{"upgrade", "a/b", "--no-pull", "--timeout=1m"}, exitUsage, "", "add --wait"},
		"a later upgrade's, without wait":   {[]string{"upgrade", "a/b", "--at=03:00", "--timeout=1m"}, exitUsage, "", "add --wait"},
		"a rollback's, without wait":        {[]string{"rollback", "a/b", "--timeout=1m"}, exitUsage, "", "add --wait"},
		"all pods and one":                  {[]string{"upgrade", "a/b", "--all"}, exitUsage, "", "leave the pod out, or --all"},
		"neither all pods nor one":          {[]string{"upgrade"}, exitUsage, "", "want POD behind upgrade, got 0 words"},
		"a time and a window":               {[]string{"upgrade", "a/b", "--at=03:00", "--window=02:00-05:00"}, exitUsage, "", "give one"},
		"a time zone of no window":          {[]string{"upgrade", "a/b", "--at=03:00", "--tz=UTC"}, exitUsage, "", "add --window"},
		"a time that is none":               {[]string{"upgrade", "a/b", "--at=24:00"}, exitUsage, "", "want 03:00"},
		"half a time":                       {[]string{"upgrade", "--all", "--at=3:00"}, exitUsage, "", "want 03:00"},
		"to hold and not to hold":           {[]string{"hold", "a/b", "--for=2h", "--remove"}, exitUsage, "", "leave the other flags out"},
		"to hold for nothing":               {[]string{"hold", "a/b", "--for=0s"}, exitUsage, "", "such as 2h"},
		"a reason without a hold":           {[]string{"hold", "a/b", "--reason=driving"}, exitUsage, "", "add --for"},
		"to cancel and to wait":             {[]string{"pull", "a/b", "--cancel", "--timeout=1m"}, exitUsage, "", "--cancel ends a pull"},
		"an empty pod":                      {[]string{"pull", "shop/"}, exitUsage, "", "want a pod as NAMESPACE/POD"},
		"an empty namespace":                {[]string{"pull", "/web"}, exitUsage, "", "want a pod as NAMESPACE/POD"},
		"too many parts":                    {[]string{"pull", "a/b/c"}, exitUsage, "", "want a pod as NAMESPACE/POD"},
		"two namespaces":                    {[]string{"pull", "a/b", "-n", "c"}, exitUsage, "", "leave -n out"},
		"an address without a port":         {[]string{"pods", "--address", "127.0.0.1"}, exitUsage, "", "want HOST:PORT"},
		"an address that is a URL":          {[]string{"pods", "--address", "http://127.0.0.1:10267"}, exitUsage, "", "want HOST:PORT"},
		"an address that cannot be one":     {[]string{"pods", "--address", "a b:1"}, exitUsage, "", "--address"},
		"a bundle and JSON on stdout":       {[]string{"bundle", "--output-file=-", "-o", "json"}, exitUsage, "", "leave --output out"},
		"a file of another command":         {[]string{"events", "--output-file=x"}, exitUsage, "", "--output-file is no flag of events"},
		"a shell that is none":              {[]string{"completion", "csh"}, exitUsage, "", "want bash, zsh, fish"},
		"nothing listens on that port":      {[]string{"--address", "127.0.0.1:1", "pods"}, exitFailed, "", "the hub does not answer on 127.0.0.1:1: is it running? systemctl status edgehub"},
		"a host that is left out is this":   {[]string{"--address", ":1", "pods"}, exitFailed, "", "the hub does not answer on 127.0.0.1:1:"},
		"a host that cannot be looked up":   {[]string{"--address", "no.invalid:1", "pods"}, exitFailed, "", "the hub does not answer on no.invalid:1: "},
		"a log of the past that comes":      {[]string{"logs", "-fp", "a/b"}, exitUsage, "", "leave one out"},
		"fewer lines than none":             {[]string{"logs", "--tail=-2", "a/b"}, exitUsage, "", "want a number of lines"},
		"a time to come":                    {[]string{"logs", "--since=-1m", "a/b"}, exitUsage, "", "such as 10m"},
		"logs as JSON":                      {[]string{"logs", "-o", "json", "a/b"}, exitUsage, "", "--output is no flag of logs"},
		"no command to run":                 {[]string{"exec", "a/b"}, exitUsage, "", "want POD -- COMMAND behind exec"},
		"a command without --":              {[]string{"exec", "a/b", "ls"}, exitUsage, "", "want POD -- COMMAND behind exec"},
		"a command without a pod":           {[]string{"exec", "--", "ls", "-l"}, exitUsage, "", "want POD -- COMMAND behind exec"},
		"a command in two pods":             {[]string{"exec", "a/b", "c/d", "--", "ls"}, exitUsage, "", "want POD -- COMMAND behind exec"},
		"a terminal without stdin":          {[]string{"exec", "-t", "a/b", "--", "sh"}, exitUsage, "", "write -it"},
		"to wait for a restart and not":     {[]string{"restart", "--no-wait", "--timeout=1m", "a/b"}, exitUsage, "", "leave it out, or --no-wait"},
		"a socket that is none":             {[]string{"logs", "--container-runtime-endpoint=x", "a/b"}, exitUsage, "", "is no socket"},
		"a socket that is not there":        {[]string{"logs", "--container-runtime-endpoint=unix:///none/cri.sock", "a/b"}, exitFailed, "", "run this on the node itself, not in a container"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			code := run(t.Context(), tt.args, streams{out: &out, err: &errs}, usualTiming())
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
	code := run(t.Context(), []string{"pods"}, streams{out: &out, err: &errs}, usualTiming())
	result{code, out.String(), errs.String()}.is(t, exitDone, "No pods on this node.\n", "")
}

func TestExitCodesOfContainers(t *testing.T) {
	if err := endingOf(&cri.Exited{Code: 42}); codeOf(err) != 42 || !errors.Is(err, errSilent) {
		t.Errorf("a command that ends with 42: exit code %d, %v", codeOf(err), err)
	}
	_, err := cri.Open("x", 0)
	if got := codeOf(endingOf(fmt.Errorf("in words: %w", err))); got != exitUsage {
		t.Errorf("wrong use: exit code %d", got)
	}
	if got := codeOf(endingOf(os.ErrInvalid)); got != exitFailed {
		t.Errorf("any other error: exit code %d", got)
	}
	if endingOf(nil) != nil {
		t.Error("no error has become one")
	}
}
