package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/ota/upgrade"
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
			condition := upgrade.Condition(&found, upgrade.NeedCondition)
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
	createDaemonSet(t, ns, otaDaemonSet("app", "v1"))
	old1, old2 := readyPodOn(t, ns, "node1", ""), readyPodOn(t, ns, "node2", "")
	answers(t, old1, "v1")
	needs(t, node1, old1, corev1.ConditionFalse)

	setVersion(t, ns, "app", "v2")
	marked := needs(t, node1, old1, corev1.ConditionTrue)
	needs(t, node2, old2, corev1.ConditionTrue)
	target, ok, err := upgrade.TargetOf(&marked)
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
	if _, ok := unmarked.Annotations[upgrade.TargetAnnotation]; ok {
		t.Errorf("a pod that needs no upgrade has the annotation %s", upgrade.TargetAnnotation)
	}
}

// Kubernetes lets a pod run on where it would start no other.
func TestAnUpgradeThatWouldLoseTheAppIsRefused(t *testing.T) {
	ns, node := namespace(t, "ota-lost"), env.Node("node1")
	ds := otaDaemonSet("app", "v1")
	ds.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node.Name()}
	ds.Spec.Template.Spec.Tolerations = nil
	if _, err := env.client.AppsV1().DaemonSets(ns).Create(t.Context(), ds, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := readyPodOn(t, ns, node.Name(), "")
	kubectl := func(args ...string) {
		t.Helper()
		if out, err := env.Kubectl(t.Context(), args...); err != nil {
			t.Fatal(out, err)
		}
	}
	refused := func(words string) {
		t.Helper()
		eventually(t, "the upgrade is refused: "+words, func(ctx context.Context) string {
			target, _, _ := upgrade.TargetOf(new(needs(t, node, pod, corev1.ConditionTrue)))
			if target.Blocked == "" && target.Requests.Cpu().IsZero() {
				return "the pod does not say what is in the way"
			}
			code, body := rawclient.Ask(ctx, http.MethodPost, upgradeURL(node, ns, pod.Name))
			switch {
			case code == http.StatusOK:
				t.Fatalf("the pod was deleted: %s", body)
			case code != http.StatusForbidden || !strings.Contains(body, "would not come back: ") || !strings.Contains(body, words):
				return fmt.Sprint(code, " ", body) // the controller may have yet to see the last change
			}
			return ""
		})
	}

	kubectl("taint", "node", node.Name(), "dedicated=line3:NoSchedule")
	t.Cleanup(func() { _, _ = env.Kubectl(context.Background(), "taint", "node", node.Name(), "dedicated-") }) // fails if it is gone
	setVersion(t, ns, "app", "v2")
	refused("the taint dedicated=line3:NoSchedule")
	patchTemplate(t, ns, "app", `{"containers":[{"name":"app","resources":{"requests":{"cpu":"1000"}}}]}`)
	eventually(t, "the pod says what its new version requests", func(context.Context) string {
		target, _, _ := upgrade.TargetOf(new(needs(t, node, pod, corev1.ConditionTrue)))
		if target.Requests.Cpu().IsZero() {
			return "nothing"
		}
		return ""
	})
	kubectl("taint", "node", node.Name(), "dedicated-") // at no moment may it be upgraded
	refused("requests 1k of cpu")
	patchTemplate(t, ns, "app", `{"containers":[{"name":"app","resources":{"requests":{"cpu":"1m"}}}]}`)
	eventually(t, "the upgrade goes when nothing is in the way", func(ctx context.Context) string {
		code, body := rawclient.Ask(ctx, http.MethodPost, upgradeURL(node, ns, pod.Name))
		if code != http.StatusOK {
			return fmt.Sprint(code, body)
		}
		return ""
	})
	answers(t, readyPodOn(t, ns, node.Name(), pod.UID), "v2")
}

func TestUpgradeIsRefused(t *testing.T) {
	ns := namespace(t, "ota-refused")
	node1 := env.Node("node1")
	createDaemonSet(t, ns, otaDaemonSet("app", "v1"))
	pod1, pod2 := readyPodOn(t, ns, "node1", ""), readyPodOn(t, ns, "node2", "")
	needs(t, node1, pod1, corev1.ConditionFalse)

	refused := func(node *cluster.Node, method, pod string, code int, word string) {
		t.Helper()
		got, body := rawclient.Ask(t.Context(), method, upgradeURL(node, ns, pod))
		if got != code || !strings.Contains(body, word) || strings.Count(strings.TrimSpace(body), "\n") > 0 {
			t.Errorf("%s %s on %s: %d %q, want %d and one line with %q", method, pod, node.Name(), got, body, code, word)
		}
	}
	refused(node1, http.MethodPost, "nobody", 404, "no pod")
	refused(node1, http.MethodPost, pod2.Name, 403, "not on this node")
	refused(node1, http.MethodPost, pod1.Name, 403, "PodNeedUpgrade")
	refused(node1, http.MethodGet, pod1.Name, 404, "no upgrade")
	refused(node1, http.MethodPut, pod1.Name, 405, "POST")

	// Pods that no DaemonSet would replace.
	for name, owners := range map[string][]metav1.OwnerReference{"orphan": nil, "child": {ownerOf(t, ns)}} {
		template := podTemplate("v1")
		template.Spec.NodeName = "node1"
		template.Labels = map[string]string{"app": "other"}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners, Labels: template.Labels}, Spec: template.Spec}
		made, err := env.client.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		made.Status.Conditions = append(made.Status.Conditions, corev1.PodCondition{Type: upgrade.NeedCondition, Status: corev1.ConditionTrue, Message: upgrade.Message("x")})
		patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": made.Status.Conditions}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := env.client.CoreV1().Pods(ns).Patch(t.Context(), name, "application/strategic-merge-patch+json", patch, metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
	refused(node1, http.MethodPost, "orphan", 400, "owner")
	refused(node1, http.MethodPost, "child", 400, "ConfigMap")

	setVersion(t, ns, "app", "v2")
	needs(t, node1, pod1, corev1.ConditionTrue)
	t.Cleanup(func() { giveBack(t, node1) })
	if err := node1.Link().Refuse(); err != nil {
		t.Fatal(err)
	}
	node1.Link().Reset()
	refused(node1, http.MethodPost, pod1.Name, 202, "queued")
	refused(node1, http.MethodDelete, pod1.Name, 200, "cancelled")
	giveBack(t, node1)

	upgradeOnce(t, node1, ns, pod1)
}

// ownerOf is an object of ns that owns a pod and is no DaemonSet.
func ownerOf(t *testing.T, ns string) metav1.OwnerReference {
	t.Helper()
	owner, err := env.client.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	yes := true
	return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, Controller: &yes}
}

// upgradeOnce asks ten times at once, and again while the pod is being deleted
// and when it is gone: one pod is deleted, and its successor is left alone.
func upgradeOnce(t *testing.T, node *cluster.Node, ns string, pod *corev1.Pod) {
	t.Helper()
	url := upgradeURL(node, ns, pod.Name)
	var mu sync.Mutex
	codes := make(map[int]int)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			code, body := rawclient.Ask(t.Context(), http.MethodPost, url)
			mu.Lock()
			defer mu.Unlock()
			codes[code]++
			if code != http.StatusOK && code != http.StatusForbidden && code != http.StatusNotFound {
				t.Errorf("upgrade: %d %s", code, body)
			}
		})
	}
	wg.Wait()
	if codes[http.StatusOK] != 1 {
		t.Errorf("of ten requests at once %d were answered 200: %v", codes[http.StatusOK], codes)
	}
	successor := readyPodOn(t, ns, node.Name(), pod.UID)
	eventually(t, "upgrade of a pod that goes is 403, and then 404", func(ctx context.Context) string {
		code, body := rawclient.Ask(ctx, http.MethodPost, url)
		if code != http.StatusNotFound && code != http.StatusForbidden {
			t.Errorf("upgrade of a pod that goes: %d %s", code, body)
		}
		if code != http.StatusNotFound {
			return body
		}
		return ""
	})
	if still := readyPodOn(t, ns, node.Name(), ""); still.UID != successor.UID {
		t.Errorf("the successor %s was replaced by %s", successor.Name, still.Name)
	}
	answers(t, successor, "v2")
}
