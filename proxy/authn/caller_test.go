package authn

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
)

func TestLoopbackFor(t *testing.T) {
	stranger := errors.New("a stranger")
	tests := map[string]struct {
		header http.Header
		refuse error
		want   Identity
		err    error
		asked  bool
	}{
		"the node's program":                    {want: Node, asked: true},
		"a stranger":                            {refuse: stranger, err: ErrUnauthenticated, asked: true},
		"a stranger with a token":               {header: http.Header{"Authorization": {"Bearer x"}}, refuse: stranger},
		"a stranger with a token for WebSocket": {header: http.Header{"Sec-Websocket-Protocol": {"v4, " + webSocketToken + "eA"}}, refuse: stranger},
		"a stranger with an empty token":        {header: http.Header{"Authorization": {""}}, refuse: stranger},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			asked := false
			got, err := LoopbackFor(func(*http.Request) error { asked = true; return tt.refuse })(&http.Request{Header: tt.header})
			if got != tt.want || !errors.Is(err, tt.err) || asked != tt.asked {
				t.Errorf("got %v, %v, asked %t", got, err, asked)
			}
			if err != nil && (!errors.Is(err, stranger) || !strings.Contains(err.Error(), "lent to the node's own programs only: a stranger")) {
				t.Errorf("it is told %q", err)
			}
		})
	}
	if got, err := LoopbackFor(nil)(&http.Request{}); got != Node || err != nil {
		t.Errorf("where nobody is refused: %v, %v", got, err)
	}
}

func TestRequestWithoutAuthenticatorIsLentNothing(t *testing.T) {
	if IdentityOf(context.Background()) != Caller {
		t.Error("a request that nobody has looked at would be the node's")
	}
}
