package satoken_test

import (
	"bytes"
	"fmt"
	"log/slog"
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
	"github.com/edgehub-io/edgehub/cache/satoken"
	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/table"
	"github.com/edgehub-io/edgehub/cache/table/tabletest"
	"github.com/edgehub-io/edgehub/cache/wire"
)

const (
	tableName = "service-account-tokens"
	kubelet   = "application/vnd.kubernetes.protobuf,application/json"
	protobuf  = "application/vnd.kubernetes.protobuf"
	secret    = "eyJhbGciOi.the-secret-part.of-a-token"
)

var account = satoken.Account{User: "node", Namespace: "ns", Name: "default"}

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
	var disk tabletest.Store
	k := open(t, &disk, satoken.Options{})
	keep(t, k, account, request("p"), "first")
	keep(t, k, account, request("p"), secret)
	for range 2 {
		for _, accept := range []string{kubelet, "application/json", ""} {
			if got := given(t, k, account, request("p"), accept); got != secret {
				t.Errorf("Accept %q: %q", accept, got)
			}
		}
		k = open(t, &disk, satoken.Options{})
	}
	for _, text := range []string{secret, "default", "node"} {
		if inKeys, _ := disk.Holds(text); inKeys {
			t.Errorf("a key in the table tells %q", text)
		}
	}
}

func TestATokenIsNotGivenForAnotherRequest(t *testing.T) {
	k := open(t, &tabletest.Store{}, satoken.Options{})
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

func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var disk tabletest.Store
		k := open(t, &disk, satoken.Options{MaxTokens: 3})
		for i := range 4 {
			keep(t, k, account, request(fmt.Sprint(i)), fmt.Sprint("token", i))
			time.Sleep(time.Second)
			given(t, k, account, request("0"), kubelet)
		}
		if k.Len() != 3 || given(t, k, account, request("0"), kubelet) != "" || given(t, k, account, request("3"), kubelet) == "" {
			t.Errorf("not the oldest went: %d", k.Len())
		}

		time.Sleep(200 * 24 * time.Hour)
		if given(t, k, account, request("2"), kubelet) == "" {
			t.Fatal("gone after 200 days")
		}
		time.Sleep(250 * 24 * time.Hour)
		k = open(t, &disk, satoken.Options{MaxTokens: 3})
		if k.Len() != 1 || given(t, k, account, request("2"), kubelet) == "" || len(disk.Keys(tableName)) != 1 {
			t.Errorf("after 400 days unused, %d are there, %d on disk", k.Len(), len(disk.Keys(tableName)))
		}
	})
}

func TestAnswersThatAreNotKeptAndErrorsWithoutTokens(t *testing.T) {
	k := open(t, &tabletest.Store{}, satoken.Options{})
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

func TestADamagedTokenIsMissing(t *testing.T) {
	var disk tabletest.Store
	var logged bytes.Buffer
	log := slog.New(slog.NewTextHandler(&logged, nil))
	keep(t, open(t, &disk, satoken.Options{}), account, request("p"), secret)
	disk.Damage(tableName, disk.Keys(tableName)[0])
	k := open(t, &disk, satoken.Options{Logger: log})
	if got := given(t, k, account, request("p"), kubelet); got != "" || k.Len() != 0 {
		t.Errorf("given: %q", got)
	}
	if logged.Len() == 0 || strings.Contains(logged.String(), secret) {
		t.Errorf("logged: %s", &logged)
	}
	keep(t, k, account, request("p"), "new")
	if got := given(t, k, account, request("p"), kubelet); got != "new" {
		t.Errorf("kept anew, given %q", got)
	}
}

func TestConcurrentUse(t *testing.T) {
	k := open(t, &tabletest.Store{}, satoken.Options{MaxTokens: 5})
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
	k, err := satoken.Open(&tabletest.Store{}, satoken.Options{})
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

// #17: a user who creates many tokens evicts its own, and never a kubelet's.
func TestAFloodOfTokensDoesNotEvictOtherUsers(t *testing.T) {
	for name, o := range map[string]satoken.Options{"in number": {MaxTokens: 20}, "in bytes": {MaxBytes: 4000}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var disk tabletest.Store
				k := open(t, &disk, o)
				flooder := satoken.Account{User: "flooder", Namespace: "ns", Name: "default"}
				pods := []string{"a", "b", "c"}
				for _, pod := range pods {
					keep(t, k, account, request(pod), "token of "+pod)
				}
				for i := range 200 {
					time.Sleep(time.Second)
					keep(t, k, flooder, request(fmt.Sprint(i)), "flood")
					if i == 100 {
						k = open(t, &disk, o)
					}
				}
				for _, pod := range pods {
					if got := given(t, k, account, request(pod), kubelet); got != "token of "+pod {
						t.Errorf("the kubelet's token for %s: %q", pod, got)
					}
				}
				if given(t, k, flooder, request("199"), kubelet) == "" || given(t, k, flooder, request("0"), kubelet) != "" {
					t.Error("of the flooder's tokens the newest are kept")
				}
			})
		})
	}
}

// Tokens stored by an older version of the hub do not name a user.
func TestTokensOfAnOlderVersionAreGiven(t *testing.T) {
	var disk tabletest.Store
	k := open(t, &disk, satoken.Options{})
	keep(t, k, account, request("p"), secret)
	key := disk.Keys(tableName)[0]
	value, err := disk.Get(tableName, key)
	if err != nil {
		t.Fatal(err)
	}
	value[0] = 1
	old := slices.Concat(value[:9], value[9+1+len(account.User):])
	if err := disk.Put(store.Pair{Table: tableName, Key: key, Value: old}); err != nil {
		t.Fatal(err)
	}
	k = open(t, &disk, satoken.Options{})
	if got := given(t, k, account, request("p"), kubelet); got != secret {
		t.Errorf("%q", got)
	}
}

// #17: any number of users does not evict the kubelet's tokens, which pods need to start again.
// They have bounds of their own.
func TestManyUsersDoNotEvictTheNodesTokens(t *testing.T) {
	for name, o := range map[string]satoken.Options{"in number": {MaxTokens: 20}, "in bytes": {MaxBytes: 3500}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var disk tabletest.Store
				k := open(t, &disk, o)
				pods := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}
				for _, pod := range pods {
					keep(t, k, account, request(pod), "token of "+pod)
				}
				for i := range 200 {
					time.Sleep(time.Second)
					keep(t, k, satoken.Account{User: fmt.Sprint("user", i), Namespace: "ns", Name: "default"}, request("p"), "flood")
					if i == 100 {
						k = open(t, &disk, o)
					}
				}
				for _, pod := range pods {
					if got := given(t, k, account, request(pod), kubelet); got != "token of "+pod {
						t.Errorf("the kubelet's token for %s: %q", pod, got)
					}
				}
				for i := range 200 {
					time.Sleep(time.Second)
					keep(t, k, account, request(fmt.Sprint(i)), "of the node")
				}
				if n := k.Len(); n > 100 { // of 410
					t.Errorf("%d tokens are kept", n)
				}
			})
		})
	}
}

// #17: the service accounts of a namespace do not evict tokens of another one.
func TestAFloodOfTokensByManyAccountsDoesNotEvictOtherUsers(t *testing.T) {
	of := func(namespace string, i int) satoken.Account {
		user := identity.User{Name: fmt.Sprintf("system:serviceaccount:%s:a%d", namespace, i), UID: "1"}
		return satoken.Account{User: user.Key(), Namespace: namespace, Name: "default"}
	}
	for name, o := range map[string]satoken.Options{"in number": {MaxTokens: 20}, "in bytes": {MaxBytes: 8000}} {
		t.Run(name, func(t *testing.T) {
			k := open(t, &tabletest.Store{}, o)
			victim, pods := of("victims", 1), []string{"a", "b", "c"}
			for _, pod := range pods {
				keep(t, k, victim, request(pod), "token of "+pod)
			}
			for i := range 200 {
				keep(t, k, of("flood", i), request("p"), "flood")
			}
			for _, pod := range pods {
				if got := given(t, k, victim, request(pod), kubelet); got != "token of "+pod {
					t.Errorf("the victim's token for %s: %q", pod, got)
				}
			}
		})
	}
}
