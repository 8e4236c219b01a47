package attack

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/test/chaos/seeds"
	"github.com/edgehub-io/edgehub/test/internal/hubproc"
	"github.com/edgehub-io/edgehub/test/internal/poll"
	"github.com/edgehub-io/edgehub/test/internal/secretscan"
)

const (
	// attacksPerPhase is how many hostile requests are made before the cloud goes away,
	// and as many while it is away.
	attacksPerPhase = 300
	// attackers is how many of them are under way at once.
	attackers = 6
	// phases is how often the cloud goes away.
	phases = 3
)

// invented is in objects that never existed: nobody may read it.
const invented = "marker-of-nobody-0123456789"

// Nobody reads what was not served to the same name and UID, and nobody changes what
// another user reads.
func TestAttack(t *testing.T) {
	seeds.Each(t, "SEEDS", 1, func(t *testing.T, seed int) {
		b := newBattle(t, rand.New(rand.NewPCG(uint64(seed), 0))) //nolint:gosec // a seed
		for phase := range phases {
			b.readHonestly(true)
			b.attack()
			b.cut()
			b.attack()
			b.readHonestly(false)
			if phase%2 == 0 {
				b.hub.Stop()
			} else {
				b.hub.Kill()
			}
			b.hub.Start()
			b.attack()
			b.readHonestly(false)
			b.connect()
		}
		if b.hits == 0 || b.refusals == 0 {
			t.Errorf("hostile requests: %d were answered, %d refused: the test has shown nothing", b.hits, b.refusals)
		}
		t.Logf("hostile requests: %d answered, %d refused", b.hits, b.refusals)
	})
}

// battle is one hub, its honest users and those who attack them.
type battle struct {
	t      *testing.T
	random *rand.Rand
	hub    *hubproc.Hub

	ports   []*client // without a certificate
	node    *client   // with the node's
	foreign []*client // with a certificate that is not the node's

	nodeUser *user // whose Secrets the node reads
	users    []*user
	shared   *user // a namespace that alice reads, and mallory writes to
	mallory  *user
	renewed  *user // an account that was made again under the name of a user

	hostile []credentials
	served  map[string]map[string][]byte // by reader: path and representation → what was served while online

	mu             sync.Mutex
	hits, refusals int
}

func newBattle(t *testing.T, random *rand.Rand) *battle {
	t.Helper()
	b := &battle{t: t, random: random, served: map[string]map[string][]byte{}}
	alice, bob, carol := newUser(t, "alice"), newUser(t, "bob"), newUser(t, "carol")
	b.users, b.mallory = []*user{alice, bob}, newUser(t, "mallory")
	b.nodeUser, b.shared = newSecrets(t, "node"), newSecrets(t, "shared")
	alice.bind(b.shared.namespace, "view-secrets")
	b.mallory.bind(b.shared.namespace, "edit-secrets")

	// Nobody that this test runs as is lent the node's identity.
	b.hub = hubproc.New(t, hubproc.Options{Binary: env.hubBin, Server: env.ServerURL(), Args: []string{"--node-identity-users=4242"}})
	b.hub.IdentifyAs(env.Cluster, "system:masters")
	b.hub.Start()
	b.ports = newPorts(t, b.hub)
	b.node = newPorts(t, b.hub, b.certificate(b.hub.User, "system:nodes"))[2]
	for _, who := range [][]string{{"system:node:another", "system:nodes"}, {b.hub.User, "developers"}, {"admin", "system:masters"}} {
		b.foreign = append(b.foreign, newPorts(t, b.hub, b.certificate(who[0], who[1]))[1:]...)
	}

	// Carol has read her Secrets, is deleted, and another account gets her name: it may
	// read nothing, and is known to the hub.
	b.read(carol, true)
	carol.unbind()
	old := *carol
	carol.recreateAccount()
	b.renewed = carol
	b.must(request{path: "/version", header: bearer(carol.token)}, http.StatusOK)
	b.hostile = append(b.hostile,
		credentials{name: "an account of the same name", header: bearer(carol.token)},
		credentials{name: "the token of an account that was deleted", header: bearer(old.token), is: &old})
	for _, victim := range b.users {
		b.hostile = append(b.hostile, hostile(t, b.mallory, victim)...)
	}
	return b
}

func (b *battle) certificate(name, group string) tls.Certificate {
	b.t.Helper()
	certFile, keyFile, err := env.ClientCert(name, group)
	if err != nil {
		b.t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		b.t.Fatal(err)
	}
	return pair
}

func (b *battle) must(r request, status int) {
	b.t.Helper()
	if a := b.ports[1].try(b.t.Context(), r); a.err != nil || a.status != status {
		b.t.Fatalf("%s: %v", r.path, a)
	}
}

// readHonestly has all users read what is theirs. While the cloud is away, it is what
// they read while it was there.
func (b *battle) readHonestly(online bool) {
	b.t.Helper()
	for _, u := range b.users {
		b.read(u, online)
	}
	if online {
		header := accepting(http.Header{"Content-Type": {asJSON}}, asJSON)
		if a := b.node.try(b.t.Context(), request{method: http.MethodPost, path: tokenPath(b.users[0]), header: header, body: []byte(tokenRequest)}); a.status != http.StatusCreated {
			b.t.Fatalf("the node gets no token for a pod: %v", a)
		}
	}
	for _, path := range readsOf(b.nodeUser) {
		b.readOne("node", b.node, path, http.Header{}, online)
	}
}

// tokenRequest is for a token of a user, as a kubelet asks for it.
const tokenRequest = `{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","spec":{}}`

func tokenPath(u *user) string {
	return "/api/v1/namespaces/" + u.namespace + "/serviceaccounts/" + u.name + "/token"
}

// readsOf are what a user reads.
func readsOf(u *user) []string {
	return []string{u.secrets(), u.secret(0), u.secret(1), u.secrets() + "?labelSelector=a%21%3Db", "/version", "/api", "/apis"}
}

func (b *battle) read(u *user, online bool) {
	b.t.Helper()
	for _, port := range b.ports {
		for _, path := range readsOf(u) {
			b.readOne(u.name, port, path, bearer(u.token), online)
		}
		if u.name == "alice" {
			b.readOne(u.name, port, b.shared.secrets(), bearer(u.token), online)
			b.readOne(u.name, port, b.shared.secret(0), bearer(u.token), online)
		}
	}
}

func (b *battle) readOne(reader string, port *client, path string, header http.Header, online bool) {
	b.t.Helper()
	for _, accept := range []string{asJSON, protobuf} {
		if accept == protobuf && !strings.Contains(path, "secrets") {
			continue // a version has no such form
		}
		a := port.try(b.t.Context(), request{path: path, header: accepting(header, accept)})
		if a.err != nil || a.status != http.StatusOK {
			b.t.Fatalf("%s reads %s as %s on the %s, online: %v: %v", reader, path, accept, port.name, online, a)
		}
		content, key := contentOf(b.t, a.body), path+" as "+accept
		if b.served[reader] == nil {
			b.served[reader] = map[string][]byte{}
		}
		if online {
			b.served[reader][key] = content
		} else if want := b.served[reader][key]; !bytes.Equal(content, want) {
			b.t.Errorf("%s reads %s on the %s while the cloud is away:\n%.500q, and online it was\n%.500q", reader, key, port.name, content, want)
		}
	}
}

// contentOf is what has to stay the same: of a list in JSON its items, since bookmarks
// move its version on.
func contentOf(t *testing.T, body []byte) []byte {
	t.Helper()
	var list struct {
		Kind  string          `json:"kind"`
		Items json.RawMessage `json:"items"`
	}
	if json.Unmarshal(body, &list) == nil && list.Kind == "SecretList" {
		return list.Items
	}
	var secrets corev1.SecretList
	if text, ok := strings.CutPrefix(string(body), "k8s\x00"); ok && strings.Contains(text[:min(40, len(text))], "SecretList") {
		secrets = decodeList(t, body)
		slices.SortFunc(secrets.Items, func(a, b corev1.Secret) int { return strings.Compare(a.Name, b.Name) })
		content, err := json.Marshal(secrets.Items)
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	return body
}

// cut takes the cloud away, and returns when the hub knows.
func (b *battle) cut() {
	b.t.Helper()
	if err := b.hub.Link.Refuse(); err != nil {
		b.t.Fatal(err)
	}
	b.hub.Link.Reset()
	b.awaitCloud(false)
}

func (b *battle) connect() {
	b.t.Helper()
	if err := b.hub.Link.Up(); err != nil {
		b.t.Fatal(err)
	}
	b.awaitCloud(true)
}

// awaitCloud asks for what no cache answers.
func (b *battle) awaitCloud(up bool) {
	b.t.Helper()
	header := accepting(http.Header{"Content-Type": {asJSON}}, asJSON)
	review := request{method: http.MethodPost, path: "/apis/authentication.k8s.io/v1/selfsubjectreviews", header: header, body: []byte(`{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}`)}
	poll.Until(b.t, patience, fmt.Sprintf("the cloud is there: %v", up), func() bool {
		return (b.node.try(b.t.Context(), review).status == http.StatusCreated) == up
	})
}

// attack makes hostile requests, some at a time.
func (b *battle) attack() {
	b.t.Helper()
	var all sync.WaitGroup
	for range attackers {
		random := rand.New(rand.NewPCG(b.random.Uint64(), 0)) //nolint:gosec // a seed
		all.Go(func() {
			for range attacksPerPhase / attackers {
				b.attackOnce(random)
			}
		})
	}
	all.Wait()
}

func (b *battle) attackOnce(random *rand.Rand) {
	ports := b.ports
	c := b.hostile[random.IntN(len(b.hostile))]
	if random.IntN(8) == 0 {
		ports = b.foreign
		c = credentials{name: "a certificate that is not the node's", header: http.Header{}}
	}
	port := ports[random.IntN(len(ports))]
	if c.http1 && strings.Contains(port.name, "HTTP/2") {
		port = ports[0]
	}
	r := b.hostileRequest(random, c)
	a := port.try(b.t.Context(), r)
	b.check(c, port, r, a)
}

// hostileRequest is a request that is to read what is somebody else's, or to change
// what the hub knows of somebody else.
func (b *battle) hostileRequest(random *rand.Rand, c credentials) request {
	targets := append([]*user{b.nodeUser, b.shared, b.renewed, b.mallory}, b.users...)
	target := targets[random.IntN(len(targets))]
	header := accepting(c.header, []string{asJSON, protobuf, "*/*", asJSON + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1," + asJSON}[random.IntN(4)])
	get := func(path string) request { return request{path: path, header: header} }
	write := func(method, path, contentType, body string) request {
		header.Set("Content-Type", contentType)
		return request{method: method, path: path, header: header, body: []byte(body)}
	}
	patch := `{"stringData":{"password":"` + invented + `"},"metadata":{"annotations":{"a":"` + invented + `"}}}`
	dryRun := []string{"dryRun=All", "dr%79Run=All", "x=1&dryRun=All", "dryRun=All&y=%zz", "dryRun=&dryRun=All"}[random.IntN(4)]
	switch random.IntN(15) {
	case 0, 1, 2:
		return get(target.secrets())
	case 3, 4:
		return get(target.secret(random.IntN(secretsPerUser)))
	case 5:
		return get([]string{"/version", "/api", "/apis", "/openapi/v3", fmt.Sprintf("/version?x=%d", random.Int())}[random.IntN(5)])
	case 6:
		return get(target.secrets() + "?timeout=1ns")
	case 7:
		return get(target.secrets() + fmt.Sprintf("?labelSelector=a%%21%%3D%d", random.IntN(1000)))
	case 8:
		return get(target.secrets() + "?resourceVersion=999999999999")
	case 9:
		return write(http.MethodPatch, target.secret(0)+"?"+dryRun, "application/merge-patch+json", patch)
	case 10:
		return write(http.MethodDelete, target.secret(1)+"?dryRun=All", asJSON, `{"kind":"DeleteOptions","apiVersion":"v1"}`)
	case 11:
		return get(target.secrets() + "?watch=true&timeoutSeconds=1&resourceVersion=" + []string{"0", "1", ""}[random.IntN(3)])
	case 12:
		return get(target.secrets() + "?watch=true&timeoutSeconds=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan")
	case 13:
		return write(http.MethodPost, tokenPath(b.users[0]), asJSON, tokenRequest)
	default:
		return get(target.secret(random.IntN(secretsPerUser)) + "?timeoutSeconds=1&access_token=" + b.users[0].token)
	}
}

// check looks for what the sender may not read.
func (b *battle) check(c credentials, port *client, r request, a answer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.status == http.StatusCreated {
		b.t.Errorf("%s on the %s: POST %s is answered with a token", c.name, port.name, r.path)
	}
	if a.status != http.StatusOK {
		b.refusals++
		return
	}
	b.hits++
	text := string(a.body)
	for _, owner := range append([]*user{b.nodeUser, b.renewed}, b.users...) {
		if c.is != nil && c.is.marker == owner.marker {
			continue
		}
		if len(secretscan.Found(text, owner.marker)) > 0 {
			b.t.Errorf("%s on the %s: %s %s answers with a Secret of %s: %.300q", c.name, port.name, method(r), r.path, owner.name, text)
		}
	}
	if method(r) == http.MethodGet && len(secretscan.Found(text, invented)) > 0 {
		b.t.Errorf("%s on the %s: %s answers with an object that never existed: %.300q", c.name, port.name, r.path, text)
	}
}

func method(r request) string {
	if r.method == "" {
		return http.MethodGet
	}
	return r.method
}
