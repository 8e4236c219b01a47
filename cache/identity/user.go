package identity

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// User is a user as returned by an apiserver.
type User struct {
	Name string `json:"name"`
	UID  string `json:"uid,omitempty"`
}

// userPrefix is the prefix of user keys, and of no others.
const userPrefix = "user:"

// Key returns the string that identifies the user in the cache. A service account that is
// deleted and created again has the same name but another UID, and so another key. The name
// is quoted because it may contain "#". quota.Tenant extracts the namespace of a service
// account from its key.
func (u User) Key() string { return userPrefix + strconv.Quote(u.Name) + "#" + u.UID }

// IsServiceAccount reports whether key is of a service account.
func IsServiceAccount(key string) bool {
	return strings.HasPrefix(key, userPrefix+`"`+serviceAccountFor)
}

// Readable returns a key in a form for operators: the user's name and UID.
func Readable(key string) string {
	quoted, err := strconv.QuotedPrefix(strings.TrimPrefix(key, userPrefix))
	if err != nil {
		return key
	}
	name, err := strconv.Unquote(quoted)
	if err != nil {
		return key
	}
	return name + strings.TrimSuffix(key[len(userPrefix)+len(quoted):], "#")
}

const (
	anonymous         = "system:anonymous"
	unauthenticated   = "system:unauthenticated"
	serviceAccountFor = "system:serviceaccount:"
)

// known reports whether an apiserver has named a user.
func known(u User, groups []string) bool {
	return u.Name != "" && u.Name != anonymous && !slices.Contains(groups, unauthenticated)
}

// claims are the claims of a JSON Web Token that the hub uses.
type claims struct {
	Subject    string  `json:"sub"`
	Issued     float64 `json:"iat"`
	Expires    float64 `json:"exp"`
	Kubernetes struct {
		Namespace string `json:"namespace"`
		Pod       struct {
			UID string `json:"uid"`
		} `json:"pod"`
		ServiceAccount struct {
			Name string `json:"name"`
			UID  string `json:"uid"`
		} `json:"serviceaccount"`
	} `json:"kubernetes.io"`
}

// claimsOf reads a token's claims, which are empty if it is no JSON Web Token. They are not
// verified.
func claimsOf(token string) (c claims) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return claims{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(payload, &c) != nil {
		return claims{}
	}
	return c
}

// expiry returns when a token expires, or the zero time if unknown. Only
// --offline-token-grace depends on it.
func expiry(token string) time.Time {
	const year9999 = 253402300799 // the latest time that JSON can hold
	if at := claimsOf(token).Expires; at > 0 && at <= year9999 {
		return time.Unix(int64(at), 0).UTC()
	}
	return time.Time{}
}

// IssuedTo returns the user of a token that an apiserver has just issued to a service
// account. The name comes from the request's path; only the UID is read from the token,
// which that apiserver has signed. It returns false if the claims do not match the name.
func IssuedTo(token, namespace, name string) (User, bool) {
	c := claimsOf(token)
	u := User{Name: serviceAccountFor + namespace + ":" + name, UID: c.Kubernetes.ServiceAccount.UID}
	ok := namespace != "" && name != "" && u.UID != "" && c.Subject == u.Name &&
		c.Kubernetes.Namespace == namespace && c.Kubernetes.ServiceAccount.Name == name
	return u, ok
}

// ClaimedAccount returns the service account, as namespace/name, that a request's bearer token
// claims to be of, or "". The claim is not verified: it must not give anything to the caller.
func ClaimedAccount(h http.Header) string {
	account, ok := strings.CutPrefix(claimsOf(Bearer(h)).Subject, serviceAccountFor)
	if !ok {
		return ""
	}
	return strings.Replace(account, ":", "/", 1)
}
