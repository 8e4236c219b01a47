package podroute

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/imagepull/engine"
	"github.com/edgehub-io/edgehub/ota/api"
)

type fakeRuntime struct {
	environments []engine.Environment
	err          error
}

func (f fakeRuntime) Environments(_ context.Context, names ...string) ([]engine.Environment, error) {
	if !slices.Equal(names, Variables()) {
		return nil, fmt.Errorf("asked for %q", names)
	}
	return f.environments, f.err
}

// container returns the environment of a container whose apiserver is host, and to which kubelet gave
// the address given.
func container(uid, host, given string) engine.Environment {
	return engine.Environment{PodUID: uid, Container: "a", Values: map[string]string{
		hostVariable: host, portVariable: "tcp://" + net.JoinHostPort(given, "443"),
	}}
}

var hub = []netip.AddrPort{netip.MustParseAddrPort("169.254.2.1:10268"), netip.MustParseAddrPort("[fd00::2:1]:10268")}

// daemon returns a pod of a DaemonSet with a token.
func daemon() *corev1.Pod {
	yes := true
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "kube-system", Name: "kube-proxy-x", UID: "u1",
			OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Name: "kube-proxy", Controller: &yes}},
		},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "a"}},
			Volumes: []corev1.Volume{{Name: "t", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}},
			}}}},
		},
	}
}

func TestRoutesOfPods(t *testing.T) {
	runs := func(addresses ...string) (all []engine.Environment) {
		for _, a := range addresses {
			all = append(all, container("u1", a, a))
		}
		return all
	}
	const cluster, hubs, elsewhere = "10.96.0.1", "169.254.2.1", "192.0.2.1"
	sets := func(host, given string) []engine.Environment {
		return []engine.Environment{container("u1", host, given)}
	}
	imageSets := func(host string) []engine.Environment {
		return []engine.Environment{{PodUID: "u1", Container: "a", Values: map[string]string{hostVariable: host}}}
	}
	for name, tt := range map[string]struct {
		change     func(*corev1.Pod)
		containers []engine.Environment
		route      api.Route // empty: the pod is left out
		keep       bool
	}{
		"it started before the hub":                       {nil, runs("10.96.0.1"), api.Bypass, false},
		"it started behind the hub":                       {nil, runs("169.254.2.1"), api.ThroughHub, false},
		"it started behind the hub, with IPv6":            {nil, runs("fd00::2:1"), api.ThroughHub, false},
		"one container has crashed and started again":     {nil, runs("169.254.2.1", "10.96.0.1"), api.Bypass, false},
		"the other container has":                         {nil, runs("10.96.0.1", "169.254.2.1"), api.Bypass, false},
		"its address is a name":                           {nil, runs("apiserver.example.com"), api.Bypass, false},
		"no container runs":                               {nil, nil, "", false},
		"a pod of the same name ran before":               {nil, []engine.Environment{container("u0", cluster, cluster)}, "", false},
		"it is on the host's network":                     {func(p *corev1.Pod) { p.Spec.HostNetwork = true }, runs("10.96.0.1"), api.Bypass, false},
		"it has no token":                                 {func(p *corev1.Pod) { p.Spec.Volumes = nil }, runs("10.96.0.1"), "", false},
		"its token is for somebody else":                  {func(p *corev1.Pod) { p.Spec.Volumes[0].Projected.Sources[0].ServiceAccountToken.Audience = "vault" }, runs("10.96.0.1"), "", false},
		"its token is in a Secret":                        {withSecret, runs("10.96.0.1"), api.Bypass, false},
		"it is static":                                    {func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }, runs("10.96.0.1"), "", false},
		"nothing would replace it":                        {func(p *corev1.Pod) { p.OwnerReferences = nil }, runs("10.96.0.1"), api.Bypass, true},
		"its owner does not control it":                   {func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil }, runs("10.96.0.1"), api.Bypass, true},
		"it is a Job's":                                   {func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "Job" }, runs("10.96.0.1"), api.Bypass, true},
		"it chooses its apiserver itself":                 {withVariable, runs("10.96.0.1"), api.Bypass, true},
		"a ConfigMap names another apiserver":             {nil, sets(elsewhere, hubs), api.Bypass, true},
		"a ConfigMap names the hub":                       {nil, sets(hubs, cluster), api.ThroughHub, true},
		"its image names the hub, and kubelet nothing":    {nil, imageSets(hubs), api.ThroughHub, true},
		"a ConfigMap names another for one container":     {nil, append(sets(elsewhere, hubs), runs(hubs)...), api.ThroughHub, false},
		"a ConfigMap names the hub for one container":     {nil, append(runs(cluster), sets(hubs, cluster)...), api.Bypass, false},
		"its other variable is no address":                {nil, []engine.Environment{{PodUID: "u1", Values: map[string]string{hostVariable: hubs, portVariable: "%zz"}}}, api.ThroughHub, false},
		"a newer revision waits for the node's owner":     {withCondition(corev1.ConditionTrue), runs("10.96.0.1"), api.Bypass, true},
		"it has the newest revision, and an OTA strategy": {withCondition(corev1.ConditionFalse), runs("10.96.0.1"), api.Bypass, false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := daemon()
			if tt.change != nil {
				tt.change(pod)
			}
			got, err := Of(t.Context(), []corev1.Pod{*pod}, fakeRuntime{environments: tt.containers}, hub, "v1.31.0")
			if err != nil {
				t.Fatal(err)
			}
			if tt.route == "" {
				if len(got) != 0 {
					t.Errorf("it is listed: %+v", got)
				}
				return
			}
			if len(got) != 1 || got[0].Route != tt.route || (got[0].Keep != "") != tt.keep || got[0].UID != "u1" {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// A pod has the hub's CA if kubelet has given it the hub's address, whatever address it sets itself.
func TestPodsTrustTheHubIfKubeletReadThroughItWhenTheyStarted(t *testing.T) {
	const name, cluster, hubs = "kubernetes.default.svc", "10.96.0.1", "169.254.2.1"
	for what, tt := range map[string]struct {
		containers []engine.Environment
		distrusts  bool
	}{
		"it started behind the hub":                 {[]engine.Environment{container("u1", hubs, hubs)}, false},
		"with IPv6":                                 {[]engine.Environment{container("u1", "fd00::2:1", "fd00::2:1")}, false},
		"it started before":                         {[]engine.Environment{container("u1", cluster, cluster)}, true},
		"one container did":                         {[]engine.Environment{container("u1", hubs, hubs), container("u1", cluster, cluster)}, true},
		"it sets the name, and started behind it":   {[]engine.Environment{container("u1", name, hubs)}, false},
		"it sets the name, and started before":      {[]engine.Environment{container("u1", name, cluster)}, true},
		"it sets the hub's address, and started so": {[]engine.Environment{container("u1", hubs, cluster)}, true},
		"kubelet has given it none":                 {[]engine.Environment{{PodUID: "u1", Values: map[string]string{hostVariable: hubs}}}, true},
		"it overwrites what kubelet gave":           {[]engine.Environment{{PodUID: "u1", Values: map[string]string{hostVariable: hubs, portVariable: "%zz"}}}, true},
	} {
		t.Run(what, func(t *testing.T) {
			for i := range tt.containers {
				tt.containers[i].ID = fmt.Sprint("c", len(tt.containers)-i)
			}
			r := fakeRuntime{environments: tt.containers}
			got, err := Of(t.Context(), []corev1.Pod{*daemon()}, r, hub, "v1.31.0")
			if err != nil || len(got) != 1 || got[0].Distrusts != tt.distrusts {
				t.Errorf("%v: %+v", err, got)
			}
			suspects, err := Suspects(t.Context(), r, addressesOf(hub))
			if err != nil || tt.distrusts != slices.Contains(suspects, "c1") || len(suspects) > 1 {
				t.Errorf("%v: suspects are %q", err, suspects)
			}
		})
	}
}

func withVariable(p *corev1.Pod) {
	p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: hostVariable}}
}

func withSecret(p *corev1.Pod) {
	p.Spec.Volumes = []corev1.Volume{{Name: "t", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "x"}}}}
	p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "t", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}}
}

func withCondition(s corev1.ConditionStatus) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: api.NeedCondition, Status: s}}
	}
}

func TestPodsAreInOrderAndNameTheirOwners(t *testing.T) {
	a, b, c := daemon(), daemon(), daemon()
	a.UID, b.UID, c.UID = "a", "b", "c"
	a.Namespace, b.Namespace, c.Namespace = "shop", "kube-system", "kube-system"
	b.Name, c.Name = "z", "y"
	var environments []engine.Environment
	for _, uid := range []types.UID{"a", "b", "c"} {
		environments = append(environments, container(string(uid), "10.96.0.1", "10.96.0.1"))
	}
	got, err := Of(t.Context(), []corev1.Pod{*a, *b, *c}, fakeRuntime{environments: environments}, hub, "v1.31.0")
	if err != nil || len(got) != 3 || got[0].UID != "c" || got[1].UID != "b" || got[2].UID != "a" || got[0].Owner != "DaemonSet/kube-proxy" {
		t.Errorf("%v: %+v", err, got)
	}
}

func TestARuntimeThatDoesNotAnswerIsAnError(t *testing.T) {
	r := fakeRuntime{err: errors.New("away")}
	if got, err := Of(t.Context(), nil, r, hub, "v1.31.0"); err == nil {
		t.Errorf("got %v", got)
	}
	if got, err := Suspects(t.Context(), r, addressesOf(hub)); err == nil {
		t.Errorf("suspects are %v", got)
	}
}

func TestAPodThatUsesAProxyForTheHubIsNotBehindIt(t *testing.T) {
	const cluster, hubs, password = "10.96.0.1", "169.254.2.1", "http://u:secret@192.0.2.80:3128"
	literal := []corev1.EnvVar{{Name: "HTTPS_PROXY", Value: password}, {Name: "NO_PROXY", Value: "10.96.0.0/12"}}
	for name, tt := range map[string]struct {
		host, noProxy string
		env           []corev1.EnvVar // in the spec
		kubelet       string
		route         api.Route
		proxy, keep   bool
		sidecar       bool
	}{
		"it is told of the hub":                           {hubs, hubs, literal, "v1.37.2", api.ThroughHub, false, false, false},
		"kubelet had the older spec":                      {hubs, "10.96.0.0/12", literal, "v1.37.2", api.Proxied, true, false, false},
		"the proxy is of a sidecar":                       {cluster, "10.96.0.0/12", literal, "v1.37.2", api.Bypass, false, false, true},
		"an older kubelet":                                {hubs, "10.96.0.0/12", literal, "v1.30.9", api.Proxied, true, true, false},
		"the proxy is of a ConfigMap":                     {hubs, "10.96.0.0/12", nil, "v1.37.2", api.Proxied, true, true, false},
		"it started before":                               {cluster, "10.96.0.0/12", literal, "v1.37.2", api.Bypass, false, false, false},
		"it started before, an older kubelet":             {cluster, "10.96.0.0/12", literal, "v1.30.9", api.Bypass, true, true, false},
		"it started before, the proxy is of a ConfigMap":  {cluster, "10.96.0.0/12", nil, "v1.37.2", api.Bypass, true, true, false},
		"with the hub's port":                             {hubs, hubs + ":10268", nil, "v1.37.2", api.ThroughHub, false, false, false},
		"it started before, with the hub's port":          {cluster, hubs + ":10268", nil, "v1.37.2", api.Bypass, false, false, false},
		"with another port":                               {hubs, hubs + ":443", nil, "v1.37.2", api.Proxied, true, true, false},
		"it started before, and its NO_PROXY has the hub": {cluster, "169.254.0.0/16", nil, "v1.37.2", api.Bypass, false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			pod, e := daemon(), container("u1", tt.host, tt.host)
			pod.Spec.Containers[0].Env = tt.env
			if tt.sidecar {
				pod.Spec.InitContainers, pod.Spec.Containers = pod.Spec.Containers, nil
			}
			e.Values["HTTPS_PROXY"], e.Values["NO_PROXY"] = password, tt.noProxy
			got, err := Of(t.Context(), []corev1.Pod{*pod}, fakeRuntime{environments: []engine.Environment{e}}, hub, tt.kubelet)
			if err != nil || len(got) != 1 {
				t.Fatal(got, err)
			}
			p := got[0]
			if p.Route != tt.route || (p.Proxy != "") != tt.proxy || (p.Keep != "") != tt.keep || tt.keep && p.Keep != p.Proxy {
				t.Errorf("got %+v", p)
			}
			if strings.Contains(p.Proxy, "secret") {
				t.Errorf("it shows the proxy's password: %s", p.Proxy)
			}
		})
	}
}
