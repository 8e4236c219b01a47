package bundle

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
)

// node is a node with pods, which reads bundles.
type node struct {
	*Store
	t       *testing.T
	dir     string
	pods    []*corev1.Pod
	unknown bool
	online  bool
	changes int
	events  []string
}

func newNode(t *testing.T, pods ...*corev1.Pod) *node {
	n := &node{t: t, dir: t.TempDir(), pods: pods}
	n.restart()
	n.setKeys(map[string]string{"alice": entry(t, newKey('a'), "[shop]", "2000-12-01T00:00:00Z")})
	return n
}

func (n *node) restart() {
	n.t.Helper()
	s, err := OpenStore(Options{
		Dir: n.dir, Pods: func() ([]*corev1.Pod, bool) { return n.pods, !n.unknown }, Online: func() bool { return n.online }, Changed: func() { n.changes++ },
		Event: func(about *corev1.ObjectReference, eventType, reason, _ string) {
			n.events = append(n.events, string(about.UID)+" "+eventType+" "+reason)
		},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		n.t.Fatal(err)
	}
	n.Store = s
}

// setKeys has the cloud say which keys there are, by a clock that is the node's.
func (n *node) setKeys(data map[string]string) {
	n.t.Helper()
	if err := n.SetKeys(data, time.Now().UTC()); err != nil {
		n.t.Fatal(err)
	}
}

// image returns to which image of its app a pod is offered to be upgraded, "" for none.
func (n *node) image(pod *corev1.Pod) string {
	n.t.Helper()
	before := pod.DeepCopy()
	shown := n.Offered(pod)
	if !equal(before, pod) {
		n.t.Error("the pod itself was changed")
	}
	if shown == pod {
		return ""
	}
	target, ok := api.NextOf(shown)
	if !ok || len(target.InPlace) != 1 || target.NotInPlace != "" {
		n.t.Fatalf("%+v", target)
	}
	return target.InPlace[0].To
}

func equal(a, b *corev1.Pod) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return bytes.Equal(x, y)
}

// newPod is one of DaemonSet shop/web, of revision v1.
func newPod(change func(*corev1.Pod)) *corev1.Pod {
	policy := api.DefaultPolicy()
	policy.InPlace, policy.Newest = true, 6
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-1", UID: "p", Labels: map[string]string{"controller-revision-hash": "v1"},
			Annotations:     map[string]string{api.PolicyAnnotation: policy.Encode()},
			OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Name: "web", UID: "w", Controller: new(true)}},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:v1"}, {Name: "log", Image: "log:v1"}}},
	}
	if change != nil {
		change(pod)
	}
	return pod
}

// marked has the cloud offer a pod a revision, by its number.
func marked(revision string, number int64) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		t := api.Target{Revision: revision, Number: number, Containers: []api.TargetImage{{Name: "app", Image: "app:" + revision}}}
		*pod = *api.WithTarget(pod, t, "UpgradeAvailable", time.Now())
		newestIs(number)(pod)
	}
}

// newestIs has the number of the newest revision in the cloud be another.
func newestIs(number int64) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		policy, _ := api.PolicyOf(pod)
		policy.Newest = number
		pod.Annotations[api.PolicyAnnotation] = policy.Encode()
	}
}

// later brings another revision.
func later(revision string, number int64) Bundle {
	b := newBundle()
	b.Target.Revision, b.Target.Number = revision, number
	b.Target.Containers[0].Image = "app:" + revision
	b.Bases["v1"][0].To = "app:" + revision
	b.Images = nil
	return b
}

func TestABundleIsOfferedWhileTheCloudIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := newPod(nil)
		n := newNode(t, pod, newPod(func(p *corev1.Pod) { p.UID, p.OwnerReferences = "q", nil }))
		time.Sleep(25 * time.Hour)
		envelope := sign(t, newBundle(), newKey('a'))
		if b, err := n.Check(envelope); err != nil || b.Problem != "" || !slices.Equal(b.Pods, []string{"shop/web-1"}) || n.image(pod) != "" || len(n.List()) > 0 {
			t.Fatalf("verified: %+v, %v", b, err)
		}
		before := n.changes
		b, err := n.Take(envelope)
		if err != nil || b.Key != "alice" || b.Revision != "v2" || b.Number != 7 || len(b.Images) != 1 || len(b.Containers) != 2 || b.Problem != "" {
			t.Fatalf("%+v, %v", b, err)
		}
		if n.image(pod) != "app:v2" || n.changes == before || !slices.Equal(n.events, []string{"p Normal UpgradeOffered"}) {
			t.Errorf("%q, %d changes, %q", n.image(pod), n.changes-before, n.events)
		}
		if got := n.Images(); !slices.Equal(got, []string{"app:v2", "log:v1"}) {
			t.Errorf("%q stay", got)
		}
		n.restart()
		if n.image(pod) != "app:v2" || len(n.List()) != 1 {
			t.Error("a restart has lost it")
		}
		n.online = true
		if n.image(pod) != "" || n.List()[0].Problem == "" || len(n.Images()) != 2 {
			t.Errorf("the cloud is there: %q, %+v, %q", n.image(pod), n.List(), n.Images())
		}
		n.online = false
		for name, other := range map[string]func(*corev1.Pod){
			"it is replaced":            func(p *corev1.Pod) { p.Labels["controller-revision-hash"] = "v2" },
			"the cloud offers the same": marked("v2", 7),
			"the cloud offers a later":  marked("v3", 8),
			"another workload":          func(p *corev1.Pod) { p.OwnerReferences[0].UID = "x" },
		} {
			if got := n.image(newPod(other)); got != "" {
				t.Errorf("%s, and it is offered %s", name, got)
			}
		}
		if got := n.image(newPod(marked("v1b", 6))); got != "app:v2" {
			t.Errorf("the cloud has offered an earlier one, and it is offered %q", got)
		}
		n.pods = []*corev1.Pod{newPod(func(p *corev1.Pod) { p.Labels["controller-revision-hash"] = "v2" })}
		if b := n.List()[0]; len(b.Pods) > 0 || !strings.Contains(b.Problem, "it is of revision v2 already") {
			t.Errorf("it runs: %+v", b)
		}
		time.Sleep(30 * 24 * time.Hour)
		if n.image(pod) != "" || len(n.Images()) > 0 || !strings.Contains(n.List()[0].Problem, "it counted until") {
			t.Errorf("after it has expired: %+v", n.List())
		}
	})
}

func TestABundleIsRefused(t *testing.T) {
	alice := newKey('a')
	with := func(change func(*Bundle)) func(*testing.T, *node) []byte {
		return func(t *testing.T, _ *node) []byte {
			b := newBundle()
			change(&b)
			return sign(t, b, alice)
		}
	}
	signed := func(b Bundle) func(*testing.T, *node) []byte {
		return func(t *testing.T, _ *node) []byte { return sign(t, b, alice) }
	}
	// after has it be taken after another one.
	after := func(first, b Bundle) func(*testing.T, *node) []byte {
		return func(t *testing.T, n *node) []byte {
			if _, err := n.Take(sign(t, first, alice)); err != nil {
				t.Fatal(err)
			}
			n.restart()
			return sign(t, b, alice)
		}
	}
	// when has the node be like something.
	when := func(change func(*node)) func(*testing.T, *node) []byte {
		return func(t *testing.T, n *node) []byte { change(n); return sign(t, newBundle(), alice) }
	}
	podIs := func(change func(*corev1.Pod)) func(*testing.T, *node) []byte {
		return when(func(n *node) { n.pods = []*corev1.Pod{newPod(change)} })
	}
	keysAre := func(key ed25519.PrivateKey, namespaces, notAfter string) func(*testing.T, *node) []byte {
		return when(func(n *node) { n.setKeys(map[string]string{"alice": entry(n.t, key, namespaces, notAfter)}) })
	}
	for name, tt := range map[string]struct {
		bundle func(*testing.T, *node) []byte
		says   string // "": it is taken
	}{
		"nothing is wrong":            {signed(newBundle()), ""},
		"another key":                 {keysAre(newKey('b'), "[shop]", "2000-12-01T00:00:00Z"), "none of the keys"},
		"a key of another namespace":  {keysAre(alice, "[factory]", "2000-12-01T00:00:00Z"), "may not sign for namespace shop"},
		"a key of all namespaces":     {keysAre(alice, `["*"]`, "2000-12-01T00:00:00Z"), ""},
		"a key that counts no longer": {keysAre(alice, "[shop]", "2000-01-01T00:00:00Z"), "key alice, which has signed it, counted until"},
		"no ConfigMap":                {when(func(n *node) { n.setKeys(nil) }), "knows no key"},
		"keys of long ago": {func(t *testing.T, _ *node) []byte {
			time.Sleep(MaxKeysAge)
			return with(func(b *Bundle) { b.Issued, b.Expires = time.Now(), time.Now().Add(time.Hour) })(t, nil)
		}, "has read the keys of its cluster"},
		"an older revision":                    {after(later("v3", 8), newBundle()), "has taken number 8"},
		"a later revision":                     {after(newBundle(), later("v3", 8)), ""},
		"the same again, made later":           {after(newBundle(), func() Bundle { b := newBundle(); b.Expires = b.Expires.Add(time.Hour); return b }()), ""},
		"the same again, made earlier":         {after(newBundle(), func() Bundle { b := newBundle(); b.Issued = b.Issued.Add(-time.Second); return b }()), "was issued later"},
		"the same number, another":             {after(newBundle(), later("v3", 7)), "another revision with number 7"},
		"the same number, other hash":          {after(newBundle(), func() Bundle { b := newBundle(); b.Target.Revision = "v2b"; return b }()), "another revision with number 7"},
		"the same number, other image":         {after(newBundle(), func() Bundle { b := later("v3", 7); b.Target.Revision = "v2"; return b }()), "another revision with number 7"},
		"another UID":                          {with(func(b *Bundle) { b.UID = "x" }), "no pod of this node is of DaemonSet shop/web with UID x"},
		"another base":                         {podIs(func(p *corev1.Pod) { p.Labels["controller-revision-hash"] = "v0" }), `it is of revision "v0", and more than images may differ`},
		"another image than its base":          {podIs(func(p *corev1.Pod) { p.Spec.Containers[0].Image = "app:debug" }), `has image "app:debug"`},
		"it runs already":                      {podIs(func(p *corev1.Pod) { p.Labels["controller-revision-hash"] = "v2" }), "it is of revision v2 already"},
		"the pod is terminating":               {podIs(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} }), "no pod of this node"},
		"no annotation":                        {podIs(func(p *corev1.Pod) { p.Annotations = nil }), "does not permit upgrades without the cloud"},
		"a policy that is none":                {podIs(func(p *corev1.Pod) { p.Annotations[api.PolicyAnnotation] = "{" }), "does not permit upgrades without the cloud"},
		"the cloud has a later one":            {podIs(marked("v3", 8)), "number 8 when the node was told last"},
		"the cloud has the same":               {podIs(marked("v2", 7)), ""},
		"the cloud reuses the number":          {podIs(marked("v3", 7)), "another revision with number 7"},
		"the cloud gives no numbers":           {podIs(marked("v3", 0)), "older than this hub"},
		"the cloud has gone back from it":      {podIs(newestIs(8)), "number 8 when the node was told last"},
		"it is another of that number":         {podIs(newestIs(7)), "another revision with number 7"},
		"the cloud has an earlier one":         {podIs(marked("v1b", 6)), ""},
		"what the cloud offers cannot be read": {podIs(func(p *corev1.Pod) { p.Annotations[api.TargetAnnotation] = "{" }), ""},
		"no pods are known":                    {when(func(n *node) { n.unknown = true }), "does not know the pods"},
		"expired":                              {with(func(b *Bundle) { b.Issued, b.Expires = b.Issued.Add(-48*time.Hour), b.Issued }), "it counted until"},
		"a clock that was set back":            {when(func(n *node) { n.floor(issued.Add(31 * 24 * time.Hour)) }), "it counted until"},
		"and a restart":                        {when(func(n *node) { n.floor(issued.Add(31 * 24 * time.Hour)); n.restart() }), "it counted until"},
		"and time that has passed since":       {when(func(n *node) { n.floor(issued.Add(29 * 24 * time.Hour)); time.Sleep(2 * 24 * time.Hour) }), "it counted until"},
		"and a bundle that was taken then": {func(t *testing.T, n *node) []byte {
			n.floor(issued.Add(29 * 24 * time.Hour))
			time.Sleep(2 * 24 * time.Hour)
			return after(func() Bundle { b := newBundle(); b.Expires = b.Expires.Add(time.Hour * 240); return b }(), newBundle())(t, n)
		}, "it counted until"},
		"keys that are read again after some time": {func(t *testing.T, n *node) []byte {
			time.Sleep(20 * 24 * time.Hour)
			n.floor(time.Now())
			return sign(t, newBundle(), alice)
		}, ""},
		"issued when its key counts no longer": {with(func(b *Bundle) {
			b.Issued = time.Date(2000, 12, 1, 0, 0, 0, 0, time.UTC)
			b.Expires = b.Issued.Add(time.Hour)
		}), "key alice, which has signed it, counted until"},
		"expired just now":         {with(func(b *Bundle) { b.Expires = issued.Add(time.Hour) }), "it counted until"},
		"a key that has just done": {keysAre(alice, "[shop]", "2000-01-02T01:00:00Z"), "counted until"},
		"a clock that was set ahead": {func(t *testing.T, _ *node) []byte {
			time.Sleep(40 * 24 * time.Hour)
			return sign(t, newBundle(), alice)
		}, "if the clock of this node is wrong, set it"},
		"a clock that stands still": {with(func(b *Bundle) { b.Issued, b.Expires = b.Issued.Add(9999*time.Hour/10), b.Issued.Add(1100*time.Hour) }), ""},
		"a floor that a bundle gives": {after(func() Bundle {
			b := newBundle()
			b.Issued = b.Issued.Add(60 * 24 * time.Hour)
			b.Expires = b.Issued.Add(time.Hour)
			return b
		}(), later("v3", 8)), "it counted until"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t, newPod(nil))
				time.Sleep(25 * time.Hour)
				envelope := tt.bundle(t, n)
				had := len(n.List())
				_, err := n.Take(envelope)
				_, checkErr := n.Check(envelope)
				if tt.says == "" {
					if err != nil || checkErr != nil || len(n.List()) != 1 {
						t.Fatal(err, checkErr)
					}
					return
				}
				if _, ok := errors.AsType[*RefusedError](err); !ok || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("%v, want %q", err, tt.says)
				}
				if checkErr == nil || len(n.List()) != had {
					t.Errorf("%v, and there are %d", checkErr, len(n.List()))
				}
			})
		})
	}
}

// Whoever may call could wear out the disk otherwise.
func TestABundleThatIsSentAgainIsNoNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, newPod(nil))
		time.Sleep(25 * time.Hour)
		first, err := n.Take(sign(t, newBundle(), newKey('a')))
		if err != nil {
			t.Fatal(err)
		}
		events, changes := len(n.events), n.changes
		if err := os.RemoveAll(n.dir); err != nil { // nothing can be written
			t.Fatal(err)
		}
		for range 3 {
			time.Sleep(time.Hour)
			n.pods = []*corev1.Pod{newPod(nil)}
			b, err := n.Take(append(sign(t, newBundle(), newKey('a')), '\n'))
			if err != nil || b.Revision != first.Revision || len(b.Pods) != 1 || len(n.events) != events || n.changes != changes {
				t.Errorf("%+v, %v, %q, %d changes", b, err, n.events, n.changes-changes)
			}
		}
	})
}

// A DaemonSet that was deleted and made anew has the same file.
func TestTheBundleOfAWorkloadThatWasMadeAnewStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, newPod(nil))
		both := map[string]string{"alice": entry(t, newKey('a'), "[shop]", "2000-12-01T00:00:00Z"), "bob": entry(t, newKey('b'), "[shop]", "2000-12-01T00:00:00Z")}
		n.setKeys(both)
		time.Sleep(25 * time.Hour)
		if _, err := n.Take(sign(t, newBundle(), newKey('a'))); err != nil {
			t.Fatal(err)
		}
		n.pods = []*corev1.Pod{newPod(func(p *corev1.Pod) { p.OwnerReferences[0].UID = "x" })}
		anew := newBundle()
		anew.UID = "x"
		if _, err := n.Take(sign(t, anew, newKey('b'))); err != nil || len(n.List()) != 1 {
			t.Fatalf("%v, %+v", err, n.List())
		}
		delete(both, "alice")
		n.setKeys(both)
		for range 2 {
			if got := n.List(); len(got) != 1 || got[0].UID != "x" || n.image(n.pods[0]) != "app:v2" {
				t.Errorf("%+v", got)
			}
			n.restart()
		}
	})
}

// floor has the cloud say the keys at a time.
func (n *node) floor(at time.Time) {
	n.t.Helper()
	if err := n.SetKeys(map[string]string{"alice": entry(n.t, newKey('a'), "[shop]", "2000-12-01T00:00:00Z")}, at); err != nil {
		n.t.Fatal(err)
	}
}

// A bundle that cannot be written down is not taken: the next hub would not know the floor.
func TestABundleThatCannotBeWrittenIsNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := newPod(nil)
		n := newNode(t, pod)
		taken := filepath.Join(n.dir, "taken")
		if err := errors.Join(os.Remove(taken), os.WriteFile(taken, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		if _, err := n.Take(sign(t, newBundle(), newKey('a'))); !IsDisk(err) || n.image(pod) != "" || len(n.List()) > 0 {
			t.Errorf("%v, and it is offered %q", err, n.image(pod))
		}
		if err := errors.Join(os.Remove(taken), os.Remove(filepath.Join(n.dir, trustFile)), os.Mkdir(filepath.Join(n.dir, trustFile), 0o700)); err != nil {
			t.Fatal(err)
		}
		if _, err := n.Take(sign(t, newBundle(), newKey('a'))); !IsDisk(err) || n.image(pod) != "" {
			t.Errorf("the time cannot be written: %v, and it is offered %q", err, n.image(pod))
		}
		n.restart()
		if err := os.Remove(filepath.Join(n.dir, trustFile)); err != nil {
			t.Fatal(err)
		}
		n.floor(issued)
		n.restart()
		if n.image(pod) != "" {
			t.Error("and the next hub takes it")
		}
	})
}

// What is damaged on the disk does not count, and does not keep the hub from starting.
func TestDamagedFilesDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := newPod(nil)
		n := newNode(t, pod)
		if _, err := n.Take(sign(t, newBundle(), newKey('a'))); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(n.dir, "taken", "shop_daemonset.web.json")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for name, change := range map[string]func() error{
			"changed": func() error {
				return os.WriteFile(file, []byte(strings.Replace(string(text), `"payload":"ey`, `"payload":"ez`, 1)), 0o600)
			},
			"torn":              func() error { return os.WriteFile(file, text[:100], 0o600) },
			"of another":        func() error { return os.Rename(file, filepath.Join(n.dir, "taken", "shop_daemonset.api.json")) },
			"the keys are torn": func() error { return os.WriteFile(filepath.Join(n.dir, trustFile), []byte("{"), 0o600) },
		} {
			if err := errors.Join(os.WriteFile(file, text, 0o600), change()); err != nil {
				t.Fatal(err)
			}
			n.restart()
			if n.image(pod) != "" || len(n.List()) > 0 {
				t.Errorf("%s, and it is offered %q", name, n.image(pod))
			}
			n.floor(issued)
		}
	})
}

// The floor of a workload that is gone is forgotten once nothing older can count.
func TestFloorsOfOtherWorkloadsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, newPod(nil))
		time.Sleep(25 * time.Hour)
		if _, err := n.Take(sign(t, newBundle(), newKey('a'))); err != nil {
			t.Fatal(err)
		}
		n.pods = []*corev1.Pod{newPod(func(p *corev1.Pod) { p.OwnerReferences[0].UID, p.OwnerReferences[0].Name = "x", "api" })}
		other := func() []byte {
			b := newBundle()
			b.UID, b.Name, b.Issued, b.Expires = types.UID("x"), "api", time.Now(), time.Now().Add(time.Hour)
			return sign(t, b, newKey('a'))
		}
		here, gone := slices.Concat(n.pods, []*corev1.Pod{newPod(nil)}), n.pods
		for i, want := range []int{2, 2, 1} {
			n.pods = [][]*corev1.Pod{here, here, gone}[i]
			if _, err := n.Take(other()); err != nil || len(n.List()) != want {
				t.Errorf("%v, and there are %d bundles, want %d", err, len(n.List()), want)
			}
			time.Sleep([]time.Duration{MaxValidity, time.Hour, 0}[i])
		}
		n.restart()
		if got := n.List(); len(got) != 1 || got[0].Name != "api" {
			t.Errorf("%+v", got)
		}
	})
}
