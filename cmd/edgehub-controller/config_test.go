package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
)

func TestDefaults(t *testing.T) {
	c, err := parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.metricsAddr != ":10271" || c.probeAddr != ":10272" || !c.election.enabled || c.election.leaseDuration != 15*time.Second {
		t.Errorf("got %+v", c)
	}
}

func TestErrorsNameTheFlag(t *testing.T) {
	tests := map[string]struct {
		args []string
		want []string
	}{
		"a flag that does not exist":            {[]string{"--nonsense"}, []string{"--nonsense"}},
		"an argument":                           {[]string{"run"}, []string{`"run"`}},
		"no rate":                               {[]string{"--kube-api-qps=0"}, []string{"--kube-api-qps=0"}},
		"a rate that is no number":              {[]string{"--kube-api-qps=NaN"}, []string{"--kube-api-qps=NaN"}},
		"no burst":                              {[]string{"--kube-api-burst=0"}, []string{"--kube-api-burst=0"}},
		"no workers":                            {[]string{"--workers=0"}, []string{"--workers=0"}},
		"a selector that is none":               {[]string{"--autonomy-selector=a b"}, []string{"--autonomy-selector"}},
		"a duration below 0":                    {[]string{"--autonomy-duration=-1h"}, []string{"--autonomy-duration"}},
		"a duration for no nodes":               {[]string{"--autonomy-duration=1h"}, []string{"--autonomy-duration", "--autonomy-selector"}},
		"no seconds by default":                 {[]string{"--default-toleration-seconds=0"}, []string{"--default-toleration-seconds"}},
		"an address without a port":             {[]string{"--metrics-addr=localhost"}, []string{"--metrics-addr"}},
		"an empty address":                      {[]string{"--health-probe-addr="}, []string{"--health-probe-addr"}},
		"no namespace for the lease":            {[]string{"--leader-elect-resource-namespace="}, []string{"--leader-elect-resource-namespace"}},
		"no name for the lease":                 {[]string{"--leader-elect-resource-name="}, []string{"--leader-elect-resource-name"}},
		"a lease shorter than its renewal":      {[]string{"--leader-elect-lease-duration=5s"}, []string{"--leader-elect-lease-duration", "--leader-elect-renew-deadline"}},
		"a renewal shorter than a try":          {[]string{"--leader-elect-renew-deadline=2s"}, []string{"--leader-elect-renew-deadline", "--leader-elect-retry-period"}},
		"no time between tries":                 {[]string{"--leader-elect-retry-period=0s"}, []string{"--leader-elect-retry-period"}},
		"a log level that does not exist":       {[]string{"--log-level=loud"}, []string{"--log-level"}},
		"all that is wrong is said at one time": {[]string{"--workers=-1", "--metrics-addr=x"}, []string{"--workers", "--metrics-addr"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := parse(tt.args)
			if err == nil {
				t.Fatal("got no error")
			}
			for _, flag := range tt.want {
				if !strings.Contains(err.Error(), flag) {
					t.Errorf("got %q, want %s in it", err, flag)
				}
			}
		})
	}
}

func TestElectionFlagsDoNotMatterWithoutElection(t *testing.T) {
	if _, err := parse([]string{"--leader-elect=false", "--leader-elect-resource-namespace="}); err != nil {
		t.Error(err)
	}
}

func TestAutonomyFlags(t *testing.T) {
	for args, want := range map[string]string{
		"":                 "300 s, no labels",
		"--autonomy=false": "nothing",
		"--autonomy-selector=edge --autonomy-duration=1h":           "300 s, edge for up to 1h0m0s",
		"--autonomy-selector=edge":                                  "300 s, edge however long that is",
		"--autonomy-selector=a=b,c --default-toleration-seconds=30": "30 s, a=b,c however long that is",
	} {
		c, err := parse(strings.Fields(args))
		if err != nil {
			t.Fatal(err)
		}
		got := "nothing"
		if f := c.fleet; f != nil {
			got = fmt.Sprintf("%d s, ", f.Defaults.NotReady)
			if f.Selector == nil {
				got += "no labels"
			} else {
				got += fmt.Sprint(f.Selector, " ", f.Selected)
			}
		}
		if got != want {
			t.Errorf("%q: got %s, want %s", args, got, want)
		}
	}
}

func TestAMissingKubeconfigNamesTheFlag(t *testing.T) {
	_, err := restConfig(&config{kubeconfig: t.TempDir() + "/none"})
	if err == nil || !strings.Contains(err.Error(), "--kubeconfig") {
		t.Errorf("got %v, want an error with --kubeconfig", err)
	}
}

func TestVersionNeedsNothingElseToBeRight(t *testing.T) {
	err := run(t.Context(), []string{"--version", "--workers=0"})
	if !errors.Is(err, pflag.ErrHelp) || cli.CodeOf(err) != cli.Done {
		t.Errorf("got %v, want nothing done", err)
	}
}

func TestAWrongFlagHasAnExitCodeOfItsOwn(t *testing.T) {
	for _, args := range [][]string{{"--workers=0"}, {"--foo"}, {"foo"}} {
		if code := cli.CodeOf(run(t.Context(), args)); code != cli.Usage {
			t.Errorf("%q: got exit code %d, want %d", args, code, cli.Usage)
		}
	}
}
