package install

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/inplace"
)

// upgradedInPlace has a hub with this folder, which does not run any more, upgrade a pod of shop in place.
func upgradedInPlace(t *testing.T, root string) (*inplace.Journal, *corev1.Pod) {
	t.Helper()
	j, err := inplace.Open(inplace.Options{
		Dir: filepath.Join(root, "upgrades", "inplace"), Online: func() bool { return false }, Changed: func() {},
		Event: func(*corev1.ObjectReference, string, string, string) {}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "till", UID: "u", ResourceVersion: "10"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1"}}},
	}
	if err := j.Begin(pod, api.Target{Revision: "new", InPlace: []api.ImageChange{{Name: "app", From: "app:1", To: "app:2"}}}); err != nil {
		t.Fatal(err)
	}
	return j, pod
}

// kubelet would have such a pod go back.
func TestAnUninstallRefusesWhileTheCloudDoesNotHaveWhatAPodRuns(t *testing.T) {
	const itsRecord = "upgrades/inplace/shop_u.json"
	write := func(t *testing.T, file string) {
		t.Helper()
		if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		left func(t *testing.T, root string)
		want string // "": it goes on
	}{
		"a hub that has upgraded nothing": {func(*testing.T, string) {}, ""},
		"a pod of which the cloud knows nothing": {func(t *testing.T, root string) { upgradedInPlace(t, root) },
			"FAIL  pod shop/till was upgraded in place, and the cloud does not have what it runs"},
		"a pod to which the cloud has given what it runs": {func(t *testing.T, root string) {
			j, pod := upgradedInPlace(t, root)
			pod = pod.DeepCopy()
			pod.ResourceVersion, pod.Spec.Containers[0].Image = "11", "app:2"
			j.Update([]*corev1.Pod{pod})
		}, ""},
		"a record that is damaged, and no hub has seen that": {func(t *testing.T, root string) {
			upgradedInPlace(t, root)
			write(t, filepath.Join(root, itsRecord))
		}, "/" + itsRecord + " is damaged"},
		"a record that a hub has set aside as damaged": {func(t *testing.T, root string) {
			upgradedInPlace(t, root)
			write(t, filepath.Join(root, itsRecord))
			upgradedInPlace(t, root)
		}, "/" + itsRecord + ".damaged is damaged"},
		"a folder that cannot be read": {func(t *testing.T, root string) {
			if err := os.Mkdir(filepath.Join(root, "upgrades"), 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(root, "upgrades", "inplace"))
		}, "FAIL  which pods were upgraded in place is not known"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			tt.left(t, root)
			before := tree(t, root)
			var out strings.Builder
			j := &journal{record: record{Installed: &installed{RootDir: root}}}
			err := j.checkUninstall(t.Context(), &UninstallOptions{Force: true}, &out)
			if (err != nil) != (tt.want != "") || !strings.Contains(out.String(), tt.want) {
				t.Errorf("%v, and it says %s", err, &out)
			}
			if after := tree(t, root); after != before {
				t.Errorf("there was %s, and is %s", before, after)
			}
			if err != nil && !strings.Contains(out.String(), "also with --force") {
				t.Errorf("it does not say that --force is of no use: %s", &out)
			}
		})
	}
}

// tree lists a folder.
func tree(t *testing.T, root string) string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		all = append(all, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, " ")
}
