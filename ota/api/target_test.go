package api

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func podWith(annotations map[string]string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-1", Annotations: annotations}}
}

func TestTargetSurvivesThePod(t *testing.T) {
	want := NewTarget("new", &corev1.PodSpec{
		InitContainers:   []corev1.Container{{Name: "setup", Image: "setup:v2"}},
		Containers:       []corev1.Container{{Name: "app", Image: "app:v2"}, {Name: "side", Image: "side:v2"}},
		ImagePullSecrets: []corev1.LocalObjectReference{{Name: "registry"}},
		Volumes: []corev1.Volume{
			{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "model", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "model:v2"}}},
		},
	})
	want.Number = 7
	got, ok, err := TargetOf(podWith(map[string]string{TargetAnnotation: want.Encode()}))
	if err != nil || !ok {
		t.Fatalf("got %t, %v", ok, err)
	}
	if got.Encode() != want.Encode() {
		t.Errorf("got %s, want %s", got.Encode(), want.Encode())
	}
	// What older and newer versions read of each other.
	const onTheWire = `{"revision":"new","number":7,"containers":[{"name":"app","image":"app:v2"},{"name":"side","image":"side:v2"}],` +
		`"initContainers":[{"name":"setup","image":"setup:v2"}],"volumes":[{"name":"model","image":"model:v2"}],"imagePullSecrets":["registry"]}`
	if want.Encode() != onTheWire {
		t.Errorf("got %s, want %s", want.Encode(), onTheWire)
	}
}

func TestWhichTargetsAreTheSameButForNames(t *testing.T) {
	target := NewTarget("new", &corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:v2"}, {Name: "mesh-1", Image: "mesh:v1"}}})
	for name, tt := range map[string]struct {
		change func(*Target)
		same   bool
	}{
		"nothing":             {func(*Target) {}, true},
		"a container's name":  {func(t *Target) { t.Containers[1].Name = "mesh-2" }, true},
		"the number":          {func(t *Target) { t.Number = 8 }, true}, // admission knows none
		"an image":            {func(t *Target) { t.Containers[1].Image = "mesh:v2" }, false},
		"the revision's hash": {func(t *Target) { t.Revision = "newer" }, false},
	} {
		other := target
		other.Containers = slices.Clone(target.Containers)
		tt.change(&other)
		if got := target.SameButNames(other); got != tt.same {
			t.Errorf("%s differs: got %t", name, got)
		}
	}
}

func TestTargetOfRefusesWhatIsOfNoUse(t *testing.T) {
	tests := map[string]string{
		"no JSON":      `new`,
		"no revision":  `{"containers":[{"name":"app","image":"app:v2"}]}`,
		"no container": `{"revision":"new"}`,
	}
	for name, value := range tests {
		t.Run(name, func(t *testing.T) {
			_, ok, err := TargetOf(podWith(map[string]string{TargetAnnotation: value}))
			if !ok || err == nil || !strings.Contains(err.Error(), "default/web-1") {
				t.Errorf("got %t, %v; want an error that names the pod", ok, err)
			}
		})
	}
	t.Run("a pod without it is no error", func(t *testing.T) {
		if _, ok, err := TargetOf(podWith(nil)); ok || err != nil {
			t.Errorf("got %t, %v; want false and none", ok, err)
		}
	})
}

func TestMessageNamesTheRevision(t *testing.T) {
	if got := Message("7d9f"); got != "controllerrevision: 7d9f" {
		t.Errorf("got %q: other programs read this text", got)
	}
	tests := map[string]struct{ message, want string }{
		"our own form":         {Message("7d9f"), "7d9f"},
		"no space":             {"controllerrevision:7d9f", ""},
		"something else":       {"7d9f", ""},
		"nothing":              {"", ""},
		"a prefix and no more": {"controllerrevision: ", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := RevisionOf(&corev1.PodCondition{Message: tt.message}); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestConditionPointsIntoThePod(t *testing.T) {
	pod := podWith(nil)
	if got := Condition(pod, NeedCondition); got != nil {
		t.Errorf("got %v of a pod without conditions, want none", got)
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady}, {Type: NeedCondition}}
	Condition(pod, NeedCondition).Status = corev1.ConditionTrue
	if pod.Status.Conditions[1].Status != corev1.ConditionTrue {
		t.Error("the condition is a copy")
	}
}
