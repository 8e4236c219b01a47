package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/cmd/kubectl-edgehub/progress"
	"github.com/edgehub-io/edgehub/ota/api"
)

func TestPauseAndResume(t *testing.T) {
	const paused, going = api.PausedAnnotation, api.ContinueAnnotation
	halt := func(ds *appsv1.DaemonSet) {
		ds.Status.Conditions = []appsv1.DaemonSetCondition{{Type: api.HaltedCondition, Status: corev1.ConditionTrue,
			Message: "controllerrevision new: 2 of the 2 nodes with this revision went NotReady: node1, node2"}}
	}
	annotated := func(pairs ...string) func(*appsv1.DaemonSet) {
		return func(ds *appsv1.DaemonSet) {
			for i := 0; i < len(pairs); i += 2 {
				ds.Annotations[pairs[i]] = pairs[i+1]
			}
		}
	}
	tests := map[string]struct {
		do       func(context.Context, *cluster, string, io.Writer) error
		change   []func(*appsv1.DaemonSet)
		code     int
		says     string // on stdout, or in the error
		pause    string // afterwards, as the annotations have it
		revision string
	}{
		"a pause":                        {pause, nil, cli.Done, "daemonset.apps/web paused: ", "true", ""},
		"a second pause":                 {pause, []func(*appsv1.DaemonSet){annotated(paused, "true")}, cli.Done, "is paused already", "true", ""},
		"a pause despite wrong options":  {pause, []func(*appsv1.DaemonSet){annotated(api.MaxUnavailableAnnotation, "abc")}, cli.Done, "paused", "true", ""},
		"a resume":                       {resume, []func(*appsv1.DaemonSet){annotated(paused, "true")}, cli.Done, "daemonset.apps/web resumed\n", "", ""},
		"nothing to resume":              {resume, nil, cli.Done, "neither paused nor halted", "", ""},
		"of a paused rollout that halts": {resume, []func(*appsv1.DaemonSet){annotated(paused, "true"), halt}, progress.ExitHeldUp, "its circuit breaker holds it still: controllerrevision new: 2 of the 2", "", ""},
		"past the circuit breaker":       {resume, []func(*appsv1.DaemonSet){halt}, cli.Done, "it goes on with revision new, past the circuit breaker", "", "new"},
		"past the breaker of another revision": {resume, []func(*appsv1.DaemonSet){halt, annotated(going, "old")}, cli.Done,
			"it goes on with revision new", "", "new"},
		"past the circuit breaker already": {resume, []func(*appsv1.DaemonSet){halt, annotated(going, "new")}, cli.Done, "neither paused nor halted", "", "new"},
		"OTA":                              {pause, []func(*appsv1.DaemonSet){annotated(api.StrategyAnnotation, "OTA")}, cli.Failed, "asks for OTA: the owners of the nodes decide", "", ""},
		"a strategy that is none":          {resume, []func(*appsv1.DaemonSet){annotated(api.StrategyAnnotation, "x")}, cli.Failed, `is "x"`, "", ""},
		"no strategy":                      {pause, []func(*appsv1.DaemonSet){func(ds *appsv1.DaemonSet) { ds.Annotations = nil }}, cli.Failed, "has not opted into", "", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ds := rolling()
			for _, change := range tt.change {
				change(ds)
			}
			c := &cluster{client: fake.NewClientset(ds), namespace: "shop"}
			var out bytes.Buffer
			code := cli.Finish(&out, "error", tt.do(t.Context(), c, "web", &out))
			if code != tt.code || !strings.Contains(out.String(), tt.says) {
				t.Errorf("got exit code %d and %q; want %d and %q", code, out.String(), tt.code, tt.says)
			}
			after, err := c.client.AppsV1().DaemonSets("shop").Get(t.Context(), "web", metav1.GetOptions{})
			if err != nil || after.Annotations[paused] != tt.pause || after.Annotations[going] != tt.revision {
				t.Errorf("annotations are %v, %v; want a pause %q and %q to go on with", after.Annotations, err, tt.pause, tt.revision)
			}
		})
	}
}
