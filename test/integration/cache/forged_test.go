package cache

import (
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"slices"
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
func (v *victim) isRobbed(paths []string, headers ...string) {
	v.t.Helper()
	for port, c := range v.h.callerPorts() {
		for _, path := range paths {
			if a := c.withHeaders(v.t, path, headers...); a.status != http.StatusServiceUnavailable && a.status != http.StatusUnauthorized {
				v.t.Errorf("%s on %s with %.60q: %v", path, port, headers, a)
			}
		}
	}
}

// authorization are Authorization headers with these values.
func authorization(values ...string) (headers []string) {
	for _, v := range values {
		headers = append(headers, "Authorization", v)
	}
	return headers
}

// issue 12, #1 to #4: to an apiserver, a token behind two blanks is none, what follows a token is not part of it, and one
// in a WebSocket protocol counts as one in the header does. So a 2xx says nothing of a token that the request names
// elsewhere, and a 403 takes nothing from whom it names. Who names two, or says nothing in the header, is nobody to the
// cache: never the node, either.
func TestNobodyIsWhomAForgedTokenNames(t *testing.T) {
	t.Parallel()
	v := newVictim(t)
	v.h.node.servedList(t, v.path, protobuf)
	attacker, nobody := v.account("attacker"), v.account("nobody")
	v.forbid("nobody")
	forged, victim := "Bearer "+unsigned(v.token), "Bearer "+v.token
	twoBlanks := "Bearer  " + unsigned(v.token)
	joined := "Bearer " + staticToken + " a." + payloadOf(v.token) + ".c"
	all := []string{v.path, v.one("c"), with(v.path, watchListQuery)}
	for _, c := range []struct {
		headers, paths []string
		status         int
	}{
		{authorization(twoBlanks), []string{"/version", "/healthz"}, http.StatusOK}, // it is anonymous
		{append(webSocket(attacker), authorization(forged)...), []string{"/version", v.one("c")}, http.StatusOK},
		{authorization(joined), []string{"/version"}, http.StatusOK},
		{authorization("Bearer "+attacker, victim), all[:1], http.StatusOK},
		{authorization("Bearer "+attacker, forged), all[:1], http.StatusOK},

		{authorization(twoBlanks), all, http.StatusForbidden},
		{append(webSocket(nobody), authorization(forged)...), all, http.StatusForbidden},
		{append(webSocket(nobody), authorization(victim+"x")...), all, http.StatusForbidden},
		{authorization(joined), all, http.StatusForbidden},
		{authorization(""), all[:1], http.StatusForbidden},
		{authorization("Bearer "), all[:1], http.StatusForbidden},
		{authorization("Basic bm9kZTo="), all[:1], http.StatusForbidden},
	} {
		for port, caller := range v.h.callerPorts() {
			for _, path := range c.paths {
				if a := caller.withHeaders(t, path, c.headers...); a.status != c.status {
					t.Fatalf("with the cloud, %s on %s with %.60q: want %d, got %v", path, port, c.headers, c.status, a)
				}
			}
		}
	}
	v.h.cut()
	for _, headers := range [][]string{
		authorization(forged), authorization(twoBlanks), authorization("bearer\t" + unsigned(v.token)), authorization(forged + " x"),
		append(webSocket(attacker), authorization(forged)...), webSocket(attacker), webSocket(v.token), // who may be a browser
		authorization("Bearer " + attacker), authorization("Bearer "+attacker, victim), authorization(victim, "Bearer "+attacker),
		append(authorization(victim), "Impersonate-User", "somebody"),
		authorization(""), authorization(" "), authorization("Bearer"), authorization("Bearer "), authorization("Basic bm9kZTo="), authorization("bearer\t"),
	} {
		v.isRobbed(append(slices.Clone(all), "/version"), headers...)
	}
	for _, header := range []string{joined, "Bearer " + staticToken} {
		v.isRobbed(all, authorization(header)...)
		for port, caller := range v.h.callerPorts() {
			if a := caller.withHeaders(t, "/version", "Authorization", header); a.status != http.StatusOK {
				t.Errorf("what it has read itself, on %s with %.60q: %v", port, header, a)
			}
		}
	}
	v.reads()
	v.h.node.servedList(t, v.path, protobuf)
}
