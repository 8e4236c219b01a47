package attack

import (
	"encoding/json"
	"net/http"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// What this test takes callers for has to be what the apiserver takes them for.
func TestCredentialsAreWhatTheApiserverTakesThemFor(t *testing.T) {
	own, victim := newUser(t, "own"), newUser(t, "victim")
	direct := newDirectClient(t)
	http1 := newClient(t, "apiserver, HTTP/1.1", env.ServerURL(), direct.http.Transport.(*http.Transport).TLSClientConfig.Clone(), false)
	for _, c := range hostile(t, own, victim) {
		t.Run(c.name, func(t *testing.T) {
			client := direct
			if c.http1 {
				client = http1
			}
			if got, want := reviewed(t, client, c), expected(c); got != want {
				t.Errorf("the apiserver takes the caller for %q, the test for %q", got, want)
			}
		})
	}
}

func expected(c credentials) string {
	if c.is == nil {
		return ""
	}
	return c.is.username()
}

// reviewed is whom the apiserver takes a caller for, or "".
func reviewed(t *testing.T, client *client, c credentials) string {
	t.Helper()
	header := accepting(c.header, asJSON)
	header.Set("Content-Type", asJSON)
	a := client.try(t.Context(), request{
		method: http.MethodPost, path: "/apis/authentication.k8s.io/v1/selfsubjectreviews", header: header,
		body: []byte(`{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}`),
	})
	if a.err != nil || a.status != http.StatusCreated {
		return ""
	}
	var review authenticationv1.SelfSubjectReview
	if err := json.Unmarshal(a.body, &review); err != nil {
		t.Fatal(err)
	}
	if name := review.Status.UserInfo.Username; name != "system:anonymous" {
		return name
	}
	return ""
}
