package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const tokenFile = "file/var/run/secrets/kubernetes.io/serviceaccount/token"

// TestPodsComeBackAfterARebootWithoutTheCloud (invariant 22) pulls the plug of a node that has no
// cloud: all that was in memory is gone, kubelet's volumes and what it knew among it.
func TestPodsComeBackAfterARebootWithoutTheCloud(t *testing.T) {
	t.Parallel()
	e := newEdge(t, "reboot", "node3")
	e.createConfig()
	e.create("configured", configured)
	e.create("untouched", nil)
	e.create("doomed", nil)
	e.createDaemon()
	before := map[string]started{}
	for _, name := range []string{"configured", "untouched", "doomed"} {
		before[name] = e.running(name)
	}
	daemon := readyPodOn(t, e.ns, "node3", "")
	e.expectConfig(before["configured"].ip)
	token := e.token(before["configured"].ip, before["configured"].pod.UID)
	e.createLate()

	e.cut("refused")
	if err := e.node.PowerOff(); err != nil {
		t.Fatal(err)
	}
	for name, s := range before {
		if _, err := answerOf(t.Context(), s.ip, "instance"); err == nil {
			t.Fatalf("without power, %s still answers", name)
		}
	}
	if err := e.node.PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	settled := map[string]started{}
	for _, name := range []string{"configured", "untouched", daemon.Name} {
		settled[name] = e.find(name)
	}
	t.Logf("all pods serve again %v after kubelet did", time.Since(began).Round(time.Millisecond))
	e.expectConfig(settled["configured"].ip)
	if now := e.token(settled["configured"].ip, before["configured"].pod.UID); now != token {
		t.Errorf("the service account's token is another than before:\n%s\n%s", now, token)
	}
	e.expectLateWaits()

	e.changeTheCloud()
	delete(settled, daemon.Name) // it is replaced
	e.comeBack(daemon, settled)
	for _, name := range []string{"configured", "untouched"} {
		e.expectRestarts(before[name].pod, 1)
	}
	late := e.running("late")
	if value, err := answerOf(t.Context(), late.ip, "env/LATE"); value != "configured" {
		t.Errorf("the pod that waited for the cloud has %q, %v from its ConfigMap", value, err)
	}
}

// createConfig makes what the pod configured wants.
func (e *edge) createConfig() {
	e.t.Helper()
	for name, data := range map[string]map[string]string{
		"settings": {"COLOUR": "blue"}, "optional": {"SIZE": "large"}, "late": {"LATE": "configured"},
	} {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
		if _, err := env.client.CoreV1().ConfigMaps(e.ns).Create(e.t.Context(), object, metav1.CreateOptions{}); err != nil {
			e.t.Fatal(err)
		}
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "password"}, StringData: map[string]string{"PASSWORD": "x1y2z3"}}
	if _, err := env.client.CoreV1().Secrets(e.ns).Create(e.t.Context(), secret, metav1.CreateOptions{}); err != nil {
		e.t.Fatal(err)
	}
}

// configured has ConfigMaps and a Secret as variables and as files; one ConfigMap
// that it could do without is there, and one is not.
func configured(spec *corev1.PodSpec) {
	yes := true
	local := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	c := &spec.Containers[0]
	c.EnvFrom = []corev1.EnvFromSource{
		{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: local("settings")}},
		{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: local("password")}},
		{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: local("optional"), Optional: &yes}},
		{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: local("missing"), Optional: &yes}},
	}
	c.VolumeMounts = []corev1.VolumeMount{
		{Name: "settings", MountPath: "/settings"}, {Name: "password", MountPath: "/password"}, {Name: "optional", MountPath: "/optional"},
	}
	spec.Volumes = []corev1.Volume{
		{Name: "settings", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: local("settings")}}},
		{Name: "password", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "password"}}},
		{Name: "optional", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: local("optional"), Optional: &yes}}},
	}
}

func (e *edge) expectConfig(ip string) {
	e.t.Helper()
	for path, want := range map[string]string{
		"env/COLOUR": "blue", "env/PASSWORD": "x1y2z3", "env/SIZE": "large",
		"file/settings/COLOUR": "blue", "file/password/PASSWORD": "x1y2z3", "file/optional/SIZE": "large",
	} {
		if got, err := answerOf(e.t.Context(), ip, path); got != want {
			e.t.Errorf("%s is %q, want %q; %v", path, got, want, err)
		}
	}
}

// token is the pod's projected token, which names the pod.
func (e *edge) token(ip string, pod types.UID) string {
	e.t.Helper()
	token, err := answerOf(e.t.Context(), ip, tokenFile)
	if err != nil {
		e.t.Fatal(err)
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		e.t.Fatalf("%q is no token", token)
	}
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		e.t.Fatal(err)
	}
	var said struct {
		Kubernetes struct {
			Pod struct{ UID types.UID }
		} `json:"kubernetes.io"`
	}
	if err := json.Unmarshal(claims, &said); err != nil {
		e.t.Fatal(err)
	}
	if said.Kubernetes.Pod.UID != pod {
		e.t.Errorf("the token is for pod %s, want %s: %s", said.Kubernetes.Pod.UID, pod, claims)
	}
	return token
}

// createLate makes a pod that the hub knows of, and whose optional ConfigMap, which
// exists, nobody has asked the hub for: kubelet is stopped before the pod comes, and
// not started again before the cloud has gone.
func (e *edge) createLate() {
	e.t.Helper()
	if err := e.node.KubeletProcess().Freeze(); err != nil {
		e.t.Fatal(err)
	}
	e.create("late", func(spec *corev1.PodSpec) {
		yes, no := true, false
		spec.AutomountServiceAccountToken = &no // nothing but the ConfigMap keeps it from starting
		spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "late"}, Optional: &yes}}}
	})
	eventually(e.t, "the hub knows of the late pod", func(ctx context.Context) string {
		pods, err := podsOf(ctx, e.node)
		if err != nil {
			return err.Error()
		}
		for i := range pods.Items {
			if pods.Items[i].Namespace == e.ns && pods.Items[i].Name == "late" {
				return ""
			}
		}
		return fmt.Sprintf("%d pods, and not this one", len(pods.Items))
	})
	e.awaitDisk("late")
}

// awaitDisk returns when what the hub has read so far is on its disk. It changes a
// pod meanwhile, so that there is always something to write.
func (e *edge) awaitDisk(pod string) {
	e.t.Helper()
	const commits = `edgehub_cache_commits_total{result="ok"}`
	before, err := metric(e.t.Context(), e.node, commits)
	if err != nil {
		e.t.Fatal(err)
	}
	eventually(e.t, "the hub writes to its disk", func(ctx context.Context) string {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"changed":%q}}}`, time.Now())
		if _, err := env.client.CoreV1().Pods(e.ns).Patch(ctx, pod, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return err.Error()
		}
		now, err := metric(ctx, e.node, commits)
		if err == nil && now < before+2 { // one may have been under way
			err = fmt.Errorf("%v commits, before it were %v", now, before)
		}
		return words(err)
	})
}

// expectLateWaits waits until kubelet has reported that it cannot start the pod, and
// sees that it is not there.
func (e *edge) expectLateWaits() {
	e.t.Helper()
	eventually(e.t, "kubelet cannot start the late pod", func(context.Context) string {
		log, err := os.ReadFile(e.node.KubeletProcess().LogFile())
		if err != nil {
			return err.Error()
		}
		for line := range strings.Lines(string(log)) {
			if strings.Contains(line, e.ns+"/late") && strings.Contains(line, "configmap") && strings.Contains(line, "CreateContainerConfigError") {
				return ""
			}
		}
		return "its log has not said so"
	})
	if late, err := e.look(e.t.Context(), "late"); err == nil {
		e.t.Errorf("the pod runs at %s without the ConfigMap that exists", late.ip)
	}
}
