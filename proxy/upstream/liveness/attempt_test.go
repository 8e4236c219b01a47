package liveness

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"testing"
)

// net/http alone repeats such a request as long as its pool has connections that break.
func TestARequestWhoseConnectionsBreakEndsAfterSomeTries(t *testing.T) {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://apiserver/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	ctx := (&Attempt{}).Start(req).Context()
	trace := httptrace.ContextClientTrace(ctx)
	for n := 1; n <= maxTries; n++ {
		if ctx.Err() != nil {
			t.Fatalf("it ended before try %d", n)
		}
		trace.GetConn("apiserver:443")
		trace.GotConn(httptrace.GotConnInfo{})
	}
	if !errors.Is(context.Cause(ctx), errBreaksOff) {
		t.Errorf("the request ended with %v", context.Cause(ctx))
	}
}
