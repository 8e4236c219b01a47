package deploy

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/edgehub-io/edgehub/controller/autonomy"
	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/internal/audit"
	"github.com/edgehub-io/edgehub/test/internal/freeport"
)

// scenario is what the controller is there for, with as little as takes every right:
// one DaemonSet whose pods are marked for upgrades, one whose pods are replaced, a pod that stays on its node, and
// a StatefulSet whose pod is not made. A quota has no room for a pod more while one is replaced.
type scenario struct {
	t         *testing.T
	namespace string
	url       string // of the controller's metrics
	mark      int64  // where the record begins
}

const (
	told    = "told"    // OTA
	rolled  = "rolled"  // AdvancedRollingUpdate
	ordered = "ordered" // a StatefulSet
	kept    = "kept"    // a pod of no DaemonSet
)

func newScenario(t *testing.T) *scenario {
	t.Helper()
	s := &scenario{t: t}
	ns, err := env.admin.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "scenario-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.namespace = ns.Name
	t.Cleanup(func() {
		if err := env.admin.CoreV1().Namespaces().Delete(context.Background(), s.namespace, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	s.create(told, "OTA")
	s.create(rolled, "AdvancedRollingUpdate")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: kept}, Spec: corev1.PodSpec{NodeName: s.pod(told).Spec.NodeName, Containers: []corev1.Container{{Name: "app", Image: "app:0"}}}}
	if _, err := env.admin.CoreV1().Pods(s.namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if s.mark, err = env.record.Mark(); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *scenario) create(name, strategy string) {
	s.t.Helper()
	labels := map[string]string{"app": name}
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"apps.openyurt.io/update-strategy": strategy}}}
	ds.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	ds.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
	ds.Spec.Template.Labels = labels
	ds.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", Image: "app:0"}}
	if _, err := env.admin.AppsV1().DaemonSets(s.namespace).Create(s.t.Context(), ds, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	eventually(s.t, "there is a pod of "+name, func() string {
		if s.pod(name) == nil {
			return "there is none that is Ready"
		}
		return ""
	})
}

// pod is the one of a DaemonSet, nil while there is none that is Ready.
func (s *scenario) pod(name string) *corev1.Pod {
	s.t.Helper()
	list, err := env.admin.CoreV1().Pods(s.namespace).List(s.t.Context(), metav1.ListOptions{LabelSelector: "app=" + name})
	if err != nil {
		s.t.Fatal(err)
	}
	for i := range list.Items {
		pod := &list.Items[i]
		ready := api.Condition(pod, corev1.PodReady)
		if pod.DeletionTimestamp == nil && ready != nil && ready.Status == corev1.ConditionTrue {
			return pod
		}
	}
	return nil
}

func (s *scenario) setImage(name, image string) {
	s.t.Helper()
	patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"app","image":%q}]}}}}`, image)
	_, err := env.admin.AppsV1().DaemonSets(s.namespace).Patch(s.t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
}

// needs reports whether the pod of the DaemonSet with OTA is marked so.
func (s *scenario) needs(want corev1.ConditionStatus) bool {
	pod := s.pod(told)
	if pod == nil {
		return false
	}
	c := api.Condition(pod, api.NeedCondition)
	return c != nil && c.Status == want
}

// start starts the controller, until the test ends.
func (s *scenario) start() {
	s.t.Helper()
	address := freeport.Address(s.t)
	s.url = "http://" + address
	var output bytes.Buffer
	cmd := exec.CommandContext(context.WithoutCancel(s.t.Context()), env.controller, "--kubeconfig="+writeKubeconfig(s.t), "--metrics-addr="+address, "--health-probe-addr="+address,
		"--leader-elect-lease-duration=2s", "--leader-elect-renew-deadline=1500ms", "--leader-elect-retry-period=200ms")
	cmd.Stderr = &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		if s.t.Failed() {
			s.t.Logf("the controller wrote:\n%s", output.String())
		}
	})
}

// play starts the controller, and goes through the scenario.
func (s *scenario) play() {
	s.t.Helper()
	s.start()
	for _, step := range []struct {
		what string
		do   func()
		done func() bool
	}{
		{"the controller leads", func() {}, func() bool { return strings.Contains(get(s.t, s.url+"/metrics"), "edgehub_controller_leader 1\n") }},
		{"a pod is told that it needs nothing", func() {}, func() bool { return s.needs(corev1.ConditionFalse) }},
		{"a pod is told that it needs an upgrade", func() { s.setImage(told, "app:new") }, func() bool { return s.needs(corev1.ConditionTrue) }},
		{"it is told that it does not", func() { s.setImage(told, "app:0") }, func() bool { return s.needs(corev1.ConditionFalse) }},
		// What was counted before by this very process is counted up.
		{"it is told again that it does", func() { s.setImage(told, "app:new") }, func() bool { return s.needs(corev1.ConditionTrue) }},
		{"an Event is counted up", func() {}, s.toldAgain},
		{"the lease was renewed", func() {}, s.renewed},
		{"a quota has no room for a pod more", s.limitPods, s.fullOfPods},
		{"a pod is replaced", func() { s.setImage(rolled, "app:1") }, func() bool { p := s.pod(rolled); return p != nil && p.Spec.Containers[0].Image == "app:1" }},
		{"the rollout is complete", func() {}, s.complete},
		{"there is no quota", s.removeQuota, func() bool { return true }},
		{"the autonomy of its node changes", s.setAutonomy, s.autonomous},
		{"a pod of a StatefulSet is told that it needs nothing", s.createOrdered, func() bool { return api.Condition(s.get(ordered+"-0"), api.NeedCondition) != nil }},
		{"Kubernetes is made to try again to make it", s.endOrdered, s.triedAgain},
	} {
		step.do()
		eventually(s.t, step.what, func() string {
			if step.done() {
				return ""
			}
			return "it is not"
		})
	}
}

// limitPods allows as many pods as there are: two of DaemonSets, and the one that stays.
func (s *scenario) limitPods() {
	s.t.Helper()
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "pods"}}
	quota.Spec.Hard = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("3")}
	if _, err := env.admin.CoreV1().ResourceQuotas(s.namespace).Create(s.t.Context(), quota, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scenario) fullOfPods() bool {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "more"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:0"}}}}
	_, err := env.admin.CoreV1().Pods(s.namespace).Create(s.t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err != nil && strings.Contains(err.Error(), "exceeded quota: pods")
}

func (s *scenario) removeQuota() {
	s.t.Helper()
	if err := env.admin.CoreV1().ResourceQuotas(s.namespace).Delete(s.t.Context(), "pods", metav1.DeleteOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// createOrdered makes a StatefulSet.
func (s *scenario) createOrdered() {
	s.t.Helper()
	labels := map[string]string{"app": ordered}
	sts := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: ordered, Annotations: map[string]string{"apps.openyurt.io/update-strategy": "OTA"}}}
	sts.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	sts.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
	sts.Spec.Template.Labels = labels
	sts.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", Image: "app:0"}}
	if _, err := env.admin.AppsV1().StatefulSets(s.namespace).Create(s.t.Context(), sts, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// endOrdered ends its pod, while Kubernetes makes none.
func (s *scenario) endOrdered() {
	s.t.Helper()
	manager := env.cluster.ControllerManager()
	if err := manager.Freeze(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := manager.Cont(); err != nil {
			s.t.Error(err)
		}
	})
	now := int64(0)
	if err := env.admin.CoreV1().Pods(s.namespace).Delete(s.t.Context(), ordered+"-0", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scenario) triedAgain() bool {
	sts, err := env.admin.AppsV1().StatefulSets(s.namespace).Get(s.t.Context(), ordered, metav1.GetOptions{})
	return err == nil && sts.Annotations["apps.openyurt.io/retried-at"] != ""
}

// get returns a pod, an empty one if there is none.
func (s *scenario) get(name string) *corev1.Pod {
	pod, err := env.admin.CoreV1().Pods(s.namespace).Get(s.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return &corev1.Pod{}
	}
	return pod
}

// setAutonomy has pods stay on their node, should that be away.
func (s *scenario) setAutonomy() {
	s.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:"1h"}}}`, api.AutonomyAnnotation)
	if _, err := env.admin.CoreV1().Nodes().Patch(s.t.Context(), s.pod(told).Spec.NodeName, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// autonomous reports whether that is so, by the node's condition.
func (s *scenario) autonomous() bool {
	node, err := env.admin.CoreV1().Nodes().Get(s.t.Context(), s.pod(told).Spec.NodeName, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	c := autonomy.ConditionOf(node)
	return c != nil && c.Status == corev1.ConditionTrue && strings.Contains(c.Message, "up to 1h")
}

func (s *scenario) complete() bool {
	ds, err := env.admin.AppsV1().DaemonSets(s.namespace).Get(s.t.Context(), rolled, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, c := range ds.Status.Conditions {
		if c.Type == "RolloutComplete" {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func (s *scenario) toldAgain() bool {
	return slices.ContainsFunc(s.requests(), func(q audit.Request) bool { return q.Verb == "patch" && q.ObjectRef.Resource == "events" })
}

func (s *scenario) renewed() bool {
	lease, err := env.admin.CoordinationV1().Leases(systemNamespace).Get(s.t.Context(), account, metav1.GetOptions{})
	return err == nil && lease.Spec.RenewTime != nil && lease.Spec.AcquireTime != nil && lease.Spec.RenewTime.After(lease.Spec.AcquireTime.Time)
}

// requests are those of the controller.
func (s *scenario) requests() []audit.Request {
	s.t.Helper()
	all, err := env.record.Since(s.mark)
	if err != nil {
		s.t.Fatal(err)
	}
	return all
}

// writeKubeconfig has a token of the account.
func writeKubeconfig(t *testing.T) string {
	t.Helper()
	token, err := env.admin.CoreV1().ServiceAccounts(systemNamespace).CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const entry = "test"
	config := clientcmdapi.NewConfig()
	config.Clusters[entry] = &clientcmdapi.Cluster{Server: env.cluster.ServerURL(), CertificateAuthority: env.cluster.CAFile()}
	config.AuthInfos[entry] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts[entry] = &clientcmdapi.Context{Cluster: entry, AuthInfo: entry}
	config.CurrentContext = entry
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}
