package queue

import (
	"bufio"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota"
	"github.com/edgehub-io/edgehub/ota/nodeapi"
)

// childDir is the environment variable with the folder of a child's queue.
const childDir = "EDGEHUB_TEST_QUEUE"

type noPods struct{}

func (noPods) Get(types.NamespacedName) *corev1.Pod { return nil }
func (noPods) Synced() bool                         { return false }

func openForKill(dir string, online bool) (*Queue, error) {
	return New(Options{
		Dir: dir, Pods: noPods{}, Online: func() bool { return online }, Logger: slog.New(slog.DiscardHandler),
		Event: func(*corev1.ObjectReference, string, string, string) {},
	})
}

func numbered(i int) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("web-%d", i), UID: types.UID(fmt.Sprint(i))}}
}

// child queues one upgrade after the other and prints a line for each once it is accepted, until it is
// killed.
func child(dir string) {
	q, err := openForKill(dir, false)
	for i := 0; err == nil; i++ {
		if _, err = q.Add(numbered(i), "new", ota.When{}); err == nil {
			fmt.Println(i)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// What was accepted is carried out, whenever the hub is killed.
func TestKill(t *testing.T) {
	for round := range 5 {
		dir := t.TempDir()
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), childDir+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		accepted := 0
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if accepted++; accepted == 5+7*round {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = cmd.Wait() // it was killed

		q, err := openForKill(dir, true)
		if err != nil {
			t.Fatal(err)
		}
		for i := range accepted {
			if u, ok := q.State(types.NamespacedName{Namespace: "default", Name: fmt.Sprintf("web-%d", i)}); !ok || u.State != nodeapi.WaitingForCloud || u.UID != fmt.Sprint(i) {
				t.Fatalf("of %d that were accepted, number %d is %+v", accepted, i, u)
			}
		}
		if n := len(q.States()); n > accepted+1 {
			t.Errorf("%d upgrades, and %d were accepted", n, accepted)
		}
	}
}
