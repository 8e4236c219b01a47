package install

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/test/internal/poll"
)

const (
	caFile    = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
	tokenFile = "/var/run/secrets/kubernetes.io/serviceaccount/token"
)

// workload is a DaemonSet or ReplicaSet whose one pod runs the test app.
type workload struct {
	namespace, name string
	port            string
}

// template runs the app, which trusts the CAs that every pod has.
func (n *node) template(w *workload, hostNetwork bool) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": w.name}},
		Spec: corev1.PodSpec{
			HostNetwork: hostNetwork, TerminationGracePeriodSeconds: new(int64),
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{
				Name: "app", Image: n.image, Args: []string{"--listen=:" + w.port},
				Env: []corev1.EnvVar{{Name: "SSL_CERT_FILE", Value: caFile}},
			}},
		},
	}
}

func (n *node) startDaemonSet(namespace, name string, hostNetwork bool) *workload {
	n.t.Helper()
	w := &workload{namespace, name, "8080"}
	if hostNetwork {
		w.port = "8079"
	}
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, Template: n.template(w, hostNetwork),
	}}
	if _, err := n.client.AppsV1().DaemonSets(namespace).Create(n.t.Context(), set, metav1.CreateOptions{}); err != nil {
		n.t.Fatal(err)
	}
	w.get(n, "/")
	return w
}

func (n *node) startReplicaSet(namespace, name string) *workload {
	n.t.Helper()
	w, one := &workload{namespace, name, "8080"}, int32(1)
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.ReplicaSetSpec{
		Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, Template: n.template(w, false),
	}}
	if _, err := n.client.AppsV1().ReplicaSets(namespace).Create(n.t.Context(), set, metav1.CreateOptions{}); err != nil {
		n.t.Fatal(err)
	}
	w.get(n, "/")
	return w
}

// startWithoutToken runs a pod that cannot use the apiserver.
func (n *node) startWithoutToken() {
	n.t.Helper()
	w, no := &workload{"default", "tokenless", "8080"}, false
	template := n.template(w, false)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: w.name, Labels: template.Labels}, Spec: template.Spec}
	pod.Spec.AutomountServiceAccountToken, pod.Spec.NodeName = &no, nodeName
	if _, err := n.client.CoreV1().Pods(w.namespace).Create(n.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		n.t.Fatal(err)
	}
	w.get(n, "/")
}

// allowSecrets makes a Secret that the service accounts of kube-system may read. A node may not: no
// pod of it mounts the Secret.
func (n *node) allowSecrets() {
	n.t.Helper()
	const namespace = metav1.NamespaceSystem
	meta := metav1.ObjectMeta{Name: "for-agents"}
	secret := &corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"a": "b"}}
	if _, err := n.client.CoreV1().Secrets(namespace).Create(n.t.Context(), secret, metav1.CreateOptions{}); err != nil {
		n.t.Fatal(err)
	}
	role := &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets", "services"}, Verbs: []string{"get"}},
	}}
	if _, err := n.client.RbacV1().ClusterRoles().Create(n.t.Context(), role, metav1.CreateOptions{}); err != nil {
		n.t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:serviceaccounts:" + namespace}},
	}
	if _, err := n.client.RbacV1().ClusterRoleBindings().Create(n.t.Context(), binding, metav1.CreateOptions{}); err != nil {
		n.t.Fatal(err)
	}
}

// address returns where the workload's pod answers, if it has one that is not about to end.
func (w *workload) address(ctx context.Context, n *node) (string, error) {
	pods, err := n.client.CoreV1().Pods(w.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + w.name})
	if err != nil {
		return "", err
	}
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil && p.Status.PodIP != "" {
			return net.JoinHostPort(p.Status.PodIP, w.port), nil
		}
	}
	return "", fmt.Errorf("%d pods of %s, and none has an address", len(pods.Items), w.name)
}

// restart deletes the workload's pod, and waits until another one is Ready. With the grace period of its spec, 0, the
// apiserver would forget the pod at once, while it still answers.
func (n *node) restart(w *workload) {
	n.t.Helper()
	pods := n.client.CoreV1().Pods(w.namespace)
	list, err := pods.List(n.t.Context(), metav1.ListOptions{LabelSelector: "app=" + w.name})
	if err != nil || len(list.Items) != 1 {
		n.t.Fatalf("%d pods of %s: %v", len(list.Items), w.name, err)
	}
	old, grace := &list.Items[0], int64(1)
	if err := pods.Delete(n.t.Context(), old.Name, metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
		n.t.Fatal(err)
	}
	poll.Check(n.t.Context(), n.t, "another pod takes the place of "+old.Name, func(ctx context.Context) error {
		list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "app=" + w.name})
		if err != nil {
			return err
		}
		isReady := func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}
		if len(list.Items) != 1 || list.Items[0].UID == old.UID || !slices.ContainsFunc(list.Items[0].Status.Conditions, isReady) {
			return fmt.Errorf("there are %d pods, and none is another one that is Ready", len(list.Items))
		}
		return nil
	})
}

// bring puts a program of the product into the machine.
func (n *node) bring(program string) {
	n.t.Helper()
	path := "/root/" + program
	if err := n.Write(path, "", 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(n.Path(path), n.program(program), 0o755); err != nil {
		n.t.Fatal(err)
	}
}

func readAll(r io.Reader) string {
	text, _ := io.ReadAll(r) // what arrived is compared
	return string(text)
}
