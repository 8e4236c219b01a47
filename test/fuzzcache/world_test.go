package fuzzcache

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/test/internal/hubproc"
	"github.com/edgehub-io/edgehub/test/internal/poll"
	"github.com/edgehub-io/edgehub/test/internal/rawclient"
	"github.com/edgehub-io/edgehub/test/internal/smalldisk"
)

// world is one hub before two apiservers, and its users.
type world struct {
	t        *testing.T
	seed     uint64
	hub      *hubproc.Hub
	history  *history
	findings findings
	log      log
	statuses statuses
	mode     *mode
	command  []string // the hub's
	copies   string   // folder of copied files
	copied   bool     // a copy of the hub's store is there
	spoiled  bool     // there may be damage in the hub's store that the hub has not met
	disk     disk
	writes   atomic.Int64

	users    []*user
	direct   []*client        // straight to the apiservers
	identity *tls.Certificate // the node's, where its programs have to present one; else all on the machine are the node
	carol    *user            // who loses her access now and then
	etcdURL  string
	etcd     *http.Client
}

func newWorld(t *testing.T, seed uint64, m *mode) *world {
	t.Helper()
	w := &world{t: t, seed: seed, mode: m, copies: t.TempDir()}
	w.findings = findings{began: time.Now(), count: map[string]int{}, first: map[string][]string{}, total: map[string]int{}}
	var err error
	w.etcdURL, w.etcd, err = env.EtcdClient()
	w.must(err)
	w.history, err = watchEtcd(t.Context())
	w.must(err)
	root := ""
	if m.disk > 0 {
		root = smalldisk.Try(t, m.disk)
		w.disk.own = root != ""
	}
	servers := env.ServerURLs()
	w.hub = hubproc.New(t, hubproc.Options{
		Binary: env.hubBin, Server: servers[0], Others: servers[1:], Root: root,
		Args: append([]string{"--log-level=info", "--container-runtime-endpoint="}, m.args...),
	})
	w.hub.IdentifyAs(env.Cluster, "system:masters") // it may read all that a test makes
	if m.attacked {
		w.identity = w.certificate(w.hub.User, "system:nodes")
	}
	w.prepare()
	w.start()
	w.makeUsers()
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// made is must for what another world has made, too: they share a control plane.
func (w *world) made(err error) {
	w.t.Helper()
	if !apierrors.IsAlreadyExists(err) {
		w.must(err)
	}
}

func (w *world) weatherOf(from, to time.Time) weather { return w.log.of(from, to) }
func (w *world) hubDown(from, to time.Time) bool      { return w.log.hubDown(from, to) }

// prepare makes what there has to be before anything is read.
func (w *world) prepare() {
	ctx, admin := w.t.Context(), env.admins[0]
	_, err := admin.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.hub.Name}}, metav1.CreateOptions{})
	w.made(err)
	for _, namespace := range []string{first, second, foreign} {
		_, err := admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
		w.made(err)
		poll.Eventually(w.t, "the default service account", func() bool {
			_, err := admin.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
			return err == nil
		})
	}
	_, err = admin.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "fuzz"},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"", group}, Resources: []string{"configmaps", "secrets", "pods", "pods/status", "widgets"},
			Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"},
		}},
	}, metav1.CreateOptions{})
	w.made(err)
	w.makeKind()
}

// definition is the kind of Widgets, which have a colour by default.
func definition(colour string) string {
	return fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.%[1]s"},
"spec":{"group":"%[1]s","scope":"Namespaced","names":{"plural":"widgets","singular":"widget","kind":"Widget","listKind":"WidgetList"},
"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object",
"properties":{"value":{"type":"string"},"colour":{"type":"string"%[2]s}}}}}}}]}}`, group, colour)
}

// colours returns the defaults, one after the other. They take different numbers of bytes.
func colours() []string {
	return []string{"red", "ultramarine", "a colour that takes some more bytes than others"}
}

const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

func (w *world) makeKind() {
	raw := env.admins[0].Discovery().RESTClient()
	w.made(raw.Post().AbsPath(definitions).SetHeader("Content-Type", asJSON).Body([]byte(definition(""))).Do(w.t.Context()).Error())
	for _, admin := range env.admins {
		poll.Eventually(w.t, "widgets are served", func() bool {
			return admin.Discovery().RESTClient().Get().AbsPath(widgets.path("")).Do(w.t.Context()).Error() == nil
		})
	}
	for _, namespace := range []string{first, second} {
		for i := range still {
			widget := fmt.Appendf(nil, `{"apiVersion":"%s/v1","kind":"Widget","metadata":{"name":%q},"spec":{"value":"still"}}`, group, nameOf(widgets, objects+i))
			w.made(raw.Post().AbsPath(widgets.path(namespace)).SetHeader("Content-Type", asJSON).Body(widget).Do(w.t.Context()).Error())
		}
	}
}

// changeDefault gives Widgets another colour by default: objects read otherwise from now
// on, at the version that they had.
func (w *world) changeDefault(ctx context.Context, _ *rand.Rand) {
	colour := colours()[w.done("changes of a default")%len(colours())]
	w.note("widgets are %q by default", colour)
	defer w.log.during(&w.log.defined, "another default")()
	patch := fmt.Sprintf(`[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/colour/default","value":%q}]`, colour)
	err := env.admins[0].Discovery().RESTClient().Patch("application/json-patch+json").AbsPath(definitions + "/widgets." + group).Body([]byte(patch)).Do(ctx).Error()
	if err != nil && ctx.Err() == nil {
		w.report("the default could not be changed", "%v", err)
	}
	w.did("changes of a default")
}

// makeUsers makes the node, service accounts, and the clients that come from elsewhere.
func (w *world) makeUsers() {
	direct := &user{w: w, name: "direct", namespaces: []string{""}, sight: newSight()}
	for _, server := range env.ServerURLs() {
		config, err := rest.TLSConfigFor(env.AdminConfig())
		w.must(err)
		w.direct = append(w.direct, &client{user: direct, name: "direct", base: server, http: rawclient.New(config, true)})
	}
	node := &user{w: w, name: "node", namespaces: []string{""}, sight: newSight()}
	node.queries = queriesIn(w.hub.Name, "", first)
	w.users = append(w.users, node)
	for _, one := range []struct {
		name       string
		namespaces []string
	}{{"alice", []string{first}}, {"bob", []string{second}}, {"dave", []string{""}}, {"carol", []string{first}}} {
		u := &user{w: w, name: one.name, namespaces: one.namespaces, sight: newSight()}
		u.queries = queriesIn(w.hub.Name, one.namespaces...)
		_, err := env.admins[0].CoreV1().ServiceAccounts(first).Create(w.t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: u.name}}, metav1.CreateOptions{})
		w.made(err)
		w.made(w.allow(w.t.Context(), u))
		w.must(w.rotate(w.t.Context(), u, false))
		w.users = append(w.users, u)
	}
	w.carol = w.users[len(w.users)-1]
	w.carol.revocable = true
	for _, u := range w.users { // access is known to all apiservers before anybody complains
		poll.Eventually(w.t, "access of "+u.name, func() bool {
			for _, q := range u.queries[:1] {
				for range 6 { // the hub asks one after the other
					if u.newClient("probe", u.name != "node").do(w.t.Context(), http.MethodGet, q.path(), asJSON, "", nil).code != http.StatusOK {
						return false
					}
				}
			}
			return true
		})
	}
}

func (w *world) allow(ctx context.Context, u *user) error {
	subject := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: u.name, Namespace: first}}
	role := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "fuzz"}
	about := metav1.ObjectMeta{Name: u.name}
	if namespace := u.namespaces[0]; namespace != "" {
		_, err := env.admins[0].RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: about, Subjects: subject, RoleRef: role}, metav1.CreateOptions{})
		return err
	}
	_, err := env.admins[0].RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: about, Subjects: subject, RoleRef: role}, metav1.CreateOptions{})
	return err
}

func (w *world) forbid(ctx context.Context, u *user) error {
	return env.admins[0].RbacV1().RoleBindings(u.namespaces[0]).Delete(ctx, u.name, metav1.DeleteOptions{})
}

// rotate gives a user another token: issued through the hub, as to a kubelet, or straight
// by an apiserver.
func (w *world) rotate(ctx context.Context, u *user, throughHub bool) error {
	c := w.direct[0]
	if throughHub {
		c = w.users[0].newClient("kubelet", false)
		defer c.http.CloseIdleConnections()
	}
	var issued authenticationv1.TokenRequest
	a := c.do(ctx, http.MethodPost, tokenPath(u.name), asJSON, asJSON, []byte(tokenRequest))
	if a.code != http.StatusCreated {
		return errors.New(a.String())
	}
	if err := json.Unmarshal(a.body, &issued); err != nil {
		return err
	}
	u.token.Store(&issued.Status.Token)
	return nil
}

// tokenRequest is for a token, as a kubelet asks for it.
const tokenRequest = `{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","spec":{}}`

func tokenPath(user string) string {
	return "/api/v1/namespaces/" + first + "/serviceaccounts/" + user + "/token"
}

// revision is etcd's now.
func (w *world) revision(ctx context.Context) (int64, error) {
	answer, err := w.askEtcd(ctx, map[string]any{"key": []byte{0}})
	if err != nil {
		return 0, err
	}
	return parse(answer.Header.Revision)
}

// etcdRange is what etcd's gateway answers a range with.
type etcdRange struct {
	Header struct{ Revision string }
	KVs    []etcdValue `json:"kvs"`
}

func (w *world) askEtcd(ctx context.Context, question map[string]any) (answer etcdRange, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	body, err := json.Marshal(question)
	if err != nil {
		return answer, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.etcdURL+"/v3/kv/range", bytes.NewReader(body))
	if err != nil {
		return answer, err
	}
	res, err := w.etcd.Do(req)
	if err != nil {
		return answer, err
	}
	defer res.Body.Close()
	err = json.NewDecoder(res.Body).Decode(&answer)
	return answer, err
}

func parse(rev string) (int64, error) { return strconv.ParseInt(rev, 10, 64) }

// random is a source for one goroutine.
func (w *world) random(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(w.seed, stream)) }
