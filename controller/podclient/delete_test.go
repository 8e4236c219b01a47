package podclient

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/edgehub-io/edgehub/controller/backoff"
	"github.com/edgehub-io/edgehub/controller/expectations"
	"github.com/edgehub-io/edgehub/controller/rollout"
)

// newDeleter returns a client whose requests to delete pods are answered with err, and
// whose lists of pods have these, or fail.
func newDeleter(err error, listed ...*corev1.Pod) *Client {
	client := fake.NewClientset()
	client.PrependReactor("delete", "pods", func(k8stesting.Action) (bool, runtime.Object, error) { return true, nil, err })
	client.PrependReactor("list", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
		list := &corev1.PodList{}
		for _, pod := range listed {
			if pod == nil {
				return true, nil, errors.New("connection refused")
			}
			list.Items = append(list.Items, *pod)
		}
		return true, list, nil
	})
	return &Client{Kube: client, Limit: 1, OnDelete: func(error) {}}
}

// denied is the answer when an admission webhook denies a request with this code.
func denied(code int32) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Message: `admission webhook "guard.example.com" denied the request: out of order`,
	}}
}

func TestOutcomesOfDeletions(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	conflict := apierrors.NewConflict(pods, "web-1", errors.New("not as it was"))
	alive := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-1", UID: "uid"}}
	other, ended := alive.DeepCopy(), alive.DeepCopy()
	other.UID, ended.DeletionTimestamp = "another", new(metav1.Now())
	for name, tt := range map[string]struct {
		notReady bool
		err      error
		listed   []*corev1.Pod // when it is asked for after a conflict; nil is an error
		expected bool          // counts as deleted
		again    bool          // is sent again, as it is
		refused  bool
	}{
		"deleted":                                 {expected: true},
		"already gone":                            {err: apierrors.NewNotFound(pods, "web-1"), expected: true},
		"the name belongs to another pod":         {err: conflict, listed: []*corev1.Pod{other}, expected: true},
		"no pod has the name":                     {err: conflict, expected: true},
		"a conflict over a terminating pod":       {err: conflict, listed: []*corev1.Pod{ended}, expected: true},
		"a conflict over a running pod":           {err: conflict, listed: []*corev1.Pod{alive}, refused: true},
		"a conflict, and the list fails":          {err: conflict, listed: []*corev1.Pod{nil}, expected: true, again: true, refused: true},
		"refused":                                 {err: apierrors.NewForbidden(pods, "web-1", errors.New("no")), refused: true},
		"too many requests":                       {err: apierrors.NewTooManyRequests("later", 1), refused: true},
		"request entity too large":                {err: apierrors.NewRequestEntityTooLargeError("no"), refused: true},
		"a webhook denies it with code 500":       {err: denied(500), refused: true},
		"a webhook denies it with code 503":       {err: denied(503), refused: true},
		"a webhook denies it with code 404":       {err: denied(404), listed: []*corev1.Pod{alive}, refused: true},
		"a webhook does not answer":               {err: apierrors.NewInternalError(errors.New(`failed calling webhook "w"`)), refused: true},
		"no answer":                               {err: errors.New("connection reset"), expected: true, again: true, refused: true},
		"an internal error":                       {err: apierrors.NewInternalError(errors.New("etcd")), expected: true, again: true, refused: true},
		"the apiserver times out":                 {err: apierrors.NewTimeoutError("slow", 1), expected: true, again: true, refused: true},
		"the request times out":                   {err: context.DeadlineExceeded, expected: true, again: true, refused: true},
		"not Ready, deleted":                      {notReady: true, expected: true},
		"not Ready, changed since":                {notReady: true, err: conflict},
		"not Ready, already gone":                 {notReady: true, err: apierrors.NewNotFound(pods, "web-1"), expected: true},
		"not Ready, a webhook denies it with 404": {notReady: true, err: denied(404), listed: []*corev1.Pod{alive}, refused: true},
		"not Ready, no answer":                    {notReady: true, err: errors.New("connection reset"), refused: true},
		"not Ready, a webhook does not answer":    {notReady: true, err: apierrors.NewInternalError(errors.New(`failed calling webhook "w"`)), refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				expected, pod := expectations.NewDeletions(), alive.DeepCopy()
				r := newDeleter(tt.err, tt.listed...)
				r.Delete(t.Context(), expected, []rollout.Deletion{{Pod: pod, NotReady: tt.notReady}})
				if got := expected.Has(pod.UID); got != tt.expected {
					t.Errorf("counts as deleted: %t, want %t", got, tt.expected)
				}
				if again := expected.Observed([]*corev1.Pod{pod}, nil, time.Now()); len(again) > 0 {
					t.Error("it is sent again at once")
				}
				time.Sleep(backoff.MinDelay)
				if got := len(expected.Observed([]*corev1.Pod{pod}, nil, time.Now())) == 1; got != tt.again {
					t.Errorf("after a while it is sent again: %t, want %t", got, tt.again)
				}
				if got := expected.Has(pod.UID); got != tt.expected {
					t.Errorf("while the watch is behind, it counts as deleted: %t, want %t", got, tt.expected)
				}
				if got := expected.Refusal(pod.UID); (got != nil && got.Message != "") != tt.refused {
					t.Errorf("what was answered is %+v, want it to be named: %t", got, tt.refused)
				}
				expected.Observed([]*corev1.Pod{other}, nil, time.Now())
				if expected.Has(pod.UID) || expected.Refusal(pod.UID) != nil {
					t.Error("it still counts when the watch no longer shows it")
				}
			})
		})
	}
}

// What is under way when the controller stops gets its answer, if it comes soon.
func TestDeletionsInFlightHaveAGracePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		longer, cancel := withGrace(ctx, time.Second, time.Hour)
		defer cancel()
		stop()
		time.Sleep(time.Second - 1)
		synctest.Wait()
		if longer.Err() != nil {
			t.Fatal("it ended before its time of grace")
		}
		time.Sleep(2 * time.Nanosecond)
		synctest.Wait()
		if longer.Err() == nil {
			t.Fatal("it goes on")
		}
		longer, cancel = withGrace(t.Context(), time.Second, time.Minute)
		defer cancel()
		time.Sleep(time.Minute)
		synctest.Wait()
		if !errors.Is(longer.Err(), context.DeadlineExceeded) {
			t.Errorf("after its timeout it is %v", longer.Err())
		}
	})
}
