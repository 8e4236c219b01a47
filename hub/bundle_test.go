package hub

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/imagepull"
	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/bundle"
	"github.com/edgehub-io/edgehub/ota/inplace"
	"github.com/edgehub-io/edgehub/ota/nodepods"
)

// bundleKeys is the ConfigMap with the public half of a key.
func bundleKeys(t *testing.T, key ed25519.PrivateKey) *corev1.ConfigMap {
	t.Helper()
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	value, err := json.Marshal(map[string]any{
		"publicKey": string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})), "namespaces": []string{"d"}, "notAfter": time.Now().Add(time.Hour),
	})
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: bundle.KeysNamespace, Name: bundle.KeysName},
		Data: map[string]string{"alice": string(value)},
	}
}

// withKeys is an apiserver that has the ConfigMap, too.
func withKeys(keys *corev1.ConfigMap, cloud http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/namespaces/kube-system/configmaps/edgehub-bundle-keys" {
			cloud.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(keys)
	}
}

// A bundle brings a version to a node that the cloud has never told of it.
func TestABundleOffersAVersionThatTheCloudHasNotToldOf(t *testing.T) {
	n, cloud := newInPlaceNode(t)
	policy := api.DefaultPolicy()
	policy.InPlace, policy.Newest = true, 1
	cloud.pod.Annotations = map[string]string{api.PolicyAnnotation: policy.Encode()}
	cloud.pod.Status.Conditions = cloud.pod.Status.Conditions[:1]
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	keys := bundleKeys(t, key)
	n.api.Config.Handler = withKeys(keys, cloud)
	change := api.ImageChange{Name: "app", From: "app:v1", To: "app:v2"}
	now := time.Now().UTC().Truncate(time.Second)
	b := bundle.Bundle{
		Kind: "DaemonSet", Namespace: "d", Name: "p", UID: "o", Issued: now, Expires: now.Add(time.Hour),
		Target: api.Target{Revision: "new", Number: 2, Containers: []api.TargetImage{{Name: "app", Image: "app:v2"}}},
		Bases:  map[string][]api.ImageChange{"old": {change}},
	}
	envelope, err := b.Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	h, stop := n.start(t)
	n.kubeletIsShown(t)
	until(t, "the hub knows the node's pods", h.upgrades.pods.Synced)
	until(t, "the bundle is verified", func() bool {
		code, _ := n.ask(t, http.MethodPost, api.UpgradeBundles+"?dryRun=All", string(envelope))
		return code == http.StatusOK
	})
	offered := func() bool {
		t.Helper()
		_, body := n.ask(t, http.MethodGet, api.Pods, "")
		return strings.Contains(body, api.TargetAnnotation) && strings.Contains(body, "OfferedByBundle") && strings.Contains(body, `controllerrevision: new`)
	}
	n.loseCloud(t, h)
	if code, body := n.ask(t, http.MethodPost, api.UpgradeBundles+"?dryRun=true", string(envelope)); code != http.StatusBadRequest {
		t.Errorf("%d %s", code, body)
	}
	if offered() {
		t.Error("what was only verified is offered")
	}
	code, body := n.ask(t, http.MethodPost, api.UpgradeBundles, string(envelope))
	if code != http.StatusOK || !strings.Contains(body, `"pods":["d/p"]`) || !strings.Contains(body, `"key":"alice"`) || !offered() {
		t.Fatalf("%d %s", code, body)
	}
	if code, body := n.asKubelet(t, http.MethodGet, nodesPods, "", ""); code != http.StatusOK || strings.Contains(body, api.TargetAnnotation) {
		t.Errorf("kubelet reads what the cloud has not: %d %s", code, body)
	}
	// All that is missing is a containerd that has the images.
	code, body = n.ask(t, http.MethodPost, api.UpgradePath("d", "p"), "")
	if code != http.StatusAccepted || !strings.Contains(body, "it cannot be done in place: this hub does not know which images are on the node") {
		t.Errorf("%d %s", code, body)
	}
	if target, ok := api.NextOf(h.upgrades.pods.All()[0]); !ok || h.upgrades.inPlace.Begin(h.upgrades.pods.All()[0], target) != nil || n.kubeletIsShown(t) != "app:v2" {
		t.Error("it cannot be upgraded in place")
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	h, _ = n.start(t)
	n.awaitOffline(t, h)
	until(t, "the next hub offers it", func() bool { return h.upgrades.pods.Synced() && offered() })
	for want, body := range map[int]string{http.StatusForbidden: strings.Replace(string(envelope), `"payload":"ey`, `"payload":"ez`, 1), http.StatusBadRequest: "{}", http.StatusRequestEntityTooLarge: strings.Repeat("x", api.MaxUpgradeBundle+1)} {
		if code, line := n.ask(t, http.MethodPost, api.UpgradeBundles, body); code != want {
			t.Errorf("%d %s, want %d", code, line, want)
		}
	}
	if code, body := n.ask(t, http.MethodGet, api.UpgradeBundles, ""); code != http.StatusOK || strings.Count(body, `"revision":"new"`) != 1 {
		t.Errorf("%d %s", code, body)
	}
}

// answers is an apiserver that gives one answer.
type answers struct {
	code        int
	date, body  string
	unreachable bool
}

func (a answers) RoundTrip(*http.Request) (*http.Response, error) {
	if a.unreachable {
		return nil, io.ErrUnexpectedEOF
	}
	return &http.Response{StatusCode: a.code, Status: http.StatusText(a.code), Header: http.Header{"Date": {a.date}}, Body: io.NopCloser(strings.NewReader(a.body))}, nil
}

// No keys count only if the apiserver itself says that there are none, or that the node may not read them.
func TestKeysAreReadOfTheApiserverAlone(t *testing.T) {
	status := func(err *apierrors.StatusError) string {
		text, _ := json.Marshal(err.Status())
		return string(text)
	}
	resource := schema.GroupResource{Resource: "configmaps"}
	date := "Mon, 02 Jan 2006 15:04:05 GMT"
	keys, err := json.Marshal(bundleKeys(t, ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))))
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		answers

		keys int
		ok   bool
	}{
		"there are some":          {answers{code: 200, date: date, body: string(keys)}, 1, true},
		"there is none":           {answers{code: 404, date: date, body: status(apierrors.NewNotFound(resource, bundle.KeysName))}, 0, true},
		"the node may not":        {answers{code: 403, date: date, body: status(apierrors.NewForbidden(resource, bundle.KeysName, nil))}, 0, true},
		"a proxy knows none":      {answers{code: 404, date: date, body: "<html>"}, 0, false},
		"a portal has a page":     {answers{code: 200, date: date, body: "<html>"}, 0, false},
		"another object":          {answers{code: 200, date: date, body: `{"metadata":{"name":"other"}}`}, 0, false},
		"an apiserver that fails": {answers{code: 500, date: date, body: "{}"}, 0, false},
		"no time":                 {answers{code: 200, body: string(keys)}, 0, false},
		"no answer":               {answers{unreachable: true}, 0, false},
	} {
		data, at, err := readKeys(t.Context(), tt.answers)
		if (err == nil) != tt.ok || tt.ok && (len(data) != tt.keys || at.Year() != 2006) {
			t.Errorf("%s: %d keys at %v, %v", name, len(data), at, err)
		}
	}
}

// An offer is nothing that the cloud has decided, and each time another object.
func TestAnOfferEndsNeitherAWishNorARecord(t *testing.T) {
	n, cloud := newInPlaceNode(t)
	target, _ := api.NextOf(cloud.pod)
	record, err := inplace.Begin(nil, cloud.pod, target, "", time.Unix(100, 0))
	if err != nil {
		t.Fatal(err)
	}
	record.State, record.Confirmed = inplace.Confirmed, "5"
	n.writeRecord(t, record)
	policy := api.DefaultPolicy()
	policy.InPlace, policy.Newest = true, 2
	cloud.pod.Labels["controller-revision-hash"], cloud.pod.Spec.Containers[0].Image = "new", "app:v2"
	cloud.pod.Annotations = map[string]string{api.PolicyAnnotation: policy.Encode()}
	cloud.pod.Status.Conditions[1] = corev1.PodCondition{Type: api.NeedCondition, Status: corev1.ConditionFalse, Message: api.Message("new")}
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	keys := bundleKeys(t, key)
	n.api.Config.Handler = withKeys(keys, cloud)
	h, _ := n.start(t)
	n.kubeletIsShown(t)
	u := h.upgrades
	until(t, "the hub knows the node's pods", u.pods.Synced)
	now := time.Now().UTC().Truncate(time.Second)
	b := bundle.Bundle{
		Kind: "DaemonSet", Namespace: "d", Name: "p", UID: "o", Issued: now, Expires: now.Add(time.Hour),
		Target: api.Target{Revision: "newer", Number: 3, Containers: []api.TargetImage{{Name: "app", Image: "app:v3"}}},
		Bases:  map[string][]api.ImageChange{"new": {{Name: "app", From: "app:v2", To: "app:v3"}}},
	}
	envelope, err := b.Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the bundle is taken", func() bool { _, err := u.bundles.Take(envelope); return err == nil })
	n.loseCloud(t, h)
	name := types.NamespacedName{Namespace: "d", Name: "p"}
	if err := u.rollbacks.Request(cloud.pod, api.Target{Revision: "old"}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		u.podsChanged(u.pods.All())
		if shown, ok := api.NextOf(u.pods.Get(name)); !ok || shown.Revision != "newer" {
			t.Fatalf("the pod is offered %+v", shown)
		}
		if wish, _ := u.rollbacks.State(name); wish.State != api.WaitingForCloud {
			t.Errorf("the wish for the earlier version is %+v", wish)
		}
	}
	u.inPlace.StoreRestored() // what the hub has of the pod is of the store before
	u.podsChanged(u.pods.All())
	if runs, _ := u.inPlace.Runs("u"); runs != "new" {
		t.Error("the cloud is not told again of what runs")
	}
}

// noImages is a containerd without images.
type noImages struct{ imagepull.Engine }

func (noImages) Retained(context.Context) ([]string, error) { return nil, nil }

func (noImages) Removals(ctx context.Context, _ func(string)) { <-ctx.Done() }

// Of what a bundle brings, images may be on the node, where kubelet would remove them.
func TestTheImagesThatABundleNamesAreLookedForAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		puller, err := imagepull.New(imagepull.Options{
			Dir: t.TempDir(), Engine: noImages{}, Online: func() bool { return false }, Changed: func() {}, Logger: slog.New(slog.DiscardHandler),
			Others: func() []string {
				looks++
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		pods, err := nodepods.New(nil, "n1")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		running.Go(func() { puller.Run(ctx) })
		synctest.Wait()
		before := looks
		u := &upgrades{pods: pods, images: &images{puller: puller}}
		u.offersChanged()
		synctest.Wait()
		if looks != before+1 {
			t.Errorf("they were looked for %d times", looks-before)
		}
	})
}
