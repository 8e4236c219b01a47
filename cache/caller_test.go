package cache

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// bearer is a request with a JSON Web Token, which nobody has signed.
func bearer(user string, expires time.Time) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", http.NoBody)
	claims := fmt.Sprintf(`{"iss":"here","sub":%q,"exp":%d}`, user, expires.Unix())
	r.Header.Set("Authorization", "Bearer e30."+base64.RawURLEncoding.EncodeToString([]byte(claims))+".c2ln")
	return r
}

func TestHowLongATokenIsGoodOffline(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	tests := map[string]struct {
		expires time.Time
		grace   time.Duration
		want    error
	}{
		"one that has not expired":                   {now.Add(time.Minute), time.Hour, nil},
		"one that has, and there is no end of grace": {now.Add(-24 * 365 * time.Hour), 0, nil},
		"one that has, within its grace":             {now.Add(-59 * time.Minute), time.Hour, nil},
		"one whose grace is over":                    {now.Add(-61 * time.Minute), time.Hour, errExpired},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := Open(t.TempDir(), nobody{}, testOptions(t))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			k := c.callers
			k.isNode = func(context.Context) bool { return false }
			k.grace, k.now = test.grace, func() time.Time { return now }
			who, ok := k.of(bearer("pod", test.expires))
			if !ok {
				t.Fatal("a token is nobody's")
			}
			if err := k.known(who); err != errStranger { //nolint:errorlint // the bare value
				t.Errorf("before it was accepted: %v", err)
			}
			k.accepted(who)
			if err := k.known(who); err != test.want { //nolint:errorlint // the bare value
				t.Errorf("got %v, want %v", err, test.want)
			}
			if other, _ := k.of(bearer("other", test.expires)); k.known(other) == nil {
				t.Error("a token that was never accepted is known")
			}
		})
	}
}

func TestWhoIsNotServed(t *testing.T) {
	c, err := Open(t.TempDir(), nobody{}, testOptions(t))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.callers.isNode = func(context.Context) bool { return false }
	for name, header := range map[string]http.Header{
		"nobody":                     {},
		"basic authentication":       {"Authorization": {"Basic YTpi"}},
		"an empty token":             {"Authorization": {"Bearer "}},
		"two tokens":                 {"Authorization": {"Bearer a", "Bearer b"}},
		"who acts for somebody else": {"Authorization": {"Bearer a"}, "Impersonate-User": {"b"}},
	} {
		r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", http.NoBody)
		r.Header = header
		if who, ok := c.callers.of(r); ok {
			t.Errorf("%s is taken for %s", name, who.user)
		}
	}
}
