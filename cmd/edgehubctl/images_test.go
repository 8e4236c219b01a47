package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/cmd/edgehubctl/view"
	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/ota/api"
)

// running gives a pod containers, name=image, and volumes, /name=image.
func running(containers ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers = nil
		for _, c := range containers {
			name, image, _ := strings.Cut(c, "=")
			if volume, ok := strings.CutPrefix(name, "/"); ok {
				p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: image}}})
				continue
			}
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: name, Image: image})
		}
	}
}

// targetOf is the annotation with the new version's containers, as they are admitted.
func targetOf(containers ...string) func(*corev1.Pod) { return target(true, containers) }

func target(admitted bool, containers []string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		var template corev1.Pod
		running(containers...)(&template)
		target := api.NewTarget(newRevision, &template.Spec)
		target.Admitted = admitted
		p.Annotations = map[string]string{api.TargetAnnotation: target.Encode()}
	}
}

func TestTheImagesOfAnUpgrade(t *testing.T) {
	const digest1, digest2 = "@sha256:1111111111112222", "@sha256:3333333333334444"
	both := func(now, then string) []func(*corev1.Pod) {
		return []func(*corev1.Pod){running(strings.Fields(now)...), targetOf(strings.Fields(then)...)}
	}
	tests := map[string]struct {
		change []func(*corev1.Pod)
		want   string
	}{
		"another tag":                        {both("a=127.0.0.1:5000/shop/app:v1", "a=127.0.0.1:5000/shop/app:v2"), "app:v1 -> v2"},
		"a tag for the first time":           {both("a=app", "a=app:v2"), "app -> app:v2"},
		"another digest":                     {both("a=app"+digest1, "a=app"+digest2), "app@sha256:111111111111 -> sha256:333333333333"},
		"a tag and a digest":                 {both("a=r/app:v1"+digest1, "a=r/app:v2"+digest2), "app:v1@sha256:111111111111 -> v2@sha256:333333333333"},
		"another repository":                 {both("a=r/app:v1", "a=r/web:v1"), "app:v1 -> web:v1"},
		"the same image of another registry": {both("a=one/app:v1", "a=two/app:v1"), "one/app:v1 -> two/app:v1"},
		"only something else changes":        {both("a=app:v1", "a=app:v1"), "same images"},
		"one of two changes":                 {both("a=app:v1 b=log:v1", "a=app:v1 b=log:v2"), "log:v1 -> v2"},
		"more than there is room for":        {both("a=a:1 b=b:1 c=c:1 d=d:1", "a=a:2 b=b:2 c=c:2 d=d:2"), "a:1 -> 2, b:1 -> 2, +2"},
		"a container comes, another goes":    {both("a=a:1 b=b:1", "a=a:1 c=c:1"), "no more b:1, new c:1"},
		"a volume of a container's name":     {both("a=a:1 /a=data:1", "a=a:1 /a=data:2"), "data:1 -> 2"},
		"a volume comes, another goes":       {both("a=a:1 /b=b:1", "a=a:1 /c=c:1"), "no more b:1, new c:1"},
		"another name of what is injected":   {both("a=a:1 mesh-x7=mesh:1", "a=a:2 mesh-k2=mesh:2"), "a:1 -> 2, mesh:1 -> 2"},
		"the same with another name":         {both("a=a:1 mesh-x7=mesh:1", "a=a:2 mesh-k2=mesh:1"), "a:1 -> 2"},
		"what may be injected again":         {[]func(*corev1.Pod){running("a=a:1", "mesh=mesh:1"), target(false, []string{"a=a:2"})}, "a:1 -> 2, mesh:1 -> unknown"},
		"nobody has said":                    {[]func(*corev1.Pod){running("a=app:v1")}, "app:v1 -> unknown"},
		"an annotation of another revision":  {append(both("a=app:v1", "a=app:v2"), ofRevision("aaaa")), "app:v1 -> unknown"},
		"an annotation that is broken":       {[]func(*corev1.Pod){running("a=app:v1"), annotated("{")}, "app:v1 -> unknown"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := pod("shop", "web-1", oldRevision, append(tt.change, needs(corev1.ConditionTrue, newRevision))...)
			r := view.PodOf(&p, nil)
			if got := r.ImageChanges(view.MaxChanges); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func annotated(value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{api.TargetAnnotation: value} }
}

func ofRevision(revision string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Annotations[api.TargetAnnotation] = strings.Replace(p.Annotations[api.TargetAnnotation], newRevision, revision, 1)
	}
}

func TestImagesAsJSON(t *testing.T) {
	h := newFakeHub(t).on("GET", "/pods", podList(
		pod("shop", "web-1", oldRevision, targetOf("web=web:v2"), needs(corev1.ConditionTrue, newRevision)),
		pod("shop", "web-2", newRevision, needs(corev1.ConditionFalse, newRevision)),
		pod("shop", "web-3", oldRevision, needs(corev1.ConditionTrue, newRevision), crashes(7, "")),
	))
	var got []struct {
		Ready, Containers int
		Status            string
		Restarts          int
		Images            []json.RawMessage
	}
	if err := json.Unmarshal([]byte(h.edgehubctl(t, "pods", "-o", "json").out), &got); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{`"web:v2"`, `""`, `null`} {
		if text := string(got[i].Images[0]); !strings.Contains(text, `"afterUpgrade": `+want) || !strings.Contains(text, `"now": "registry.example.com/shop/web:v1"`) {
			t.Errorf("pod %d: %s, want after the upgrade %s", i, text, want)
		}
	}
	if p := got[2]; p.Status != "CrashLoopBackOff" || p.Restarts != 7 || p.Containers != 1 {
		t.Errorf("got %+v", p)
	}
}

// Terminals are 80 to 120 columns wide, and hold what matters most.
func TestPodsFitTheTerminal(t *testing.T) {
	ready, reports := corev1.ConditionTrue, []view.Pod(nil)
	for _, p := range []corev1.Pod{
		pod("kube-system", "kube-proxy-x7k2p", "x"),
		pod("default", "app-nt9v6", oldRevision, targetOf("web=registry.example.com/shop/web:v2"), needs(ready, newRevision), images(ready, "PrepullReady", newRevision)),
		pod("shop", "web-frontend-5s2lc", newRevision, crashes(3, ""), needs(corev1.ConditionFalse, newRevision)),
		pod("shop", "web-backend-9xk4d", oldRevision, targetOf("web=registry.example.com/shop/web:v2"), needs(ready, newRevision), images(corev1.ConditionFalse, "PrepullRegistryUnreachable", newRevision)),
	} {
		reports = append(reports, view.PodOf(&p, nil))
	}
	wide := view.PodTable(reports, time.Now(), 0)
	if got := view.PodTable(reports, time.Now(), cli.Columns(wide)); got != wide {
		t.Errorf("what fits is not shown whole:\n%s", got)
	}
	for width, want := range map[int][]string{
		80:  {"-", "to web:v2", "no", "to web:v2"},
		84:  {"-", "web:v1 -> v2", "no", "web:v1 -> v2"},
		120: {"-", "web:v1 -> v2, pulled", "no", "web:v1 -> v2, PrepullRegistryUnreachable"},
	} {
		text := fmt.Sprintf(`POD                            READY   STATUS             RESTARTS   UPGRADE
kube-system/kube-proxy-x7k2p   1/1     Running            0          %s
default/app-nt9v6              1/1     Running            0          %s
shop/web-frontend-5s2lc        0/1     CrashLoopBackOff   3          %s
shop/web-backend-9xk4d         1/1     Running            0          %s
`, want[0], want[1], want[2], want[3])
		if got := view.PodTable(reports, time.Now(), width); got != text {
			t.Errorf("at %d columns:\n%s\nwant\n%s", width, got, text)
		}
	}
	for width := 60; width < 90; width++ {
		if got := view.PodTable(reports, time.Now(), width); cli.Columns(got) > width {
			t.Errorf("at %d columns:\n%s", width, got)
		}
	}
}

func TestPodsWhileTheCloudIsAway(t *testing.T) {
	const offline = "offline since 2026-01-01T10:00:00Z: no apiserver can be reached, and the node is served from the cache"
	const note = "offline since 2026-01-01T10:00:00Z: no apiserver can be reached, and the node is\nserved from the cache; a newer version may exist that this node has not been\ntold of\n"
	h := newFakeHub(t).on("GET", "/pods", podList(pod("shop", "web-1", oldRevision))).on("GET", api.Readyz, answersWith(200, "OK, "+offline+"\n"))
	h.edgehubctl(t, "pods").has(t, cli.Done, "web-1   1/1     Running", note)
	h.edgehubctl(t, "pods", "-o", "json").has(t, cli.Done, `"pod": "web-1"`, note)
	h.on("GET", api.Readyz, answersWith(200, "OK\n")).edgehubctl(t, "pods").has(t, cli.Done, "web-1", "")
	h.on("GET", api.Readyz, answersWith(500, "not ready")).edgehubctl(t, "pods").has(t, cli.Done, "web-1", "")
}
