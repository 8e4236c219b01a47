package cache

import (
	"bytes"
	"net/http"
	"os"
	"testing"
)

// invariant 15: the same for the record that says that an object is in a list: a list is
// refused, not short, where one is damaged.
func TestInvariant15_ADamagedMembership(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	s.fill("c", 5)
	member := s.name + "/c-004"
	version := h.node.servedList(t, s.path, protobuf).items[member]
	h.node.servedList(t, s.named("c-002"), protobuf)
	h.stop()
	file := largestFile(t, h.cacheDir())
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	damaged := 0
	for at := 0; ; {
		i := bytes.Index(content[at:], []byte(member))
		if i < 0 {
			break
		}
		at += i + len(member)
		// Behind the key: a checksum, the object's size, and its version.
		record := content[at:min(at+16, len(content))]
		if v := bytes.Index(record, []byte(version)); v > 4 {
			record[v] ^= 1
			damaged++
		}
	}
	if damaged == 0 {
		t.Fatal("the membership is not found in the file")
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	h.cut()
	h.start()
	h.node.refused(t, request{path: s.path, accept: protobuf}, http.StatusServiceUnavailable)
	h.node.servedList(t, s.named("c-002"), protobuf) // the rest is as it was
	h.connect()
	h.node.servedList(t, s.path, protobuf)
	h.cut()
	h.node.servedList(t, s.path, protobuf)
}
