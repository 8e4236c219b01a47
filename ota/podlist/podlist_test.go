package podlist

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

func pod(name, uid, version string, labels ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid), ResourceVersion: version, Labels: map[string]string{}}}
	for _, label := range labels {
		key, value, _ := strings.Cut(label, "=")
		p.Labels[key] = value
	}
	p.Status.Phase = corev1.PodRunning
	p.Status.PodIP = "10.0.0.7"
	return p
}

func TestMatches(t *testing.T) {
	camera := pod("camera", "1", "1", "app=camera", "tier=edge")
	tests := map[string]bool{
		"":                                     true,
		"labelSelector=app%3Dcamera":           true,
		"labelSelector=app+in+(camera,gate)":   true,
		"labelSelector=app!%3Dcamera":          false,
		"labelSelector=tier%3Dedge,app%3Dx":    false,
		"fieldSelector=metadata.name%3Dcamera": true,
		"fieldSelector=status.phase%3DRunning,metadata.namespace!%3Dkube-system": true,
		"fieldSelector=status.phase!%3DRunning":                                  false,
		"fieldSelector=status.podIP%3D10.0.0.7":                                  true,
		"fieldSelector=spec.hostNetwork%3Dtrue":                                  false,
		"fieldSelector=metadata.name%3Dcamera&labelSelector=app%3Dgate":          false,
		"watch=false": true,
	}
	for query, want := range tests {
		q, err := Parse(query)
		if err != nil {
			t.Errorf("%s: %v", query, err)
			continue
		}
		if got := q.Matches(camera); got != want || q.Watch {
			t.Errorf("%s: got %v, want %v", query, got, want)
		}
	}
}

func TestQueriesThatAreRefused(t *testing.T) {
	for query, want := range map[string]string{
		"labelselector=app":                            `"labelselector" is no parameter: there are labelSelector, fieldSelector, watch and timeoutSeconds`,
		"labelSelector=app%3D%3D%3D":                   "labelSelector: unable to parse requirement: found '=', expected: identifier",
		"labelSelector=%0a%1b%3D":                      "labelSelector: ",
		"fieldSelector=spec.priority%3D1":              "fieldSelector: pods are not selected by spec.priority: there are metadata.name, metadata.namespace",
		"fieldSelector=metadata.name":                  "fieldSelector: invalid selector",
		"watch=yes":                                    `watch: "yes" is neither true nor false`,
		"timeoutSeconds=-1":                            `timeoutSeconds: "-1" is not a number of seconds`,
		"timeoutSeconds=1e9":                           `timeoutSeconds: "1e9" is not a number of seconds`,
		"timeoutSeconds=99999999999":                   `timeoutSeconds: "99999999999" is not a number of seconds`,
		"labelSelector=" + strings.Repeat("%28", 5000): "labelSelector: ",
	} {
		if _, err := Parse(query); err == nil || !strings.Contains(err.Error(), want) || strings.ContainsFunc(err.Error(), unicode.IsControl) || len(err.Error()) > 1000 {
			t.Errorf("%.100s: got %v, want %s", query, err, want)
		}
	}
}

// source is a Source whose watches the test feeds.
type source struct {
	lists   []*corev1.PodList // nil cannot be had; the last one stays
	watches chan *watch.FakeWatcher
	from    []string // versions
}

func (s *source) List(context.Context) (*corev1.PodList, error) {
	list := s.lists[0]
	if len(s.lists) > 1 {
		s.lists = s.lists[1:]
	}
	if list == nil {
		return nil, errors.New("the cloud is away")
	}
	return list.DeepCopy(), nil
}

func (s *source) Watch(ctx context.Context, version string) (watch.Interface, error) {
	s.from = append(s.from, version)
	w := watch.NewFake()
	context.AfterFunc(ctx, w.Stop) // as that of a client
	s.watches <- w
	return w, nil
}

func list(version string, pods ...*corev1.Pod) *corev1.PodList {
	l := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: version}}
	for _, p := range pods {
		l.Items = append(l.Items, *p)
	}
	return l
}

// follow runs a Follow until the function returns, and returns what it sent.
func follow(t *testing.T, query string, s *source, during func(*source)) (events []string, err error) {
	t.Helper()
	q, err := Parse(query)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		s.watches = make(chan *watch.FakeWatcher)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			err = q.Follow(ctx, s, func() {}, func(e Event) bool {
				if e.Object.Kind != "Pod" || e.Object.APIVersion != "v1" {
					t.Errorf("the object is a %s of %q", e.Object.Kind, e.Object.APIVersion)
				}
				events = append(events, fmt.Sprintf("%s %s %s@%s", e.Type, e.Object.Name, e.Object.UID, e.Object.ResourceVersion))
				return true
			})
		}()
		if during != nil {
			during(s)
		}
		cancel()
		<-done
	})
	return events, err
}

func TestFollow(t *testing.T) {
	s := &source{lists: []*corev1.PodList{
		list("10", pod("a", "1", "5", "app=x"), pod("b", "2", "6"), pod("c", "3", "7", "app=x")),
		list("30", pod("a", "9", "25", "app=x"), pod("b", "2", "15"), pod("d", "4", "12", "app=x"), pod("e", "5", "28", "app=x")),
	}}
	got, err := follow(t, "labelSelector=app%3Dx&watch=true", s, func(s *source) {
		w := <-s.watches
		w.Modify(pod("a", "1", "11", "app=x"))
		w.Modify(pod("a", "1", "11", "app=x")) // the node's own status, while the cloud is away
		w.Add(pod("d", "4", "12", "app=x"))
		w.Add(pod("f", "6", "13"))
		w.Modify(pod("b", "2", "14", "app=x"))
		w.Modify(pod("b", "2", "15"))
		w.Delete(pod("f", "6", "16"))
		w.Error(&metav1.Status{Code: 410})
		w = <-s.watches
		w.Delete(pod("d", "4", "31", "app=x"))
		w.Stop()
		<-s.watches
	})
	want := []string{
		"ADDED a 1@5", "ADDED c 3@7", "MODIFIED a 1@11", "MODIFIED a 1@11", "ADDED d 4@12", "ADDED b 2@14", "DELETED b 2@15",
		"DELETED c 3@7", "DELETED a 1@11", "ADDED a 9@25", "ADDED e 5@28",
		"DELETED d 4@31", "ADDED d 4@12",
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v, %v\nwant %v", got, err, want)
	}
	if want := []string{"10", "30", "30"}; !reflect.DeepEqual(s.from, want) {
		t.Errorf("watched from %v, want %v", s.from, want)
	}
}

func TestFollowWhatCannotBeListed(t *testing.T) {
	s := &source{lists: []*corev1.PodList{nil}}
	if events, err := follow(t, "watch=true", s, nil); err == nil || len(events) > 0 {
		t.Errorf("got %v, %v", events, err)
	}
}

// While the cloud is away, the node's own status changes a pod, and not its version.
func TestFollowAfterAChangeOfStatus(t *testing.T) {
	failed := pod("a", "1", "5")
	failed.Status.Phase = corev1.PodFailed
	s := &source{lists: []*corev1.PodList{list("10", pod("a", "1", "5"), pod("b", "2", "6")), nil, nil, list("10", failed, pod("b", "2", "6"))}}
	got, err := follow(t, "watch=true", s, func(s *source) {
		(<-s.watches).Stop()
		<-s.watches
	})
	if want := []string{"ADDED a 1@5", "ADDED b 2@6", "MODIFIED a 1@5"}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v, %v\nwant %v", got, err, want)
	}
}

func TestFollowEndsWithTheCaller(t *testing.T) {
	q, err := Parse("watch=true")
	if err != nil {
		t.Fatal(err)
	}
	s, ready := &source{lists: []*corev1.PodList{list("10", pod("a", "1", "5"))}}, 0
	if err := q.Follow(t.Context(), s, func() { ready++ }, func(Event) bool { return false }); err != nil || ready != 1 {
		t.Error(err, ready)
	}
	if len(s.from) > 0 {
		t.Errorf("it watches for nobody: %v", s.from)
	}
}
