package admission

import (
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

func TestTheAutonomyOfANode(t *testing.T) {
	nodes := env.admin.CoreV1().Nodes()
	create := func(name, key, value string) error {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{key: value}}}
		_, err := nodes.Create(t.Context(), n, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	const policy = "edgehub-autonomy"
	refused := func(err error, words ...string) {
		t.Helper()
		for _, w := range words {
			if !strings.Contains(refusalBy(policy, err), w) {
				t.Errorf("got %v, want a refusal with %q", err, w)
			}
		}
	}
	poll.Eventually(t, "the policy is in force", func() bool { return refusalBy(policy, create("n", api.AutonomyAnnotation, "x")) != "" })
	for _, value := range []string{"0", "0s", "24h", " 1h30m ", "1.5h", "90s"} {
		if err := create("n", api.AutonomyAnnotation, value); err != nil {
			t.Errorf("%q is refused: %v", value, err)
		}
	}
	for _, value := range []string{"", "7d", "-1h", "24", "forever"} {
		refused(create("n", api.AutonomyAnnotation, value), strconv.Quote(value), "want a duration like 24h or 1h30m, or 0 for any outage")
	}
	for _, value := range []string{"true", "false", ""} {
		if err := create("n", api.OldAutonomyAnnotation, value); err != nil {
			t.Errorf("%q is refused: %v", value, err)
		}
	}
	refused(create("n", api.OldAutonomyAnnotation, "1h"), `"1h"`, "want true or false")

	if _, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "plain"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, subresource := range [][]string{nil, {"status"}} {
		_, err := nodes.Patch(t.Context(), "plain", types.MergePatchType, []byte(`{"metadata":{"annotations":{"node.openyurt.io/autonomy-duration":"7d"}}}`), metav1.PatchOptions{}, subresource...)
		refused(err, `"7d"`)
	}
}
