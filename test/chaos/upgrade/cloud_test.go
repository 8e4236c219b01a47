package upgrade_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/internal/poll"
	"github.com/edgehub-io/edgehub/test/internal/rawclient"
)

const appLabel = "app"

// create makes the DaemonSets, and returns when their pods are Ready.
func (r *round) create() {
	r.t.Helper()
	_, err := env.client.CoreV1().Namespaces().Create(r.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.ns}}, metav1.CreateOptions{})
	r.must(err)
	r.seen = observe(r)
	for _, a := range r.apps {
		r.createAccount(a)
		r.createDaemonSet(a, "v1")
	}
	for _, a := range r.apps {
		a.pod = r.awaitPod(a, "v1")
	}
}

// createAccount makes the service account of an app's pods, without which admission refuses them.
func (r *round) createAccount(a *app) {
	r.t.Helper()
	_, err := env.client.CoreV1().ServiceAccounts(r.ns).Create(r.t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: a.name}}, metav1.CreateOptions{})
	r.must(err)
}

func (r *round) createDaemonSet(a *app, version string) {
	r.t.Helper()
	labels, grace := map[string]string{appLabel: a.name}, int64(1)
	annotations := map[string]string{"apps.openyurt.io/update-strategy": "OTA"}
	if a.inPlace {
		annotations[api.OfflineUpgradeAnnotation] = api.OfflineUpgradeInPlace
	}
	_, err := env.client.AppsV1().DaemonSets(r.ns).Create(r.t.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: a.name, Annotations: annotations},
		Spec: appsv1.DaemonSetSpec{
			Selector:       &metav1.LabelSelector{MatchLabels: labels},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				NodeSelector:                  map[string]string{corev1.LabelHostname: r.node.Name()},
				ServiceAccountName:            a.name,
				AutomountServiceAccountToken:  new(bool), // one of an account that is made again is another's
				TerminationGracePeriodSeconds: &grace,
				Containers:                    []corev1.Container{{Name: "app", Image: env.Image(version)}},
				Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			}},
		},
	}, metav1.CreateOptions{})
	r.must(err)
}

func (r *round) deleteDaemonSet(a *app) {
	r.t.Helper()
	background := metav1.DeletePropagationBackground
	r.must(env.client.AppsV1().DaemonSets(r.ns).Delete(r.t.Context(), a.name, metav1.DeleteOptions{PropagationPolicy: &background}))
}

func (r *round) setImage(a *app, version string) {
	r.t.Helper()
	patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"app","image":%q}]}}}}`, env.Image(version))
	_, err := env.client.AppsV1().DaemonSets(r.ns).Patch(r.t.Context(), a.name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	r.must(err)
}

// release gives all DaemonSets a new version, and returns when the node knows what their upgrades are to.
func (r *round) release() {
	r.t.Helper()
	for _, a := range r.apps {
		r.setImage(a, "v2")
	}
	for _, a := range r.apps {
		poll.Check(r.t.Context(), r.t, "kubelet's hub knows that "+a.pod.Name+" needs an upgrade", func(ctx context.Context) error {
			code, body := rawclient.Ask(ctx, http.MethodGet, r.node.APIURL()+api.Pods)
			return needs(code, body, a.pod.UID, env.Image("v2"))
		})
		if a.inPlace {
			r.pull(a)
		}
	}
}

// pull has the node pull an app's next image, and returns when its upgrade takes effect without the cloud.
func (r *round) pull(a *app) {
	r.t.Helper()
	url := r.node.APIURL() + api.ImagePullPath(r.ns, a.pod.Name)
	if code, body := rawclient.Ask(r.t.Context(), http.MethodPost, url); code != http.StatusOK {
		r.t.Fatalf("POST imagepull: %d %s", code, body)
	}
	poll.Check(r.t.Context(), r.t, "the node can upgrade "+a.pod.Name+" in place", func(ctx context.Context) error {
		_, pulled := rawclient.Ask(ctx, http.MethodGet, url)
		var pull api.ImagePull
		if err := json.Unmarshal([]byte(pulled), &pull); err != nil || pull.State != api.Ready {
			return fmt.Errorf("GET imagepull: %s, %w", pulled, err)
		}
		_, body := rawclient.Ask(ctx, http.MethodGet, r.node.APIURL()+api.Pods)
		var pods corev1.PodList
		if err := json.Unmarshal([]byte(body), &pods); err != nil {
			return fmt.Errorf("GET pods: %.200s: %w", body, err)
		}
		for i := range pods.Items {
			if next, ok := api.NextOf(&pods.Items[i]); ok && pods.Items[i].UID == a.pod.UID && len(next.InPlace) == 1 {
				return nil
			}
		}
		return fmt.Errorf("it is not marked: %.2000s", body)
	})
}

// awaitCloud returns when the cloud has drawn the consequences of a DaemonSet's fate that a node must not
// overtake: the DaemonSet's pod is marked for another revision, or being deleted.
func (r *round) awaitCloud(a *app) {
	r.t.Helper()
	poll.Check(r.t.Context(), r.t, fmt.Sprintf("the cloud knows that %s %s", a.name, a.fate), func(ctx context.Context) error {
		pod, err := env.client.CoreV1().Pods(r.ns).Get(ctx, a.pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		target, marked, err := api.TargetOf(pod)
		need := api.Condition(pod, api.NeedCondition)
		ok := false
		switch a.fate {
		case stays, refused: // what was admitted is asked again when the node asks
			ok = true
		case newer:
			ok = marked && err == nil && target.Containers[0].Image == env.Image("v3")
		case undone:
			ok = need != nil && need.Status == corev1.ConditionFalse
		case deleted, recreated:
			ok = pod.DeletionTimestamp != nil
		}
		if !ok {
			return fmt.Errorf("the pod is %v, %v", pod.Annotations, need)
		}
		return nil
	})
}

// awaitPod returns the app's only pod once it is Ready with an image, or, without one, when it has none.
func (r *round) awaitPod(a *app, version string) (pod corev1.Pod) {
	r.t.Helper()
	poll.Check(r.t.Context(), r.t, fmt.Sprintf("the pod of %s, which %s, is Ready with %q", a.name, a.fate, version), func(ctx context.Context) error {
		pods, err := env.client.CoreV1().Pods(r.ns).List(ctx, metav1.ListOptions{LabelSelector: appLabel + "=" + a.name})
		switch {
		case err != nil:
			return err
		case version == "" && len(pods.Items) == 0:
			return nil
		case version == "" || len(pods.Items) != 1:
			return fmt.Errorf("it has %d pods", len(pods.Items))
		}
		pod = pods.Items[0]
		if ready := api.Condition(&pod, corev1.PodReady); ready == nil || ready.Status != corev1.ConditionTrue || pod.Spec.Containers[0].Image != env.Image(version) {
			return fmt.Errorf("it is %s with %s: %+v", pod.UID, pod.Spec.Containers[0].Image, pod.Status)
		}
		return nil
	})
	return pod
}

// remove makes room on the node for the next round.
func (r *round) remove() {
	r.t.Helper()
	r.must(env.client.CoreV1().Namespaces().Delete(r.t.Context(), r.ns, metav1.DeleteOptions{}))
	poll.Check(r.t.Context(), r.t, "the pods of "+r.ns+" are gone", func(ctx context.Context) error {
		pods, err := env.client.CoreV1().Pods(r.ns).List(ctx, metav1.ListOptions{})
		if err == nil && len(pods.Items) > 0 {
			err = fmt.Errorf("there are %d", len(pods.Items))
		}
		return err
	})
}

// observer notes all pods that there have been.
type observer struct {
	mu   sync.Mutex
	pods map[string][]types.UID // by the app
}

func observe(r *round) *observer {
	o := &observer{pods: map[string][]types.UID{}}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(env.client.CoreV1().RESTClient(), "pods", r.ns, fields.Everything()),
		ObjectType:    &corev1.Pod{},
		Handler:       cache.ResourceEventHandlerFuncs{AddFunc: func(object any) { o.add(object) }},
	})
	ctx, cancel := context.WithCancel(r.t.Context())
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	r.t.Cleanup(func() { cancel(); running.Wait() })
	return o
}

func (o *observer) add(object any) {
	if pod, ok := object.(*corev1.Pod); ok {
		o.mu.Lock()
		defer o.mu.Unlock()
		app := pod.Labels[appLabel]
		if !slices.Contains(o.pods[app], pod.UID) {
			o.pods[app] = append(o.pods[app], pod.UID)
		}
	}
}

func (o *observer) of(a *app) []types.UID {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.pods[a.name])
}

// needs returns nil if a pod in the answer to GET /pods needs an upgrade to an image.
func needs(code int, body string, uid types.UID, image string) error {
	var pods corev1.PodList
	if err := json.Unmarshal([]byte(body), &pods); err != nil {
		return fmt.Errorf("%d %.200s: %w", code, body, err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.UID != uid {
			continue
		}
		target, ok, err := api.TargetOf(pod)
		if err == nil && (!ok || target.Containers[0].Image != image || !target.Asks) {
			err = fmt.Errorf("its target is %+v", target)
		}
		return err
	}
	return fmt.Errorf("no pod has the UID %s", uid)
}
