package admission

import (
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// warnings takes down the Warning headers of answers.
type warnings struct {
	mu   sync.Mutex
	text []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, text)
}

// take returns the warnings since the last call, without what is the same in all.
func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, text := range w.text {
		_, words, _ := strings.Cut(text, "with binding '"+keysPolicyName+"': ")
		out = append(out, words)
	}
	w.text = nil
	return out
}

// warned is a client whose warnings are taken down, once the policy is in force.
func warned(t *testing.T) (*kubernetes.Clientset, *warnings) {
	t.Helper()
	w := &warnings{}
	config := env.cluster.AdminConfig()
	config.WarningHandler = w
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	poll.Eventually(t, "there are warnings", func() bool {
		tryCreate(t, client, daemonSet(rolling, map[string]string{"apps.openyurt.io/x": ""}))
		return len(w.take()) > 0
	})
	return client, w
}

func tryCreate(t *testing.T, client *kubernetes.Clientset, ds *appsv1.DaemonSet) {
	t.Helper()
	_, err := client.AppsV1().DaemonSets(namespace).Create(t.Context(), ds, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Errorf("refused: %v", err)
	}
}

const (
	known          = "Known are apps.openyurt.io/: update-strategy, max-unavailable, partition, rollout-paused, rollout-node-selector, rollout-continue, image-prepull, image-prepull-timeout, max-hold, owner-rollback, rollback-history, offline-upgrade"
	misspelt       = "apps.openyurt.io/update-stategy"
	misspeltWords  = "neither edgehub nor OpenYurt knows the annotation " + misspelt + ", and it has no effect. " + known
	misspeltLabels = "neither edgehub nor OpenYurt knows the label " + misspelt + ", and it has no effect. "
)

func TestAMisspeltKeyIsWarnedAbout(t *testing.T) {
	client, w := warned(t)
	tests := map[string]struct {
		annotations, labels map[string]string
		want                []string // the beginnings of warnings
	}{
		"a misspelt annotation":           {map[string]string{misspelt: "OTA"}, nil, []string{misspeltWords}},
		"beside a right one":              {map[string]string{misspelt: "OTA", api.PausedAnnotation: "true"}, nil, []string{misspeltWords}},
		"letters count":                   {map[string]string{"apps.openyurt.io/Partition": "1"}, nil, []string{"neither edgehub nor OpenYurt knows the annotation apps.openyurt.io/Partition,"}},
		"a misspelt label":                {nil, map[string]string{misspelt: "OTA"}, []string{misspeltLabels}},
		"an annotation written as label":  {nil, map[string]string{strategyKey: "OTA"}, []string{"the label " + strategyKey + " has no effect: edgehub reads it from an annotation"}},
		"a key of somebody else":          {map[string]string{"example.com/update-stategy": ""}, map[string]string{"xapps.openyurt.io/update-stategy": ""}, nil},
		"a key of OpenYurt's other group": {map[string]string{"nodepool.openyurt.io/type": "", "openyurt.io/x": ""}, nil, nil},
		"no key at all":                   {nil, nil, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ds := daemonSet(rolling, tt.annotations)
			ds.Labels = tt.labels
			tryCreate(t, client, ds)
			got := w.take()
			if len(got) != len(tt.want) {
				t.Fatalf("got %q, want %q", got, tt.want)
			}
			for i := range tt.want {
				if !strings.HasPrefix(got[i], tt.want[i]) {
					t.Errorf("got %q, want %q", got[i], tt.want[i])
				}
			}
		})
	}
	t.Run("several", func(t *testing.T) {
		tryCreate(t, client, daemonSet(rolling, map[string]string{misspelt: "", "apps.openyurt.io/y": ""}))
		if got := w.take(); len(got) != 1 || !strings.Contains(got[0], misspelt) || !strings.Contains(got[0], "apps.openyurt.io/y") {
			t.Errorf("got %q, want one warning that names both", got)
		}
	})
}

// openYurtKeys are labels and annotations that one version of OpenYurt or another defines.
func openYurtKeys() []string {
	return []string{
		"autonomy", "binding", "controller-revision-hash", "desired-nodepool", "nodepool", "nodepool-type",
		"original-not-ready-toleration-duration", "original-unreachable-toleration-duration", "patch", "pod-updatable",
		"pod-upgradable", "pool-name", "ref-nodepool", "specified-delete", "yurtappdaemon",
	}
}

func TestAKnownKeyIsNotWarnedAbout(t *testing.T) {
	client, w := warned(t)
	annotations := map[string]string{
		strategyKey: "AdvancedRollingUpdate", oldStrategyKey: "auto",
		api.MaxUnavailableAnnotation: "1", api.PartitionAnnotation: "1", api.PausedAnnotation: "true",
		api.NodeSelectorAnnotation: "a=b", api.ContinueAnnotation: "7c9d", api.PrepullTimeoutAnnotation: "1h",
		api.PrepullAnnotation: "true", api.MaxHoldAnnotation: "36h", api.OwnerRollbackAnnotation: "Denied",
		api.RollbackHistoryAnnotation: "2", api.OfflineUpgradeAnnotation: "InPlace", api.RetriedAnnotation: "2026-01-02T03:04:05.6Z", api.ReportAnnotation: "{}",
	}
	ds := daemonSet(onDelete, annotations)
	ds.Labels = map[string]string{}
	for _, key := range openYurtKeys() {
		ds.Annotations["apps.openyurt.io/"+key] = "x"
		ds.Labels["apps.openyurt.io/"+key] = "x"
	}
	tryCreate(t, client, ds)
	if got := w.take(); len(got) > 0 {
		t.Errorf("got %q", got)
	}
}

// What a Pod and a DaemonSet have differs.
func TestKeysOfAPod(t *testing.T) {
	client, w := warned(t)
	for _, tt := range []struct {
		key  string
		want string // the beginning of a warning
	}{
		{api.TargetAnnotation, ""}, {api.PolicyAnnotation, ""}, {api.HoldAnnotation, ""}, {api.WaitingAnnotation, ""}, {api.RollbackAnnotation, ""}, {api.UpgradedOfflineAnnotation, ""},
		{"apps.openyurt.io/pool-name", ""},
		{misspelt, "neither edgehub nor OpenYurt knows the annotation " + misspelt + ", and it has no effect. Known are apps.openyurt.io/: upgrade-target, "},
		{api.MaxHoldAnnotation, "neither edgehub nor OpenYurt knows the annotation " + api.MaxHoldAnnotation},
		{api.RetriedAnnotation, "neither edgehub nor OpenYurt knows the annotation " + api.RetriedAnnotation},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "web-", Annotations: map[string]string{tt.key: "x"}}}
		pod.Spec = corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:v1"}}, AutomountServiceAccountToken: new(false)}
		_, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil && (writers[tt.key] == "" || refusalBy(offlinePolicy, err) == "") { // the answer has warnings all the same
			t.Errorf("%s: refused: %v", tt.key, err)
		}
		if got := strings.Join(w.take(), "; "); !strings.HasPrefix(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%s: got %q, want %q", tt.key, got, tt.want)
		}
	}
	tryCreate(t, client, daemonSet(rolling, map[string]string{api.HoldAnnotation: "x"}))
	if got := w.take(); len(got) != 1 {
		t.Errorf("got %q, want a warning of a pod's annotation on a DaemonSet", got)
	}
}

func TestAKeyIsWarnedAboutWhenItIsSet(t *testing.T) {
	client, w := warned(t)
	sets := client.AppsV1().DaemonSets(namespace)
	ds := daemonSet(rolling, map[string]string{misspelt: "OTA"})
	ds.Name, ds.GenerateName = "misspelt", ""
	if _, err := sets.Create(t.Context(), ds, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := w.take(); !slices.Equal(got, []string{misspeltWords}) {
		t.Errorf("at its creation: %q", got)
	}
	for _, step := range []struct {
		patch string
		want  int // warnings
	}{
		{`{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"web:v2"}]}}}}`, 0},
		{`{"metadata":{"annotations":{"` + misspelt + `":"AdvancedRollingUpdate"}}}`, 1},
		{`{"metadata":{"labels":{"apps.openyurt.io/y":"z"}}}`, 1},
		{`{"metadata":{"annotations":{"` + misspelt + `":null}}}`, 0},
	} {
		if _, err := sets.Patch(t.Context(), "misspelt", "application/strategic-merge-patch+json", []byte(step.patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := w.take(); len(got) != step.want {
			t.Errorf("%s: got warnings %q, want %d", step.patch, got, step.want)
		}
	}
}
