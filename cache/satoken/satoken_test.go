package satoken_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/identity"
	"github.com/edgehub-io/edgehub/cache/quota"
	"github.com/edgehub-io/edgehub/cache/satoken"
	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/table"
	"github.com/edgehub-io/edgehub/cache/wire"
)

const (
	kubelet  = "application/vnd.kubernetes.protobuf,application/json"
	protobuf = "application/vnd.kubernetes.protobuf"
	secret   = "eyJhbGciOi.the-secret-part.of-a-token"
)

var account = satoken.Account{User: "node", Namespace: "ns", Name: "default"}

// memory is a table.Store. It outlives what is opened on it, as a disk does.
type memory map[string][]byte // by table/key

func (m memory) Get(table, key string) ([]byte, error) {
	if value := m[table+"/"+key]; value != nil {
		return bytes.Clone(value), nil
	}
	return nil, store.ErrNotFound
}

func (m memory) Keys(table string) (keys []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if key, ok := strings.CutPrefix(name, table+"/"); ok {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

func (m memory) Put(pairs ...store.Pair) error {
	for _, p := range pairs {
		if m[p.Table+"/"+p.Key] = bytes.Clone(p.Value); p.Value == nil {
			delete(m, p.Table+"/"+p.Key)
		}
	}
	return nil
}

func open(tb testing.TB, t table.Store, o satoken.Options) *satoken.Tokens {
	tb.Helper()
	k, err := satoken.Open(t, o)
	if err != nil {
		tb.Fatal(err)
	}
	return k
}

// request returns a kubelet's request for a projected volume of this pod.
func request(pod string) *authenticationv1.TokenRequest {
	return &authenticationv1.TokenRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest"},
		Spec: authenticationv1.TokenRequestSpec{
			Audiences:         []string{"a", "b"},
			ExpirationSeconds: new(int64(3607)),
			BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod, UID: "u"},
		},
	}
}

func encode(tb testing.TB, accept string, r *authenticationv1.TokenRequest) (body []byte, contentType string) {
	tb.Helper()
	contentType, body, err := convert.EncodeBody(accept, r)
	if err != nil {
		tb.Fatal(err)
	}
	return body, contentType
}

func keep(tb testing.TB, k *satoken.Tokens, a satoken.Account, r *authenticationv1.TokenRequest, token string) {
	tb.Helper()
	body, contentType := encode(tb, protobuf, r)
	issued := r.DeepCopy()
	issued.Status = authenticationv1.TokenRequestStatus{Token: token, ExpirationTimestamp: metav1.Unix(946684800, 0)} // long ago
	answer, answerType := encode(tb, protobuf, issued)
	if err := k.Keep(a, body, contentType, answer, answerType); err != nil {
		tb.Fatal(err)
	}
}

// given returns the token in the answer to a request, or "".
func given(tb testing.TB, k *satoken.Tokens, a satoken.Account, r *authenticationv1.TokenRequest, accept string) string {
	tb.Helper()
	body, contentType := encode(tb, accept, r)
	answer, answerType, ok := k.Answer(a, body, contentType, accept)
	if !ok {
		return ""
	}
	object, err := convert.DecodeBody(answerType, answer, wire.TypeMeta{})
	if err != nil {
		tb.Fatal(err)
	}
	status := object.(*authenticationv1.TokenRequest).Status
	if status.ExpirationTimestamp.Unix() != 946684800 {
		tb.Errorf("the expiry has changed: %s", status.ExpirationTimestamp)
	}
	return status.Token
}

func TestTheLastTokenIsGivenAgainAlsoAfterARestart(t *testing.T) {
	disk := memory{}
	k := open(t, disk, satoken.Options{})
	keep(t, k, account, request("p"), "first")
	keep(t, k, account, request("p"), secret)
	for range 2 {
		for _, accept := range []string{kubelet, "application/json", ""} {
			if got := given(t, k, account, request("p"), accept); got != secret {
				t.Errorf("Accept %q: %q", accept, got)
			}
		}
		k = open(t, disk, satoken.Options{})
	}
	for _, text := range []string{secret, "default", "node"} {
		if keys := fmt.Sprint(slices.Collect(maps.Keys(disk))); strings.Contains(keys, text) {
			t.Errorf("a key in the table tells %q: %s", text, keys)
		}
	}
}

func TestATokenIsNotGivenForAnotherRequest(t *testing.T) {
	k := open(t, memory{}, satoken.Options{})
	keep(t, k, account, request("p"), secret)
	type change = func(*authenticationv1.TokenRequest)
	for _, c := range []struct {
		name    string
		account satoken.Account
		change  change
		want    string
	}{
		{"another lifetime", account, func(r *authenticationv1.TokenRequest) { r.Spec.ExpirationSeconds = nil }, secret},
		{"audiences in another order", account, func(r *authenticationv1.TokenRequest) { r.Spec.Audiences = []string{"b", "a"} }, secret},
		{"one audience less", account, func(r *authenticationv1.TokenRequest) { r.Spec.Audiences = []string{"a"} }, ""},
		{"audiences cut elsewhere", account, func(r *authenticationv1.TokenRequest) { r.Spec.Audiences = []string{"ab"} }, ""},
		{"no audiences", account, func(r *authenticationv1.TokenRequest) { r.Spec.Audiences = nil }, ""},
		{"another pod of the same name", account, func(r *authenticationv1.TokenRequest) { r.Spec.BoundObjectRef.UID = "other" }, ""},
		{"another pod", account, func(r *authenticationv1.TokenRequest) { r.Spec.BoundObjectRef.Name = "q" }, ""},
		{"a secret", account, func(r *authenticationv1.TokenRequest) { r.Spec.BoundObjectRef.Kind = "Secret" }, ""},
		{"bound to nothing", account, func(r *authenticationv1.TokenRequest) { r.Spec.BoundObjectRef = nil }, ""},
		{"a service account of another UID", account, func(r *authenticationv1.TokenRequest) { r.UID = "u" }, ""},
		{"another user", satoken.Account{User: "eve", Namespace: "ns", Name: "default"}, nil, ""},
		{"another namespace", satoken.Account{User: "node", Namespace: "other", Name: "default"}, nil, ""},
		{"another service account", satoken.Account{User: "node", Namespace: "ns", Name: "admin"}, nil, ""},
	} {
		r := request("p")
		if c.change != nil {
			c.change(r)
		}
		if got := given(t, k, c.account, r, kubelet); got != c.want {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

func TestTokensThatAreNotUsedAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := memory{}
		k := open(t, disk, satoken.Options{})
		keep(t, k, account, request("unused"), "token")
		keep(t, k, account, request("used"), "token")
		time.Sleep(200 * 24 * time.Hour)
		if given(t, k, account, request("used"), kubelet) == "" {
			t.Fatal("gone after 200 days")
		}
		time.Sleep(250 * 24 * time.Hour)
		if k = open(t, disk, satoken.Options{}); k.Len() != 1 || given(t, k, account, request("used"), kubelet) == "" {
			t.Errorf("after 400 days unused, %d are there", k.Len())
		}
	})
}

func TestAnswersThatAreNotKeptAndErrorsWithoutTokens(t *testing.T) {
	k := open(t, memory{}, satoken.Options{})
	good, goodType := encode(t, protobuf, request("p"))
	issued := request("p")
	issued.Status.Token = secret
	answer, answerType := encode(t, "application/json", issued)
	for _, c := range []struct {
		name                      string
		request, response         []byte
		requestType, responseType string
	}{
		{"a request that is none", []byte("{"), answer, "application/json", answerType},
		{"an answer that is cut short", good, answer[:len(answer)-4], goodType, answerType},
		{"an answer with a wrong type", good, bytes.Replace(answer, []byte(`"status":{`), []byte(`"status":"`+secret+`","x":{`), 1), goodType, answerType},
		{"an answer that is the token itself", good, []byte(secret), goodType, answerType},
		{"an answer in YAML", good, answer, goodType, "application/yaml"},
		{"an answer of another kind", good, bytes.Replace(answer, []byte("TokenRequest"), []byte("TokenReview"), 1), goodType, answerType},
		{"an answer without a token", good, good, goodType, goodType},
		{"an enormous answer", good, append(answer, bytes.Repeat([]byte(" "), 1<<17)...), goodType, answerType},
	} {
		err := k.Keep(account, c.request, c.requestType, c.response, c.responseType)
		if err == nil || strings.Contains(err.Error(), secret[:8]) || strings.Contains(err.Error(), "secret-part") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if k.Len() != 0 {
		t.Error("something was kept")
	}
	if _, _, ok := k.Answer(account, []byte("{"), "application/json", kubelet); ok {
		t.Error("a request that cannot be read was answered")
	}
}

func TestConcurrentUse(t *testing.T) {
	k := open(t, memory{}, satoken.Options{Bounds: quota.Bounds{Count: 5, Bytes: 1 << 20}})
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			r := request(fmt.Sprint(i))
			keep(t, k, account, r, "token")
			given(t, k, account, r, kubelet)
		})
	}
	all.Wait()
	if k.Len() != 5 {
		t.Errorf("%d tokens", k.Len())
	}
}

func FuzzAnswer(f *testing.F) {
	k, err := satoken.Open(memory{}, satoken.Options{})
	if err != nil {
		f.Fatal(err)
	}
	body, contentType := encode(f, protobuf, request("p"))
	f.Add(contentType, body)
	body, contentType = encode(f, "", request("p"))
	f.Add(contentType, body)
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		if _, _, ok := k.Answer(account, body, contentType, kubelet); ok {
			t.Error("answered, though no token was issued")
		}
	})
}

// #17: a token counts against whom it was issued to, and the node's have bounds of their own.
func TestAFloodOfTokensEvictsNeitherTheNodesNorOtherUsers(t *testing.T) {
	of := func(namespace string, i int) satoken.Account {
		user := identity.User{Name: fmt.Sprintf("system:serviceaccount:%s:a%d", namespace, i), UID: "1"}
		return satoken.Account{User: user.Key(), Namespace: namespace, Name: "default"}
	}
	k := open(t, memory{}, satoken.Options{Bounds: quota.Bounds{Count: 5, Bytes: 1 << 20}})
	victim := of("victims", 1)
	keep(t, k, victim, request("p"), "victim's")
	for i := range 5 {
		keep(t, k, account, request(fmt.Sprint(i)), "node's")
	}
	for i := range 10 {
		keep(t, k, of("flood", i), request("p"), "flood")
	}
	for i := range 5 {
		if got := given(t, k, account, request(fmt.Sprint(i)), kubelet); got != "node's" {
			t.Errorf("the kubelet's token for %d: %q", i, got)
		}
	}
	if got := given(t, k, victim, request("p"), kubelet); got != "victim's" || k.Len() != 10 {
		t.Errorf("the victim's token: %q, of %d", got, k.Len())
	}
	if keep(t, k, account, request("more"), "node's"); k.Len() != 10 {
		t.Errorf("%d tokens, when the node has more than its bound", k.Len())
	}
}
