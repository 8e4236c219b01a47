package cache

import (
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"strings"
	"testing"
)

// callerPorts are both ports of the apiserver over HTTP/1.1, without any credentials.
func (h *hub) callerPorts() map[string]*client {
	h.t.Helper()
	return map[string]*client{"10261": h.node, "10268": h.secureOver(nil, false)}
}

// withHeaders makes a GET with these headers, given as name and value in turn.
func (c *client) withHeaders(t *testing.T, path string, headers ...string) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", kubelet)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	res, err := c.http.Do(req)
	if err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	defer res.Body.Close()
	if strings.Contains(path, "watch=true") && res.StatusCode == http.StatusOK {
		return answer{status: res.StatusCode, header: res.Header} // it does not end
	}
	body, err := io.ReadAll(res.Body)
	return answer{status: res.StatusCode, header: res.Header, body: body, err: err}
}

// payloadOf is the middle part of a JSON Web Token: its claims.
func payloadOf(token string) string { return strings.Split(token, ".")[1] }

// unsigned is a JSON Web Token with the claims of another, and no signature of anybody's.
func unsigned(token string) string { return "e30." + payloadOf(token) + ".c2ln" }

// webSocket are the headers with which a browser hands an apiserver a bearer token.
func webSocket(token string) []string {
	return []string{
		"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==",
		"Sec-WebSocket-Protocol", "v4.channel.k8s.io, base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(token)),
	}
}

// victim is a service account that has read what others want to read.
type victim struct {
	*space
	h     *hub
	token string
}

func newVictim(t *testing.T) *victim {
	t.Helper()
	v := &victim{newSpace(t), newHub(t), ""}
	v.create("c")
	v.token = v.account("victim")
	v.reads()
	return v
}

// reads fails the test unless the victim reads what it has read.
func (v *victim) reads() {
	v.t.Helper()
	v.h.as(v.token).servedList(v.t, v.path, protobuf)
	v.h.as(v.token).get(v.t, v.one("c"), protobuf)
}

// isRobbed fails the test if somebody with these credentials reads what the victim has.
func (v *victim) isRobbed(headers ...string) {
	v.t.Helper()
	for port, c := range v.h.callerPorts() {
		for _, path := range []string{v.path, v.one("c"), with(v.path, watchListQuery), "/version"} {
			if a := c.withHeaders(v.t, path, headers...); a.status != http.StatusServiceUnavailable && a.status != http.StatusUnauthorized {
				v.t.Errorf("%s on %s with %.60q: %v", path, port, headers, a)
			}
		}
	}
}

// issue 12, #1: to an apiserver, a token behind two blanks is none, and whoever sends it is
// anonymous. That the answer is 200 says nothing of the token.
func TestATokenBehindTwoBlanksIsNobodys(t *testing.T) {
	t.Parallel()
	v := newVictim(t)
	forged := unsigned(v.token)
	for port, c := range v.h.callerPorts() {
		for _, path := range []string{"/version", "/healthz"} {
			if a := c.withHeaders(t, path, "Authorization", "Bearer  "+forged); a.status != http.StatusOK {
				t.Fatalf("%s on %s does not let in who is anonymous: %v", path, port, a)
			}
		}
	}
	v.h.cut()
	for _, header := range []string{"Bearer " + forged, "Bearer  " + forged, "bearer\t" + forged, "Bearer " + forged + " x"} {
		v.isRobbed("Authorization", header)
	}
	v.reads()
}

// issue 12, #2: a caller that an apiserver lets in for the token in its WebSocket protocol is
// not whom its Authorization header names.
func TestATokenInAWebSocketProtocolDoesNotVouchForAnother(t *testing.T) {
	t.Parallel()
	v := newVictim(t)
	attacker := v.account("attacker")
	forged := append(webSocket(attacker), "Authorization", "Bearer "+unsigned(v.token))
	for port, c := range v.h.callerPorts() {
		for _, path := range []string{"/version", v.one("c")} {
			if a := c.withHeaders(t, path, forged...); a.status != http.StatusOK {
				t.Fatalf("%s on %s does not let the attacker in: %v", path, port, a)
			}
		}
	}
	v.h.cut()
	v.isRobbed("Authorization", "Bearer "+unsigned(v.token))
	v.isRobbed(forged...)
	v.isRobbed(webSocket(attacker)...)
	v.isRobbed(webSocket(v.token)...) // not even the victim, who may be an attacker's browser
	v.reads()
}

// issue 12, #3: of what follows a token an apiserver reads nothing, so nothing in it counts.
func TestWhatFollowsATokenIsNotPartOfIt(t *testing.T) {
	t.Parallel()
	v := newVictim(t)
	joined := "Bearer " + staticToken + " a." + payloadOf(v.token) + ".c"
	for port, c := range v.h.callerPorts() {
		if a := c.withHeaders(t, "/version", "Authorization", joined); a.status != http.StatusOK {
			t.Fatalf("port %s does not let in who has a valid token: %v", port, a)
		}
	}
	v.h.cut()
	for port, c := range v.h.callerPorts() {
		for _, header := range []string{joined, "Bearer " + staticToken} {
			for _, path := range []string{v.path, v.one("c"), with(v.path, watchListQuery)} {
				if a := c.withHeaders(t, path, "Authorization", header); a.status != http.StatusServiceUnavailable {
					t.Errorf("%s on %s with %.60q: %v", path, port, header, a)
				}
			}
			if a := c.withHeaders(t, "/version", "Authorization", header); a.status != http.StatusOK {
				t.Errorf("what it has read itself, on %s with %.60q: %v", port, header, a)
			}
		}
	}
	v.reads()
}

// issue 12, #4: what a forged caller is refused is not refused to whom it names.
func TestAForgedCallerTakesNothingAwayFromAnother(t *testing.T) {
	t.Parallel()
	v := newVictim(t)
	forged := unsigned(v.token)
	nobody := v.account("nobody")
	v.forbid("nobody")
	for port, c := range v.h.callerPorts() {
		for _, headers := range [][]string{
			{"Authorization", "Bearer  " + forged},
			append(webSocket(nobody), "Authorization", "Bearer "+forged),
			append(webSocket(nobody), "Authorization", "Bearer "+v.token+"x"),
			{"Authorization", "Bearer " + staticToken + " a." + payloadOf(v.token) + ".c"},
		} {
			for _, path := range []string{v.path, v.one("c"), with(v.path, watchListQuery)} {
				if a := c.withHeaders(t, path, headers...); a.status != http.StatusForbidden {
					t.Fatalf("%s on %s with %.60q is not refused: %v", path, port, headers, a)
				}
			}
		}
	}
	v.h.cut()
	v.reads()
}

// A caller that names itself twice is passed on as it is, and is nobody to the cache.
func TestACallerWithTwoTokensIsNobody(t *testing.T) {
	t.Parallel()
	v := newVictim(t)
	attacker := v.account("attacker")
	for _, headers := range [][]string{
		{"Authorization", "Bearer " + attacker, "Authorization", "Bearer " + v.token},
		{"Authorization", "Bearer " + attacker, "Authorization", "Bearer " + unsigned(v.token)},
	} {
		for port, c := range v.h.callerPorts() {
			if a := c.withHeaders(t, v.path, headers...); a.status != http.StatusOK {
				t.Fatalf("on %s the attacker is not let in: %v", port, a)
			}
		}
	}
	v.h.cut()
	v.isRobbed("Authorization", "Bearer "+attacker)
	v.isRobbed("Authorization", "Bearer "+attacker, "Authorization", "Bearer "+v.token)
	v.isRobbed("Authorization", "Bearer "+v.token, "Authorization", "Bearer "+attacker)
	v.isRobbed("Authorization", "Bearer "+v.token, "Impersonate-User", "somebody")
	v.reads()
}

// An Authorization header that says nothing is a caller without credentials to an apiserver,
// and never the node to the hub.
func TestAnAuthorizationHeaderThatSaysNothingIsNotTheNode(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	s.create("c")
	h.node.servedList(t, s.path, protobuf)
	headers := []string{"", " ", "Bearer", "Bearer ", "Basic bm9kZTo=", "bearer\t"}
	check := func(status int) {
		t.Helper()
		for _, header := range headers {
			for port, c := range h.callerPorts() {
				if a := c.withHeaders(t, s.path, "Authorization", header); a.status != status {
					t.Errorf("on %s with %q: want %d, got %v", port, header, status, a)
				}
			}
		}
	}
	check(http.StatusForbidden) // it is anonymous
	h.cut()
	check(http.StatusServiceUnavailable)
	h.node.servedList(t, s.path, protobuf)
}
