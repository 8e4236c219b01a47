package api

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestOfflineUpgradeIsReadInAnyLetterCase(t *testing.T) {
	for name, tt := range map[string]struct {
		value           string
		inPlace, failed bool
	}{
		"in place":             {"InPlace", true, false},
		"in place, other case": {" inplace ", true, false},
		"queued":               {"Queue", false, false},
		"nothing":              {"", false, true},
		"another word":         {"true", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			inPlace, err := ParseOfflineUpgrade(map[string]string{OfflineUpgradeAnnotation: tt.value})
			if inPlace != tt.inPlace || (err != nil) != tt.failed {
				t.Errorf("%t, %v", inPlace, err)
			}
			if err != nil && !strings.Contains(err.Error(), "write InPlace or Queue") {
				t.Errorf("it does not say what to write: %v", err)
			}
		})
	}
	if inPlace, err := ParseOfflineUpgrade(nil); inPlace || err != nil {
		t.Errorf("without the annotation: %t, %v", inPlace, err)
	}
}

func TestOfflineUpgradeSurvivesThePod(t *testing.T) {
	want := OfflineUpgrade{Revision: "new", From: "old", Images: []TargetImage{{Name: "app", Image: "app:v2"}}, Since: metav1.Unix(0, 0)}
	got, ok, err := OfflineUpgradeOf(podWith(map[string]string{UpgradedOfflineAnnotation: want.Encode()}))
	if err != nil || !ok || got.Encode() != want.Encode() {
		t.Errorf("%+v, %t, %v", got, ok, err)
	}
	// deploy/admission reads it as text.
	const onTheWire = `{"revision":"new","from":"old","images":[{"name":"app","image":"app:v2"}],"since":"1970-01-01T00:00:00Z"}`
	if want.Encode() != onTheWire {
		t.Errorf("got %s", want.Encode())
	}
	for name, value := range map[string]string{"no JSON": "{", "no revision": `{"images":[{"name":"a","image":"b"}]}`, "no image": `{"revision":"new"}`} {
		if _, ok, err := OfflineUpgradeOf(podWith(map[string]string{UpgradedOfflineAnnotation: value})); !ok || err == nil {
			t.Errorf("%s: %t, %v", name, ok, err)
		}
	}
	if _, ok, err := OfflineUpgradeOf(podWith(nil)); ok || err != nil {
		t.Errorf("without the annotation: %t, %v", ok, err)
	}
}

func TestAnUpgradeInPlaceIsOfThePodThatWasMarked(t *testing.T) {
	never, rule := corev1.ContainerRestartPolicyNever, []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestart}}
	for name, tt := range map[string]struct {
		change  func(*corev1.Pod, *Target)
		problem string // "": it is possible
	}{
		"marked":                                 {func(*corev1.Pod, *Target) {}, ""},
		"not marked":                             {func(_ *corev1.Pod, t *Target) { t.InPlace = nil }, "does not permit it"},
		"the controller says why not":            {func(_ *corev1.Pod, t *Target) { t.NotInPlace = "a volume differs" }, "a volume differs"},
		"another image by now":                   {func(p *corev1.Pod, _ *Target) { p.Spec.Containers[0].Image = "app:hand" }, "has changed since"},
		"no such container":                      {func(_ *corev1.Pod, t *Target) { t.InPlace[0].Name = "other" }, "has changed since"},
		"the same string":                        {func(_ *corev1.Pod, t *Target) { t.InPlace[0].To = "app:v1" }, "has changed since"},
		"being deleted":                          {func(p *corev1.Pod, _ *Target) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }, "being deleted"},
		"failed":                                 {func(p *corev1.Pod, _ *Target) { p.Status.Phase = corev1.PodFailed }, "has ended"},
		"succeeded":                              {func(p *corev1.Pod, _ *Target) { p.Status.Phase = corev1.PodSucceeded }, "has ended"},
		"a mirror pod":                           {func(p *corev1.Pod, _ *Target) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }, "static pod"},
		"it pulls always":                        {func(p *corev1.Pod, _ *Target) { p.Spec.Containers[0].ImagePullPolicy = corev1.PullAlways }, "Always"},
		"a container that stays pulls always":    {func(p *corev1.Pod, _ *Target) { p.Spec.Containers[1].ImagePullPolicy = corev1.PullAlways }, ""},
		"a restart policy of a container":        {func(p *corev1.Pod, _ *Target) { p.Spec.Containers[0].RestartPolicy = &never }, "restart policy"},
		"restart rules of one that stays":        {func(p *corev1.Pod, _ *Target) { p.Spec.Containers[1].RestartPolicyRules = rule }, "restart policy"},
		"a pod whose containers are not started": {func(p *corev1.Pod, _ *Target) { p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure }, "restartPolicy is OnFailure"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podWith(nil)
			pod.Spec.Containers = []corev1.Container{{Name: "app", Image: "app:v1"}, {Name: "other", Image: "other:v1"}}
			target := Target{InPlace: []ImageChange{{Name: "app", From: "app:v1", To: "app:v2"}}}
			tt.change(pod, &target)
			changes, err := InPlaceOf(pod, target)
			switch {
			case tt.problem == "" && (err != nil || len(changes) != 1):
				t.Errorf("%v, %v", changes, err)
			case tt.problem != "" && (err == nil || !strings.Contains(err.Error(), tt.problem)):
				t.Errorf("%v, want %q", err, tt.problem)
			}
		})
	}
}
