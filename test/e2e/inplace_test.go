package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/internal/rawclient"
)

// inPlace is a daemon whose pod may be upgraded without the cloud.
type inPlace struct {
	*daemon
	started // the present start of its container
	old     string
}

// newInPlace has an image on the node, that of version one if it is empty, and waits until the controller has marked the pod.
func newInPlace(t *testing.T, ns, node, image string) *inPlace {
	t.Helper()
	return newDaemon(t, ns, node).inPlace(image)
}

// inPlace is newInPlace of a daemon.
func (of *daemon) inPlace(image string) *inPlace {
	t, ns := of.t, of.ns
	t.Helper()
	d := &inPlace{daemon: of}
	d.old = d.daemon.pod.Spec.Containers[0].Image
	d.permit()
	if image == "" {
		d.release("one", megabyte)
	} else {
		d.image = image
		setImage(t, ns, "app", image)
		d.awaitMark()
	}
	d.pull()
	d.awaitReady()
	d.start()
	want := []api.ImageChange{{Name: "app", From: d.old, To: d.image}}
	d.awaitOnNode("the pod can be upgraded in place", func(pod *corev1.Pod) string {
		next, ok := api.NextOf(pod)
		if !ok || !slices.Equal(next.InPlace, want) {
			return fmt.Sprintf("%t, %+v, %q", ok, next.InPlace, next.NotInPlace)
		}
		return ""
	})
	return d
}

// start waits until the pod runs, and gives its volume a file.
func (d *inPlace) start() {
	d.t.Helper()
	d.started = d.running(d.daemon.pod.Name)
	volume := filepath.Join(env.Dir(), d.node.Name(), "var-lib", "kubelet", "pods", string(d.started.pod.UID), "volumes", "kubernetes.io~empty-dir", keptVolume)
	if err := os.WriteFile(filepath.Join(volume, "file"), []byte(d.started.pod.Name), 0o644); err != nil {
		d.t.Fatal(err)
	}
}

// permit permits upgrades in place.
func (of *daemon) permit() {
	of.t.Helper()
	permit := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, api.OfflineUpgradeAnnotation, api.OfflineUpgradeInPlace)
	if _, err := env.client.AppsV1().DaemonSets(of.ns).Patch(of.t.Context(), "app", types.MergePatchType, []byte(permit), metav1.PatchOptions{}); err != nil {
		of.t.Fatal(err)
	}
}

// awaitOnNode waits until the node shows the pod as wanted: differs returns in which way it is not.
func (d *inPlace) awaitOnNode(what string, differs func(*corev1.Pod) string) {
	d.t.Helper()
	eventually(d.t, "the node knows: "+what, func(ctx context.Context) string {
		pods, err := podsOf(ctx, d.node)
		if err != nil {
			return err.Error()
		}
		for i := range pods.Items {
			if pods.Items[i].UID == d.started.pod.UID {
				return differs(&pods.Items[i])
			}
		}
		return "it does not know the pod"
	})
}

// serves waits until another container serves a version at the same address, with the volume, and returns how long it took.
func (d *inPlace) serves(version string, began time.Time) time.Duration {
	d.t.Helper()
	answers(d.t, d.started.pod, version)
	took := time.Since(began)
	instance, err := answerOf(d.t.Context(), d.ip, "instance")
	if err != nil || instance == d.instance {
		d.t.Fatalf("instance %q, %v; it was %q", instance, err, d.instance)
	}
	d.instance = instance
	d.stays("with version " + version)
	return took
}

// stays fails if the pod's container is another one by now, or has not the volume.
func (d *inPlace) stays(when string) {
	d.t.Helper()
	if instance, err := answerOf(d.t.Context(), d.ip, "instance"); err != nil || instance != d.instance {
		d.t.Errorf("%s: instance %q, %v; it was %q", when, instance, err, d.instance)
	}
	if content, err := answerOf(d.t.Context(), d.ip, "file/"+keptVolume+"/file"); content != d.started.pod.Name {
		d.t.Errorf("%s: the volume's file has %q, %v", when, content, err)
	}
}

// awaitUpgrade waits until the node shows the pod's upgrade in a state.
func (d *inPlace) awaitUpgrade(state api.UpgradeState) (u api.Upgrade) {
	d.t.Helper()
	eventually(d.t, "the upgrade is "+string(state), func(ctx context.Context) string {
		var err error
		if u, err = d.upgradeNow(ctx); err == nil && u.State != state {
			err = fmt.Errorf("it is %s: %s", u.State, u.Message)
		}
		return words(err)
	})
	return u
}

// upgradeNow is the pod's upgrade as the node shows it.
func (d *inPlace) upgradeNow(ctx context.Context) (u api.Upgrade, err error) {
	code, body := rawclient.Ask(ctx, http.MethodGet, upgradeURL(d.node, d.ns, d.started.pod.Name))
	if code != http.StatusOK {
		return u, fmt.Errorf("GET upgrade: %d %s", code, body)
	}
	err = json.Unmarshal([]byte(body), &u)
	return u, err
}

// awaitCondition waits until the cloud has PodUpgradedOffline, and returns the pod.
func (d *inPlace) awaitCondition(reason string) (pod *corev1.Pod) {
	d.t.Helper()
	eventually(d.t, "the cloud sees "+string(api.UpgradedOfflineCondition)+" "+reason, func(ctx context.Context) string {
		var err error
		if pod, err = env.client.CoreV1().Pods(d.ns).Get(ctx, d.started.pod.Name, metav1.GetOptions{}); err != nil {
			return err.Error()
		}
		if c := api.Condition(pod, api.UpgradedOfflineCondition); c == nil || c.Reason != reason {
			return fmt.Sprintf("it is %+v", c)
		}
		return ""
	})
	return pod
}

// restartHub kills the hub, and starts it again.
func (d *inPlace) restartHub() {
	d.t.Helper()
	if err := d.node.HubProcess().Kill(); err != nil {
		d.t.Fatal(err)
	}
	if err := d.node.HubProcess().Start(d.t.Context()); err != nil {
		d.t.Fatal(err)
	}
}

// losesPower turns the machine off and on while the new version is on probation, and returns when the pod serves a version, perhaps at
// another address.
func (d *inPlace) losesPower(serves string) {
	d.t.Helper()
	if u, err := d.upgradeNow(d.t.Context()); err != nil || u.State != api.InProgress {
		d.t.Fatalf("the upgrade is %s: %s, %v; this test shows nothing", u.State, u.Message, err)
	}
	if err := errors.Join(d.node.PowerOff(), d.node.PowerOn(d.t.Context())); err != nil {
		d.t.Fatal(err)
	}
	now := d.find(d.started.pod.Name)
	d.ip, d.started.pod = now.ip, d.started.pod.DeepCopy()
	d.started.pod.Status.PodIP = now.ip
	d.serves(serves, time.Now())
}

// servesWithin is how long the new version may take besides the grace of the old one.
const servesWithin = 3 * time.Second

// TestUpgradeInPlace upgrades a pod without the cloud, has hub, containerd and kubelet die, and gives the cloud back, which follows. The
// container of the new version is the same all the time. The controller marks the pod before, and gives it what it runs afterwards.
func TestUpgradeInPlace(t *testing.T) {
	d := newInPlace(t, "in-place", "node1", "")
	d.cut("refused")
	began := time.Now()
	d.post(api.UpgradePath(d.ns, d.started.pod.Name), http.StatusOK, "Start updating pod "+d.ns+"/"+d.started.pod.Name+" (offline, in place)\n")
	t.Logf("POST upgrade was answered after %v", time.Since(began).Round(time.Millisecond))
	took := d.serves("one", began)
	t.Logf("the new version serves after %v", took.Round(time.Millisecond))
	if grace := time.Duration(*d.started.pod.Spec.TerminationGracePeriodSeconds) * time.Second; took > servesWithin+grace {
		t.Errorf("the new version serves after %v, want %v and the old one's grace of %v", took, servesWithin, grace)
	}
	d.post(api.UpgradePath(d.ns, d.started.pod.Name), http.StatusOK, "(offline, in place)")
	d.restartHub()
	if err := errors.Join(d.node.ContainerdProcess().Kill(), d.node.ContainerdProcess().Start(t.Context())); err != nil {
		t.Fatal(err)
	}
	awaitUpstream(t, d.node, 0)
	d.awaitUpgrade(api.Done)
	d.stays("after the hub and containerd were killed")
	others := d.steady(map[string]started{"the upgraded pod": d.started})
	if err := d.node.KubeletProcess().Restart(t.Context()); err != nil {
		t.Fatal(err)
	}

	giveBack(t, d.node)
	pod := d.awaitCondition(api.ReasonReconciled)
	if pod.Labels[appsv1.ControllerRevisionHashLabelKey] != d.revision || api.Condition(pod, api.ReconciledCondition) != nil {
		t.Errorf("the cloud has labels %v and conditions %+v", pod.Labels, pod.Status.Conditions)
	}
	eventually(t, "the cloud knows what runs, and kubelet has seen what it has", func(ctx context.Context) string {
		pod, err := env.client.CoreV1().Pods(d.ns).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		_, annotated := pod.Annotations[api.UpgradedOfflineAnnotation]
		need := api.Condition(pod, api.NeedCondition)
		ds, err := env.client.AppsV1().DaemonSets(d.ns).Get(ctx, "app", metav1.GetOptions{})
		if err != nil || need == nil || need.Status != corev1.ConditionFalse || ds.Status.UpdatedNumberScheduled != 1 || ds.Status.NumberAvailable != 1 {
			return fmt.Sprintf("%v, %+v, %+v", err, need, ds.Status)
		}
		if status := pod.Status.ContainerStatuses[0]; annotated || pod.UID != d.started.pod.UID || pod.Status.PodIP != d.ip || status.RestartCount != 1 ||
			pod.Status.ObservedGeneration != pod.Generation || !strings.HasSuffix(pod.Spec.Containers[0].Image, d.image) {
			return fmt.Sprintf("annotated %t, observed %d of %d, %+v", annotated, pod.Status.ObservedGeneration, pod.Generation, status)
		}
		return ""
	})
	others()
	d.stays("after the cloud is back")
}

// TestTheWayBackInPlace goes back without the cloud: when the owner wants it. Before that, kubelet would ask the registry for the
// new image, and the upgrade waits.
func TestTheWayBackInPlace(t *testing.T) {
	d := newInPlace(t, "in-place-back", "node3", "")
	d.cut("black hole")
	upgrade := api.UpgradePath(d.ns, d.started.pod.Name)
	d.configureKubelet(map[string]any{"imagePullCredentialsVerificationPolicy": "AlwaysVerify"})
	t.Cleanup(func() { d.configureKubelet(nil) })
	d.post(upgrade, http.StatusAccepted, "; it cannot be done in place: kubelet would first ask the registry for image "+d.image+": its imagePullCredentialsVerificationPolicy is AlwaysVerify\n")
	d.stays("while the upgrade waits")
	d.configureKubelet(nil)
	d.post(upgrade, http.StatusOK, "(offline, in place)")
	d.serves("one", time.Now())
	began := time.Now()
	d.post(api.RollbackPath(d.ns, d.started.pod.Name), http.StatusOK, "Start rolling back pod "+d.ns+"/"+d.started.pod.Name+" (in place)\n")
	t.Logf("the old version serves after %v", d.serves("v1", began).Round(time.Millisecond))
	d.awaitUpgrade(api.Dropped)
	giveBack(t, d.node)
	pod := d.awaitCondition(api.ReasonUndone)
	if _, ok := pod.Annotations[api.UpgradedOfflineAnnotation]; ok {
		t.Error("the cloud is asked to follow")
	}
	d.expectRestarts(pod, 2) // one in each direction
	d.stays("after the cloud is back")
}

// TestAVersionThatCrashesIsUndoneInPlace upgrades to a version that crashes: the old one is back by itself.
func TestAVersionThatCrashesIsUndoneInPlace(t *testing.T) {
	d := newInPlace(t, "in-place-broken", "node2", env.Image("broken"))
	d.cut("refused")
	began := time.Now()
	upgrade := api.UpgradePath(d.ns, d.started.pod.Name)
	d.post(upgrade, http.StatusOK, "(offline, in place)")
	d.awaitUpgrade(api.Dropped)
	t.Logf("undone after %v; the old version serves after %v", time.Since(began).Round(time.Millisecond), d.serves("v1", began).Round(time.Millisecond))
	d.post(upgrade, http.StatusAccepted, "was tried without the cloud, and the pod came back from it: container app has ended 3 times, at last with exit code 1")
	if code, body := rawclient.Ask(t.Context(), http.MethodDelete, d.node.APIURL()+upgrade); code != http.StatusOK {
		t.Errorf("DELETE upgrade: %d %s", code, body)
	}
	giveBack(t, d.node)
	d.awaitCondition(api.ReasonCrashed)
	d.stays("after the cloud is back")
}

// TestAVersionThatIsNeverReadyIsUndoneInPlace upgrades to a version that runs, and whose readiness probe fails.
func TestAVersionThatIsNeverReadyIsUndoneInPlace(t *testing.T) {
	of := newDaemon(t, "in-place-unready", "node3")
	patchTemplate(t, of.ns, "app", `{"containers":[{"name":"app","readinessProbe":{"httpGet":{"path":"/readyz","port":8080},"periodSeconds":1,"failureThreshold":1}}]}`)
	of.awaitMark()
	of.post(api.UpgradePath(of.ns, of.pod.Name), http.StatusOK, "Start updating pod ")
	of.pod = readyPodOn(t, of.ns, of.node.Name(), of.pod.UID)
	d := of.inPlace(env.Image("unready"))
	d.cut("refused")
	began := time.Now()
	upgrade := api.UpgradePath(d.ns, d.started.pod.Name)
	d.post(upgrade, http.StatusOK, "(offline, in place)")
	d.serves("unready", began)
	d.awaitUpgrade(api.Dropped)
	t.Logf("undone after %v; the old version serves after %v", time.Since(began).Round(time.Millisecond), d.serves("v1", began).Round(time.Millisecond))
	d.post(upgrade, http.StatusAccepted, "was tried without the cloud, and the pod came back from it: ")
	if code, body := rawclient.Ask(t.Context(), http.MethodDelete, d.node.APIURL()+upgrade); code != http.StatusOK {
		t.Errorf("DELETE upgrade: %d %s", code, body)
	}
	giveBack(t, d.node)
	pod := d.awaitCondition(api.ReasonNotReady)
	d.expectRestarts(pod, 2) // one in each direction
	d.stays("after the cloud is back")
}

// TestUpgradeInPlaceGoesOnAfterAPowerCut turns the machine off while the new version is on probation, which goes on with it afterwards.
func TestUpgradeInPlaceGoesOnAfterAPowerCut(t *testing.T) {
	d := newInPlace(t, "in-place-power", "node1", "")
	d.cut("black hole")
	d.post(api.UpgradePath(d.ns, d.started.pod.Name), http.StatusOK, "(offline, in place)")
	d.serves("one", time.Now())
	d.losesPower("one")
	d.awaitUpgrade(api.Done)
	giveBack(t, d.node)
	pod := d.awaitCondition(api.ReasonReconciled)
	d.expectRestarts(pod, 2) // by the upgrade, and by the machine
	d.stays("after the cloud is back")
}

// TestAVersionThatRebootsTheMachineIsUndoneInPlace turns the machine off again and again while the new version is on probation, as one
// does that makes it hang. The owner is told why the old one is back.
func TestAVersionThatRebootsTheMachineIsUndoneInPlace(t *testing.T) {
	d := newInPlace(t, "in-place-reboots", "node2", "")
	d.cut("refused")
	upgrade := api.UpgradePath(d.ns, d.started.pod.Name)
	d.post(upgrade, http.StatusOK, "(offline, in place)")
	d.serves("one", time.Now())
	for _, serves := range []string{"one", "one", "v1"} {
		d.losesPower(serves)
	}
	const why = "the machine has started 3 times since, and the pod was not Ready for 10s"
	if u := d.awaitUpgrade(api.Dropped); !strings.Contains(u.Message, why) {
		t.Errorf("the owner reads %q", u.Message)
	}
	d.post(upgrade, http.StatusAccepted, "was tried without the cloud, and the pod came back from it: "+why)
	if code, body := rawclient.Ask(t.Context(), http.MethodDelete, d.node.APIURL()+upgrade); code != http.StatusOK {
		t.Errorf("DELETE upgrade: %d %s", code, body)
	}
	giveBack(t, d.node)
	pod := d.awaitCondition(api.ReasonRebooted)
	d.expectRestarts(pod, 4) // by the upgrade, and by the machine
	d.stays("after the cloud is back")
	eventually(t, "the cloud has the Event", func(ctx context.Context) string {
		list, err := env.client.CoreV1().Events(d.ns).List(ctx, metav1.ListOptions{FieldSelector: "reason=OfflineUpgradeUndone,involvedObject.uid=" + string(pod.UID)})
		if err != nil || len(list.Items) != 1 || !strings.Contains(list.Items[0].Message, why) {
			return fmt.Sprintf("%v, %+v", err, list)
		}
		return ""
	})
}
