package tolerations

import (
	"fmt"
	"reflect"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/edgehub-io/edgehub/controller/autonomy"
	"github.com/edgehub-io/edgehub/ota/api"
)

// What is trimmed is planned like the whole.
func TestTrimmedPodsArePlannedAlike(t *testing.T) {
	fleet := autonomy.Fleet{Defaults: autonomy.Same(300)}
	record := pod("p")
	record.Annotations = map[string]string{api.OriginalUnreachableAnnotation: "30"}
	for _, whole := range []*corev1.Pod{pod("p"), ofDaemonSet(pod("p")), record} {
		for _, s := range []autonomy.Setting{{}, autonomy.For(9 * time.Second)} {
			want, _ := fleet.Plan(whole, s, true)
			kept, _ := trimPod(whole)
			trimmed, ok := kept.(*boundPod)
			if !ok {
				if want.Patch != nil {
					t.Errorf("nothing is kept of a pod that needs the patch %s", want.Patch)
				}
				continue
			}
			if got, err := fleet.Plan(trimmed.whole(), s, true); !reflect.DeepEqual(got, want) || err != nil {
				t.Errorf("%s, %v; want %s", got.Patch, err, want.Patch)
			}
		}
	}
}

// docs/autonomy.md has these numbers.
func TestWhatIsKeptOfAPodIsSmall(t *testing.T) {
	const pods = 10_000
	for name, tt := range map[string]struct {
		change func(*corev1.Pod) *corev1.Pod
		most   uint64 // bytes
	}{
		"of a DaemonSet": {ofDaemonSet, 500},
		"of others":      {func(p *corev1.Pod) *corev1.Pod { return p }, 1000},
	} {
		before := heap()
		kept := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{byNode: nodeOf})
		for i := range pods {
			whole := tt.change(pod(fmt.Sprintf("a-deployment-5d4f8c7b9d-%05d", i)))
			whole.UID, whole.ResourceVersion = "00000000-0000-0000-0000-000000000000", fmt.Sprint(1_000_000+i)
			whole.Spec.NodeName = fmt.Sprintf("node-%d", i/10)
			trimmed, err := trimPod(received(t, whole))
			if err != nil {
				t.Fatal(err)
			}
			if err := kept.Add(trimmed); err != nil {
				t.Fatal(err)
			}
		}
		got := (heap() - before) / pods
		runtime.KeepAlive(kept)
		t.Logf("a pod %s takes %d bytes", name, got)
		if got > tt.most {
			t.Errorf("a pod %s takes %d bytes, want at most %d", name, got, tt.most)
		}
	}
}

// received returns a pod as it comes from an apiserver, which shares no memory with others.
func received(t *testing.T, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	body, err := p.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	out := &corev1.Pod{}
	if err := out.Unmarshal(body); err != nil {
		t.Fatal(err)
	}
	return out
}

// heap returns the bytes that are in use.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
