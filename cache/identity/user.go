package identity

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
)

// User is a user as an apiserver names it.
type User struct {
	Name string `json:"name"`
	UID  string `json:"uid,omitempty"`
}

// userPrefix begins the keys of users. No other key begins like this.
const userPrefix = "user:"

// Key stands for the user wherever something is kept for it. A service account
// that is deleted and created again has the same name and another UID, and so
// another key. Quoting keeps a name that contains "#" apart. quota.Tenant
// extracts the namespace of a service account from its key.
func (u User) Key() string { return userPrefix + strconv.Quote(u.Name) + "#" + u.UID }

// IsKey reports whether key is one of those that Key returns.
func IsKey(key string) bool { return strings.HasPrefix(key, userPrefix) }

// Readable is a key for an operator to read: the user's name and UID.
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

// known reports whether an apiserver has named a user at all.
func known(u User, groups []string) bool {
	return u.Name != "" && u.Name != anonymous && !slices.Contains(groups, unauthenticated)
}

// claims are those of a JSON Web Token that are read here.
type claims struct {
	Subject    string  `json:"sub"`
	Expires    float64 `json:"exp"`
	Kubernetes struct {
		Namespace      string `json:"namespace"`
		ServiceAccount struct {
			Name string `json:"name"`
			UID  string `json:"uid"`
		} `json:"serviceaccount"`
	} `json:"kubernetes.io"`
}

// claimsOf reads a token's claims, which are empty where it is no JSON Web Token.
// They say nothing unless an apiserver vouches for the token.
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

// expiry returns when a token expires, zero where it does not say so. Only
// --offline-token-grace asks.
func expiry(token string) time.Time {
	const year9999 = 253402300799 // what JSON can hold of a time
	if at := claimsOf(token).Expires; at > 0 && at <= year9999 {
		return time.Unix(int64(at), 0).UTC()
	}
	return time.Time{}
}

// IssuedTo returns whom a token is for that an apiserver has just issued to a
// service account. The name is that of the request's path, which the apiserver
// has obeyed; only the UID is read from the token, which the same apiserver has
// signed. It says no where the token does not confirm the name.
func IssuedTo(token, namespace, name string) (User, bool) {
	c := claimsOf(token)
	u := User{Name: serviceAccountFor + namespace + ":" + name, UID: c.Kubernetes.ServiceAccount.UID}
	ok := namespace != "" && name != "" && u.UID != "" && c.Subject == u.Name &&
		c.Kubernetes.Namespace == namespace && c.Kubernetes.ServiceAccount.Name == name
	return u, ok
}
