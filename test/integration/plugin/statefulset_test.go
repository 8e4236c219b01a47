package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/upgrade"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// database is a StatefulSet db with OTA and two pods, in the namespace of f.
type database struct{ *fixture }

func newDatabase(f *fixture) database {
	f.t.Helper()
	ds := f.get()
	sts := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db", Annotations: map[string]string{strategyKey: "OTA"}}}
	labels := map[string]string{"app": "db"}
	sts.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	sts.Spec.Template = ds.Spec.Template
	sts.Spec.Template.Labels = labels
	sts.Spec.Replicas = new(int32(2))
	sts.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
	sets := env.admin.AppsV1().StatefulSets(f.namespace)
	if _, err := sets.Create(f.t.Context(), sts, metav1.CreateOptions{}); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = sets.Delete(context.Background(), "db", metav1.DeleteOptions{}) }) // its namespace has no other use
	d := database{f}
	d.await("it has two available pods", func(s *appsv1.StatefulSet) bool { return s.Status.AvailableReplicas == 2 })
	return d
}

func (d database) await(what string, done func(*appsv1.StatefulSet) bool) {
	d.t.Helper()
	poll.Eventually(d.t, what, func() bool {
		s, err := env.admin.AppsV1().StatefulSets(d.namespace).Get(d.t.Context(), "db", metav1.GetOptions{})
		return err == nil && s.Status.ObservedGeneration == s.Generation && done(s)
	})
}

// upgrade deletes a pod, as its owner does, and waits for its successor.
func (d database) upgrade(pod string, updated int32) {
	d.t.Helper()
	if err := env.admin.CoreV1().Pods(d.namespace).Delete(d.t.Context(), pod, metav1.DeleteOptions{}); err != nil {
		d.t.Fatal(err)
	}
	d.await(pod+" is of the new revision", func(s *appsv1.StatefulSet) bool {
		return s.Status.UpdatedReplicas == updated && s.Status.AvailableReplicas == 2
	})
}

func TestStatusOfAStatefulSetAndOfAll(t *testing.T) {
	f := newDaemonSet(t, map[string]string{strategyKey: "OTA"})
	d, ns := newDatabase(f), "-n="+f.namespace
	edgehub(t, "status", "sts/db", ns).expect(t, 0, "statefulset.apps/db in "+f.namespace+": OTA to revision db-", "updated          2  of 2", "complete: every pod runs")
	edgehub(t, "status", ns).expect(t, 0, "ds/web   complete   4/4       0", "sts/db   complete   2/2       0")
	edgehub(t, "status", "-n=default").expect(t, 0, "no DaemonSet or StatefulSet in namespace default has opted")

	patch := []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"app:v2"}]}}}}`)
	_, err := env.admin.AppsV1().StatefulSets(d.namespace).Patch(t.Context(), "db", types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d.await("it has a new revision", func(s *appsv1.StatefulSet) bool { return s.Status.UpdateRevision != s.Status.CurrentRevision })
	edgehub(t, "status", "statefulset", "db", ns).expect(t, 2, "updated          0  of 2", "for owners       2  db-0, db-1")
	w := start(t, "status", "sts/db", ns, "-w")
	w.sees("waiting: 0 of 2 pods updated, 2 waiting for their owner")
	d.upgrade("db-0", 1)
	edgehub(t, "status", "sts/db", ns, "--nodes").expect(t, 2, "updated          1  of 2", "   updated             db-0   1/1     Running", "   waiting_for_owner   db-1   1/1     Running")
	edgehub(t, "status", "-A").expect(t, 2, f.namespace+"   ds/web   complete   4/4       0", f.namespace+"   sts/db   waiting    1/2       0")

	// What owners have decided is the same for pods of both kinds.
	hold := upgrade.Hold{Since: metav1.Now(), Until: metav1.NewTime(time.Now().Add(time.Hour)), Reason: "unloading\nall"}
	web, err := env.admin.CoreV1().Pods(f.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range []string{"db-1", web.Items[0].Name} {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, upgrade.HoldAnnotation, hold.Encode())
		if _, err := env.admin.CoreV1().Pods(f.namespace).Patch(t.Context(), pod, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
	until := "until " + hold.Until.UTC().Format(time.RFC3339) + ` ("unloading\nall")`
	edgehub(t, "status", "sts/db", ns, "--nodes").expect(t, 2, "on hold          1  db-1 "+until+"\n", "on hold "+until)
	edgehub(t, "status", "ds/web", ns).expect(t, 0, "on hold          1  "+web.Items[0].Spec.NodeName+" "+until+"\n")
	edgehub(t, "status", ns).expect(t, 2, "sts/db   waiting    1/2       0             1 on hold\n")
	var list struct {
		Items []struct{ Kind, Name, State string }
	}
	if got := edgehub(t, "status", ns, "-o", "json"); json.Unmarshal([]byte(got.out), &list) != nil || len(list.Items) != 2 || list.Items[1].Kind != "StatefulSet" || got.code != 2 {
		t.Errorf("got exit code %d and %s", got.code, got.out)
	}
	d.upgrade("db-1", 2)
	w.ends(0)
	edgehub(t, "status", "sts/plain", ns).expect(t, 1, "not found")
}
