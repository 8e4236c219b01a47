package podroute

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/imagepull/engine"
	"github.com/edgehub-io/edgehub/ota/nodeapi"
	"github.com/edgehub-io/edgehub/ota/upgrade"
)

type fakeRuntime struct {
	variables []engine.Variable
	err       error
}

func (f fakeRuntime) Environment(_ context.Context, name string) ([]engine.Variable, error) {
	if name != "KUBERNETES_SERVICE_HOST" {
		return nil, errors.New("asked for " + name)
	}
	return f.variables, f.err
}

var hub = []netip.Addr{netip.MustParseAddr("169.254.2.1"), netip.MustParseAddr("fd00::2:1")}

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
	runs := func(addresses ...string) (all []engine.Variable) {
		for _, a := range addresses {
			all = append(all, engine.Variable{PodUID: "u1", Value: a})
		}
		return all
	}
	for name, tt := range map[string]struct {
		change    func(*corev1.Pod)
		variables []engine.Variable
		route     nodeapi.Route // empty: the pod is left out
		keep      bool
	}{
		"it started before the hub":                       {nil, runs("10.96.0.1"), nodeapi.Bypass, false},
		"it started behind the hub":                       {nil, runs("169.254.2.1"), nodeapi.ThroughHub, false},
		"it started behind the hub, with IPv6":            {nil, runs("fd00::2:1"), nodeapi.ThroughHub, false},
		"one container has crashed and started again":     {nil, runs("169.254.2.1", "10.96.0.1"), nodeapi.Bypass, false},
		"the other container has":                         {nil, runs("10.96.0.1", "169.254.2.1"), nodeapi.Bypass, false},
		"its address is a name":                           {nil, runs("apiserver.example.com"), nodeapi.Bypass, false},
		"no container runs":                               {nil, nil, "", false},
		"a pod of the same name ran before":               {nil, []engine.Variable{{PodUID: "u0", Value: "10.96.0.1"}}, "", false},
		"it is on the host's network":                     {func(p *corev1.Pod) { p.Spec.HostNetwork = true }, runs("10.96.0.1"), nodeapi.Bypass, false},
		"it has no token":                                 {func(p *corev1.Pod) { p.Spec.Volumes = nil }, runs("10.96.0.1"), "", false},
		"its token is for somebody else":                  {func(p *corev1.Pod) { p.Spec.Volumes[0].Projected.Sources[0].ServiceAccountToken.Audience = "vault" }, runs("10.96.0.1"), "", false},
		"its token is in a Secret":                        {withSecret, runs("10.96.0.1"), nodeapi.Bypass, false},
		"it is static":                                    {func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }, runs("10.96.0.1"), "", false},
		"nothing would replace it":                        {func(p *corev1.Pod) { p.OwnerReferences = nil }, runs("10.96.0.1"), nodeapi.Bypass, true},
		"its owner does not control it":                   {func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil }, runs("10.96.0.1"), nodeapi.Bypass, true},
		"it is a Job's":                                   {func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "Job" }, runs("10.96.0.1"), nodeapi.Bypass, true},
		"it chooses its apiserver itself":                 {func(p *corev1.Pod) { p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: variable}} }, runs("10.96.0.1"), nodeapi.Bypass, true},
		"a newer revision waits for the node's owner":     {withCondition(corev1.ConditionTrue), runs("10.96.0.1"), nodeapi.Bypass, true},
		"it has the newest revision, and an OTA strategy": {withCondition(corev1.ConditionFalse), runs("10.96.0.1"), nodeapi.Bypass, false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := daemon()
			if tt.change != nil {
				tt.change(pod)
			}
			got, err := Of(t.Context(), []corev1.Pod{*pod}, fakeRuntime{variables: tt.variables}, hub)
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

func withSecret(p *corev1.Pod) {
	p.Spec.Volumes = []corev1.Volume{{Name: "t", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "x"}}}}
	p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "t", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}}
}

func withCondition(s corev1.ConditionStatus) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: upgrade.NeedCondition, Status: s}}
	}
}

func TestPodsAreInOrderAndNameTheirOwners(t *testing.T) {
	a, b, c := daemon(), daemon(), daemon()
	a.UID, b.UID, c.UID = "a", "b", "c"
	a.Namespace, b.Namespace, c.Namespace = "shop", "kube-system", "kube-system"
	b.Name, c.Name = "z", "y"
	var variables []engine.Variable
	for _, uid := range []types.UID{"a", "b", "c"} {
		variables = append(variables, engine.Variable{PodUID: string(uid), Value: "10.96.0.1"})
	}
	got, err := Of(t.Context(), []corev1.Pod{*a, *b, *c}, fakeRuntime{variables: variables}, hub)
	if err != nil || len(got) != 3 || got[0].UID != "c" || got[1].UID != "b" || got[2].UID != "a" || got[0].Owner != "DaemonSet/kube-proxy" {
		t.Errorf("%v: %+v", err, got)
	}
}

func TestARuntimeThatDoesNotAnswerIsAnError(t *testing.T) {
	if got, err := Of(t.Context(), nil, fakeRuntime{err: errors.New("away")}, hub); err == nil {
		t.Errorf("got %v", got)
	}
}
