package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/cmd/kubectl-edgehub/progress"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/controller/workload"
	"github.com/edgehub-io/edgehub/ota/api"
)

// rolling returns a DaemonSet web with AdvancedRollingUpdate, of which the controller says that one node is to be updated.
func rolling() *appsv1.DaemonSet {
	ds := managed("web", "AdvancedRollingUpdate")
	ds.Namespace, ds.UID, ds.Spec.Selector = "shop", "web-uid", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	say(&ds, rollout.ReasonUpdating, rollout.Group{State: rollout.Pending, Count: 1, Nodes: []string{"edge01"}})
	return &ds
}

func TestHowAWatchEnds(t *testing.T) {
	const none = time.Duration(0)
	says := func(reason string, state rollout.State) func(func(), *fake.Clientset) error {
		return func(_ func(), client *fake.Clientset) error {
			ds := rolling()
			say(ds, reason, rollout.Group{State: state, Count: 1, Nodes: []string{"edge01"}})
			return client.Tracker().Update(appsv1.SchemeGroupVersion.WithResource("daemonsets"), ds, "shop")
		}
	}
	tests := map[string]struct {
		change    func(*appsv1.DaemonSet)
		timeout   time.Duration
		meanwhile func(stop func(), client *fake.Clientset) error
		code      int
		out, err  string // the beginning of the last line, and words
	}{
		"with its rollout": {nil, none, says(rollout.ReasonComplete, rollout.Updated), cli.Done, "complete: so many nodes updated", ""},
		"with its timeout": {nil, 3 * time.Second, nil, progress.ExitUnderWay, "updating: so many nodes updated", "timed out after 3s: so many nodes updated"},
		"with its timeout, during a pause": {func(ds *appsv1.DaemonSet) { say(ds, rollout.ReasonPaused) }, 3 * time.Second, nil,
			progress.ExitHeldUp, "paused: ", "timed out after 3s"},
		"with its timeout, if the controller says nothing": {func(ds *appsv1.DaemonSet) { delete(ds.Annotations, api.ReportAnnotation) }, 3 * time.Second, nil,
			progress.ExitUnderWay, "unknown: ", "timed out after 3s: it is not known"},
		"with its person": {nil, none, func(stop func(), _ *fake.Clientset) error {
			stop()
			return nil
		}, progress.ExitUnderWay, "updating: ", ""},
		"with its DaemonSet": {nil, none, func(_ func(), client *fake.Clientset) error {
			return client.Tracker().Delete(appsv1.SchemeGroupVersion.WithResource("daemonsets"), "shop", "web")
		}, cli.Failed, "updating: ", "daemonset shop/web has been deleted"},
		"when only nodes that are not Ready are left": {nil, none, says(rollout.ReasonWaiting, rollout.WaitingNotReady), cli.Done, "waiting: so many nodes updated", ""},
		"at once, if the annotations are wrong": {func(ds *appsv1.DaemonSet) { ds.Annotations[api.MaxUnavailableAnnotation] = "abc" }, none, nil,
			progress.ExitHeldUp, "invalid: ", ""},
		"at once, without a strategy": {func(ds *appsv1.DaemonSet) { ds.Annotations = nil }, none, nil, cli.Failed, "", "has not opted into an update strategy"},
	}
	for name, tt := range tests {
		for _, output := range []string{"", "json"} {
			t.Run(name+output, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ds := rolling()
					if tt.change != nil {
						tt.change(ds)
					}
					client := fake.NewClientset(ds)
					ctx, stop := context.WithTimeout(t.Context(), time.Hour) // or else a watch that does not end would hang
					defer stop()
					if tt.meanwhile != nil {
						time.AfterFunc(5*time.Second, func() {
							if err := tt.meanwhile(stop, client); err != nil {
								t.Error(err)
							}
						})
					}
					var out, errs bytes.Buffer
					to := &cluster{client: client, namespace: "shop", clock: &serverClock{}}
					c := &call{watch: true, ready: true, timeout: tt.timeout, output: output, out: &out, err: &errs}
					code := cli.Finish(&errs, "error", c.statusOf(ctx, to, named{workload.DaemonSet, "web"}))
					if code != tt.code || (errs.Len() == 0) != (tt.err == "") || !strings.Contains(errs.String(), tt.err) {
						t.Errorf("got exit code %d and %q; want %d and %q", code, errs.String(), tt.code, tt.err)
					}
					lines := strings.Split(strings.TrimSpace(out.String()), "\n")
					last := lines[len(lines)-1]
					if output == "" {
						if !strings.HasPrefix(last, tt.out) {
							t.Errorf("the last line is %q, want %q", last, tt.out)
						}
						return
					}
					for _, line := range lines {
						if line != "" && !json.Valid([]byte(line)) {
							t.Errorf("no JSON: %q", line)
						}
					}
					if state, _, _ := strings.Cut(tt.out, ":"); state != "" && !strings.Contains(last, `"state":"`+state+`"`) {
						t.Errorf("the last line is %q, want the state %s", last, state)
					}
				})
			})
		}
	}
}
