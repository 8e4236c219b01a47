package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/internal/rawclient"
)

// podsOf is what the node's owner sees with curl.
func podsOf(ctx context.Context, node *cluster.Node) (*corev1.PodList, error) {
	code, body := rawclient.Ask(ctx, http.MethodGet, node.APIURL()+"/pods")
	if code != http.StatusOK {
		return nil, fmt.Errorf("GET /pods: %d %s", code, body)
	}
	pods := &corev1.PodList{}
	return pods, json.Unmarshal([]byte(body), pods)
}

// needs waits until the node's API shows the pod with this PodNeedUpgrade.
func needs(t *testing.T, node *cluster.Node, pod *corev1.Pod, want corev1.ConditionStatus) corev1.Pod {
	t.Helper()
	var found corev1.Pod
	eventually(t, fmt.Sprintf("pod %s on %s has PodNeedUpgrade %s", pod.Name, node.Name(), want), func(ctx context.Context) string {
		pods, err := podsOf(ctx, node)
		if err != nil {
			return err.Error()
		}
		for _, found = range pods.Items {
			if found.UID != pod.UID {
				continue
			}
			condition := api.Condition(&found, api.NeedCondition)
			if condition == nil || condition.Status != want {
				return fmt.Sprintf("it is %+v", condition)
			}
			return ""
		}
		return "the pod is not there"
	})
	return found
}

func upgradeURL(node *cluster.Node, ns, pod string) string {
	return fmt.Sprintf("%s/openyurt.io/v1/namespaces/%s/pods/%s/upgrade", node.APIURL(), ns, pod)
}

func TestOwnerUpgradesHisNode(t *testing.T) {
	ns := namespace(t, "ota")
	node1, node2 := env.Node("node1"), env.Node("node2")
	createDaemonSet(t, ns, otaDaemonSet("app"))
	old1, old2 := readyPodOn(t, ns, "node1", ""), readyPodOn(t, ns, "node2", "")
	answers(t, old1, "v1")
	needs(t, node1, old1, corev1.ConditionFalse)

	setVersion(t, ns, "app", "v2")
	marked := needs(t, node1, old1, corev1.ConditionTrue)
	needs(t, node2, old2, corev1.ConditionTrue)
	target, ok, err := api.TargetOf(&marked)
	if err != nil || !ok || target.Containers[0].Image != env.Image("v2") {
		t.Errorf("the pod's upgrade target is %+v, %v, %v", target, ok, err)
	}

	url := upgradeURL(node1, ns, old1.Name)
	if code, body := rawclient.Ask(t.Context(), http.MethodPost, url); code != http.StatusOK || body != "Start updating pod "+ns+"/"+old1.Name+"\n" {
		t.Fatalf("upgrade: %d %q", code, body)
	}
	new1 := readyPodOn(t, ns, "node1", old1.UID)
	answers(t, new1, "v2")
	needs(t, node1, new1, corev1.ConditionFalse)
	answers(t, old2, "v1")
	if still := readyPodOn(t, ns, "node2", ""); still.UID != old2.UID || still.Status.ContainerStatuses[0].RestartCount > 0 {
		t.Errorf("the pod on node2 was touched: %s, %+v", still.Name, still.Status.ContainerStatuses)
	}

	if out, err := env.Kubectl(t.Context(), "-n", ns, "rollout", "undo", "ds/app"); err != nil {
		t.Fatal(out, err)
	}
	needs(t, node1, new1, corev1.ConditionTrue)
	unmarked := needs(t, node2, old2, corev1.ConditionFalse)
	if _, ok := unmarked.Annotations[api.TargetAnnotation]; ok {
		t.Errorf("a pod that needs no upgrade has the annotation %s", api.TargetAnnotation)
	}
}
