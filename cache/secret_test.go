package cache

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

const (
	urlSecretA   = "/api/v1/namespaces/ns/secrets/a"
	urlOnlyA     = "/api/v1/namespaces/ns/secrets?fieldSelector=metadata.name%3Da"
	secretMarker = "cGxhbnRlZCBieSBhIHRlc3Q="
)

func secretJSON(name, version string) string {
	return fmt.Sprintf(`{"kind":"Secret","apiVersion":"v1","metadata":{"name":%q,"namespace":"ns","uid":"u-%s","resourceVersion":%q},"data":{"key":%q}}`, name, name, version, secretMarker)
}

func secretsJSON(version string, secrets ...string) string {
	list := podsJSON(version, secrets...)
	return string(bytes.Replace([]byte(list), []byte("PodList"), []byte("SecretList"), 1))
}

// filesWith returns the files of a folder that contain text.
func filesWith(t *testing.T, dir, text string) (found []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("files: %v, %v", files, err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b, []byte(text)) {
			found = append(found, filepath.Base(file))
		}
	}
	return found
}

// What is deleted in the cloud stays in no file for longer than some hours, though the hub is
// not restarted.
func TestADeletedSecretLeavesTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, dir := newUpstream(), t.TempDir()
		u.onText("list", http.StatusOK, secretsJSON("100", secretJSON("a", "50")))
		u.onText("get", http.StatusOK, secretJSON("a", "50"))
		c := startIn(t, dir, u)
		get(t, c, urlSecretA)
		get(t, c, urlOnlyA)
		startWatch(t.Context(), t, c, urlOnlyA+"&watch=true&resourceVersion=100")
		feed := <-u.feeds
		time.Sleep(10 * time.Minute)
		if got := filesWith(t, dir, secretMarker); len(got) != 2 {
			t.Fatalf("before it is deleted, %q have it: this test shows nothing", got)
		}
		send(t, feed, fmt.Sprintf(`{"type":"DELETED","object":%s}`+"\n", secretJSON("a", "110")))
		time.Sleep(6 * time.Hour)
		synctest.Wait()
		if got := filesWith(t, dir, secretMarker); len(got) > 0 {
			t.Errorf("six hours after it was deleted, %q have it", got)
		}
	})
}
