package nodes

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/controller/autonomy"
	"github.com/edgehub-io/edgehub/ota/api"
)

// Release gives up waiting for a node that is away: the controller has its held pods evicted now. It returns what happens
// then, for a person. It writes nothing if the node was released already. manager is the field manager of the write.
func Release(ctx context.Context, client kubernetes.Interface, name string, now time.Time, manager string) (string, error) {
	before := ""
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := releasable(node); err != nil {
			return err
		}
		if before = node.Annotations[api.ReleasedAnnotation]; before != "" {
			return nil
		}
		// The version of the Node, since it may be back by now.
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": node.UID, "resourceVersion": node.ResourceVersion,
			"annotations": map[string]string{api.ReleasedAnnotation: now.UTC().Format(time.RFC3339)},
		}})
		if err != nil {
			return err
		}
		_, err = client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: manager})
		return err
	})
	if err != nil {
		return "", err
	}
	a := aftermath{node: name}
	if err := eachPod(ctx, client, name, a.add); err != nil {
		return "", fmt.Errorf("node %s is released, but its pods could not be listed: %w", name, err)
	}
	what := fmt.Sprintf("node/%s released", name)
	if before != "" {
		what = fmt.Sprintf("node/%s was released already, at %s", name, before)
	}
	return what + a.text(), nil
}

func releasable(node *corev1.Node) error {
	switch is, _ := ready(node); {
	case is:
		return fmt.Errorf("node %s is Ready, and its pods run: there is nothing to release. To have them run elsewhere: kubectl drain %s", node.Name, node.Name)
	case !autonomy.Away(node):
		return fmt.Errorf("node %s is not Ready, and Kubernetes has not tainted it yet, which takes some seconds: try again", node.Name)
	}
	return nil
}

// aftermath is what becomes of a released node's pods.
type aftermath struct {
	node string
	held int
	// stateful are pods of StatefulSets, claims those with a PersistentVolumeClaim. They may have been evicted before.
	stateful, claims []string
}

func (a *aftermath) add(pod *corev1.Pod) {
	if held(pod) {
		a.held++
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner != nil && owner.Kind == "DaemonSet" {
		return // none is evicted
	}
	if owner != nil && owner.Kind == "StatefulSet" {
		a.stateful = append(a.stateful, pod.Namespace+"/"+pod.Name)
	}
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.PersistentVolumeClaim != nil || v.Ephemeral != nil {
			a.claims = append(a.claims, pod.Namespace+"/"+pod.Name)
			return
		}
	}
}

// maxNames is how many pods are named; more than that no person reads.
const maxNames = 5

func (a *aftermath) text() string {
	text := fmt.Sprintf(`: its pods are evicted now, %d of them held until now
- They are Terminating until the node is back, whose kubelet ends them then.
- Deployments start new ones on other nodes at once.
`, a.held)
	if len(a.stateful) > 0 {
		text += fmt.Sprintf("- StatefulSets replace no pod that is Terminating: %s.\n", cli.First(a.stateful, maxNames, len(a.stateful)))
	}
	if len(a.claims) > 0 {
		text += fmt.Sprintf(`- PersistentVolumeClaims: %s. A volume for one node
  at a time is free 6 minutes after the old pod is gone; one on the node itself
  (local) does not move, and its pod waits for the node.
`, cli.First(a.claims, maxNames, len(a.claims)))
	}
	if len(a.stateful)+len(a.claims) == 0 {
		return text
	}
	return text + fmt.Sprintf(`To have these replaced before the node is back, make sure that its machine is off,
and stays off: otherwise two pods may write the same data. Then either
    kubectl taint node %[1]s node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
which frees volumes at once, and which you remove when the machine is repaired; or,
if it never comes back,
    kubectl delete node %[1]s
`, a.node)
}
