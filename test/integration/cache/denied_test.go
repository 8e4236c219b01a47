package cache

import (
	"bytes"
	"fmt"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// invariant 19: nor do 403 and 404 overwrite anything: they hide what was read, as long
// as they stand. An apiserver that has just begun says 403 to everybody for a moment.
func TestInvariant19_ARefusalThatIsTakenBack(t *testing.T) {
	t.Parallel()
	for code, reason := range map[int]metav1.StatusReason{
		http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusNotFound: metav1.StatusReasonNotFound,
	} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.script(answering(t, fakeList(100, 5, ""), asJSON), sending(asJSON, nil))
			h := newHubBefore(t, f)
			before := h.node.get(t, fakeMaps, asJSON)
			f.script(failing(code, reason), nil)
			h.node.refused(t, request{path: fakeMaps, accept: asJSON}, code)
			h.cut()
			if a := h.node.do(t, request{path: fakeMaps, accept: asJSON}); a.status == http.StatusOK {
				t.Errorf("what was refused is read offline: %v", a)
			}
			h.connect()
			if w := h.node.watch(t, fakeMaps+"?"+watchQuery+"&resourceVersion=100", asJSON); w.status != http.StatusOK {
				t.Fatalf("the watch is answered with %d", w.status)
			}
			h.cut()
			if after := h.node.get(t, fakeMaps, asJSON); !bytes.Equal(after.body, before.body) {
				t.Errorf("the list is not what it was: %v", after)
			}
		})
	}
}
