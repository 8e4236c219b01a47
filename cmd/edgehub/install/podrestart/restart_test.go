package podrestart

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/imagepull/engine"
	"github.com/edgehub-io/edgehub/ota/nodeapi"
)

const clusterIP = "10.96.0.1"

var hub = []netip.AddrPort{netip.MustParseAddrPort("169.254.2.1:10268")}

// fake is the cloud and the runtime of a node. All pods bypass the hub, unless they have other variables.
type fake struct {
	pods    []corev1.Pod
	deleted []string
	onPoll  func(f *fake) // called before each list
	failing error
	more    map[string]string // variables
}

func (f *fake) Pods(context.Context, string) ([]corev1.Pod, error) {
	if f.onPoll != nil {
		f.onPoll(f)
	}
	return slices.Clone(f.pods), f.failing
}

func (f *fake) Node(context.Context, string) (*corev1.Node, error) {
	return &corev1.Node{Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "v1.37.2"}}}, nil
}

func (f *fake) DeletePod(_ context.Context, namespace, name, uid string) error {
	f.deleted = append(f.deleted, namespace+"/"+name)
	f.remove(uid)
	return nil
}

func (f *fake) remove(uid string) {
	f.pods = slices.DeleteFunc(f.pods, func(p corev1.Pod) bool { return string(p.UID) == uid })
}

func (f *fake) Environments(context.Context, ...string) ([]engine.Environment, error) {
	var all []engine.Environment
	for _, p := range f.pods {
		values := map[string]string{"KUBERNETES_SERVICE_HOST": clusterIP, "KUBERNETES_PORT": "tcp://" + clusterIP + ":443"}
		maps.Copy(values, f.more)
		all = append(all, engine.Environment{PodUID: string(p.UID), Values: values})
	}
	return all, nil
}

// pod returns a pod with a token. Its UID is its name; owner is KIND/NAME, or empty.
func pod(namespace, name, owner string, ready bool) corev1.Pod {
	p := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}}},
		}}}}},
	}
	if kind, ownerName, ok := strings.Cut(owner, "/"); ok {
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: ownerName, UID: types.UID(owner), Controller: &yes}}
	}
	if ready {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	return p
}

func (f *fake) node(out *strings.Builder) *Node {
	return &Node{Name: "n1", Cloud: f, Runtime: f, Out: out}
}

func list(t *testing.T, f *fake, o Options) []Pod {
	t.Helper()
	pods, err := f.node(nil).List(t.Context(), nodeapi.Bypass, hub, &o)
	if err != nil {
		t.Fatal(err)
	}
	return pods
}

func TestWhichPodsAreSelected(t *testing.T) {
	f := &fake{pods: []corev1.Pod{
		pod("kube-system", "coredns", "ReplicaSet/coredns", true), pod("kube-system", "kube-proxy", "DaemonSet/kube-proxy", true),
		pod("shop", "web", "ReplicaSet/web", true), pod("shop", "bare", "", true),
	}}
	for name, tt := range map[string]struct {
		options Options
		want    string
	}{
		"none":                                {Options{}, ""},
		"of a namespace, DaemonSets first":    {Options{Namespaces: []string{"kube-system"}}, "kube-proxy coredns"},
		"of two namespaces":                   {Options{Namespaces: []string{"kube-system", "shop"}}, "kube-proxy coredns web"},
		"all, but none that nothing replaces": {Options{Namespaces: []string{"all"}}, "kube-proxy coredns web"},
		"with a label":                        {Options{Selector: "app in (web,bare,coredns)"}, "coredns web"},
		"with a label, of a namespace":        {Options{Selector: "app in (web,coredns)", Namespaces: []string{"shop"}}, "web"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, p := range list(t, f, tt.options) {
				if p.Selected {
					got = append(got, p.Name)
				}
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("%v, not %q", got, tt.want)
			}
		})
	}
}

// Where its proxy is from elsewhere than its spec, no restart has it use the hub, and one has it leave the hub.
func TestAPodThatUsesAProxyForTheHub(t *testing.T) {
	f := &fake{pods: []corev1.Pod{pod("shop", "web", "ReplicaSet/web", true)}, more: map[string]string{
		"KUBERNETES_SERVICE_HOST": "169.254.2.1", "KUBERNETES_PORT": "tcp://169.254.2.1:10268", "HTTPS_PROXY": "http://p",
	}}
	for route, selected := range map[nodeapi.Route]bool{nodeapi.Bypass: false, nodeapi.ThroughHub: true} {
		pods, err := f.node(nil).List(t.Context(), route, hub, &Options{Namespaces: []string{"all"}})
		if err != nil || len(pods) != 1 || pods[0].Selected != selected {
			t.Errorf("%s: %+v, %v", route, pods, err)
		}
	}
}

func TestWrongSelectionsAreNamed(t *testing.T) {
	for want, o := range map[string]Options{
		"--restart-pods:":         {Namespaces: []string{"Kube System"}},
		"--restart-pods-selector": {Selector: "app in web"},
		"--restart-pods-timeout":  {Timeout: -1},
	} {
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if err := new(Options).Validate(); err != nil {
		t.Error(err)
	}
}

func TestPodsAreRestartedOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{pods: []corev1.Pod{
			pod("kube-system", "kube-proxy", "DaemonSet/kube-proxy", true), pod("shop", "web", "ReplicaSet/web", true), pod("shop", "other", "ReplicaSet/web", true),
		}}
		began := time.Now()
		f.onPoll = func(f *fake) { // the replacement comes after 3 s, and is Ready after 5 s
			if len(f.deleted) != 1 {
				return
			}
			f.remove("new")
			if since := time.Since(began); since >= 3*time.Second {
				f.pods = append(f.pods, pod("kube-system", "new", "DaemonSet/kube-proxy", since >= 5*time.Second))
			}
		}
		pods, out := list(t, f, Options{Namespaces: []string{"kube-system", "shop"}, Selector: "app!=other"}), &strings.Builder{}
		if err := f.node(out).Restart(t.Context(), pods, time.Minute); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(f.deleted, " "); got != "kube-system/kube-proxy shop/web" {
			t.Errorf("deleted: %s", got)
		}
		// The second has no replacement here, and its sibling, which was there before, is none.
		if got := time.Since(began); got < 5*time.Second+settleTime || got > 7*time.Second+settleTime {
			t.Errorf("it took %v", got)
		}
		if !strings.Contains(out.String(), "shop/web is gone, and its replacement is not on this node") {
			t.Errorf("it printed %s", out)
		}
	})
}

func TestARestartStopsAtThePodThatDoesNotComeBack(t *testing.T) {
	for name, tt := range map[string]struct {
		onPoll func(f *fake)
		want   string
	}{
		"a DaemonSet creates none": {nil, "no other one in its place"},
		"the replacement does not start": {func(f *fake) {
			if len(f.deleted) == 1 && len(f.pods) == 1 {
				f.pods = append(f.pods, pod("a", "new", "DaemonSet/d", false))
			}
		}, "its replacement a/new is not Ready"},
		"it does not end": {func(f *fake) {
			if len(f.deleted) == 1 && len(f.pods) == 1 {
				f.pods = append(f.pods, pod("a", "first", "DaemonSet/d", true))
			}
		}, "has not ended yet"},
		"the cloud goes away": {func(f *fake) {
			if len(f.deleted) == 1 {
				f.failing = errors.New("connection refused")
			}
		}, "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{onPoll: tt.onPoll, pods: []corev1.Pod{pod("a", "first", "DaemonSet/d", true), pod("b", "second", "DaemonSet/e", true)}}
				err := f.node(&strings.Builder{}).Restart(t.Context(), list(t, f, Options{Namespaces: []string{"all"}}), time.Minute)
				if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "restart pod a/first") || !strings.Contains(err.Error(), "1m0s have passed") {
					t.Errorf("got %v", err)
				}
				if len(f.deleted) != 1 {
					t.Errorf("deleted: %v", f.deleted)
				}
			})
		})
	}
}

func TestWhatIsPrinted(t *testing.T) {
	f := &fake{pods: []corev1.Pod{
		pod("kube-system", "kube-proxy", "DaemonSet/kube-proxy", true), pod("shop", "web", "ReplicaSet/web", true), pod("shop", "bare", "", true),
	}}
	var out strings.Builder
	Print(&out, list(t, f, Options{Namespaces: []string{"kube-system"}}))
	const want = `  restart  kube-system/kube-proxy  (DaemonSet/kube-proxy)
  keep     shop/bare: it has no controller that would replace it
  keep     shop/web  (ReplicaSet/web): --restart-pods=shop restarts it
`
	if out.String() != want {
		t.Errorf("got\n%s", out.String())
	}
}
