package queue

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/imagepull/job"
	"github.com/edgehub-io/edgehub/ota/api"
)

// How long the queue's lock is held with the pods of a full node: each attempt, and
// each request, waits for it. In a thousandth of a second a core does all of it.
func BenchmarkQueueOfAFullNode(b *testing.B) {
	q := New(0)
	for i := range 110 {
		name := fmt.Sprintf("web-%d", i)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}}
		t := api.Target{Revision: "v2", ImagePullSecrets: []string{"registry"}}
		for k := range 5 {
			t.Containers = append(t.Containers, api.TargetImage{Name: "c", Image: fmt.Sprintf("registry.example.com/team-%d/service-%d/app:v1", i, k)})
		}
		j := job.New(pod, t, false, time.Now())
		q.jobs[j.UID] = j
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	b.ReportAllocs()
	for b.Loop() {
		q.refreshLocked(time.Now())
		for _, j := range q.jobs {
			if q.stateLocked(j).State != api.Queued {
				b.Fatal("not queued")
			}
		}
	}
}
