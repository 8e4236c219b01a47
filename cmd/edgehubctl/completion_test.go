package main

import (
	"bytes"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
)

func TestCompletion(t *testing.T) {
	// Of five pods, two need an upgrade, and one has no owner.
	h := newFakeHub(t).on("GET", "/pods", podList(
		old(), pod("shop", "web-7", newRevision, needs(corev1.ConditionFalse, newRevision)), pod("shop", "db-1", oldRevision),
		pod("kube-system", "proxy-2", oldRevision, needs(corev1.ConditionTrue, newRevision)),
		pod("shop", "bare-1", oldRevision, func(p *corev1.Pod) { p.OwnerReferences = nil }),
	))
	t.Setenv("EDGEHUB_ADDRESS", h.address)
	tests := map[string]struct{ words, want string }{
		"nothing yet":                        {"", "pods pull upgrade import queue cancel hold rollback history status events web check bundle logs exec restart completion help"},
		"a pod":                              {"pull ", "kube-system/proxy-2 shop/web-1"},
		"the beginning of a pod":             {"upgrade sh", "shop/web-1"},
		"a pod behind a flag":                {"upgrade --wait --timeout 1m sh", "shop/web-1"},
		"a pod in a namespace":               {"upgrade -n shop ", "web-1"},
		"a pod in a namespace, with it":      {"upgrade -n shop shop/", "shop/web-1"},
		"a second pod":                       {"upgrade shop/web-1 ", ""},
		"flags of a command":                 {"pull -", "--address --cancel --certificate-authority --client-certificate --client-key --help --namespace --no-wait --output --timeout --version"},
		"flags behind a pod":                 {"upgrade shop/web-1 --w", "--wait --window"},
		"a pod to hold":                      {"hold ", "kube-system/proxy-2 shop/db-1 shop/web-1 shop/web-7"},
		"a pod of nobody's, to look into":    {"logs -f shop/", "shop/bare-1 shop/db-1 shop/web-1 shop/web-7"},
		"a command in a pod":                 {"exec shop/web-1 -- ", ""},
		"flags of a hold":                    {"hold shop/web-1 --re", "--reason --remove"},
		"flags of no command":                {"--v", "--version"},
		"a form of output":                   {"pods -o ", "json wide"},
		"a form of what is no table":         {"pull -o ", "json"},
		"a form of output, at the beginning": {"-o ", "json wide"},
		"a duration":                         {"pull --timeout ", ""},
		"a namespace":                        {"pull -n ", ""},
		"a file":                             {"pull --client-key completion_t", "completion_test.go"},
		"a file to write":                    {"bundle --output-file completion_t", "completion_test.go"},
		"a file to import":                   {"import completion_t", "completion_test.go"},
		"flags of events":                    {"events --n", "--namespace"},
		"a command that takes nothing":       {"status ", ""},
		"a hub that is not there":            {"pull --address 127.0.0.1:1 ", ""},
		"an address that is none":            {"pull --address x ", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			run(t.Context(), append([]string{cli.Verb}, strings.Split(tt.words, " ")...), &out, &out, usualTiming())
			if got := strings.Join(strings.Fields(out.String()), " "); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
