package fuzzcache

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/test/internal/poll"
	"github.com/edgehub-io/edgehub/test/internal/rawclient"
)

// sieges are a mode: attackers send credentials that are missing, forged, foreign, expired, for another audience, of
// an account that was deleted, doubled, or sent twice in different ways, in all forms of a header, on both ports. The
// hub lends the node's identity to nobody: callers without credentials stand for any user of the machine.
var sieges = mode{ //nolint:gochecknoglobals // never changed
	pause:    time.Second,
	first:    []fault{(*world).siege},
	faults:   []weighted{{3, (*world).siege}, {1, (*world).cut}, {1, (*world).rotateOne}},
	args:     []string{"--node-identity-users=4242"},
	attacked: true,
	least:    map[string]float64{"sieges": 1, "attacks that were answered": 50, "attacks that were refused": 200, "lists, offline": 20, "watch events": 300},
}

// TestNobodyReadsOrTakesAwayWhatIsAnothers has attackers at work for SECONDS. They read nothing that they may not
// read, and what the users see is right, and still there: online, without the cloud, and after the hub has ended.
func TestNobodyReadsOrTakesAwayWhatIsAnothers(t *testing.T) {
	s := newSession(t, &sieges)
	s.playFor(s.length, 1)
	s.playOn(2)
	s.end(false)
}

// invented is in objects that never existed, as dry runs have them: nobody may read it.
const invented = "of-nobody-0123456789"

// siege takes the cloud away, and ends the hub. What users have read just before has to be answered all the time.
func (w *world) siege(ctx context.Context, r *rand.Rand) {
	w.note("a siege")
	read := w.readThrough(nil)
	w.awaitDisk(r)
	mend := w.cutOff(false)
	defer mend()
	pause(ctx, time.Second+time.Duration(r.IntN(2000))*time.Millisecond)
	w.readThrough(read)
	w.whileDown(r.IntN(2) == 0, func() {})
	pause(ctx, time.Second)
	w.readThrough(read)
	w.did("sieges")
}

// reading is what one client has asked for.
type reading struct {
	c            *client
	path, accept string
}

// readThrough has all users but the one who loses her access read again what they have read; nil: all that they do.
// It returns what was answered, which has to be everything that they have read.
func (w *world) readThrough(read []reading) (answered []reading) {
	again := read != nil
	for _, u := range w.users {
		if again || u.revocable {
			continue
		}
		c := u.newClient("through", u.name != "node")
		for _, q := range u.queries {
			read = append(read, reading{c, q.path(), asJSON}, reading{c, q.path(), asProtobuf + "," + asJSON})
		}
		for _, path := range []string{"/version", "/api", "/apis"} {
			read = append(read, reading{c, path, asJSON})
		}
	}
	for _, one := range read {
		a := one.c.do(w.t.Context(), http.MethodGet, one.path, one.accept, "", nil)
		if a.code == http.StatusOK {
			answered = append(answered, one)
		} else if again {
			w.report("what was read is not answered any more", "%s: %s as %s: %v", one.c.name, one.path, one.accept, a)
		}
	}
	if len(answered) == 0 {
		w.report("too little was done", "nothing that was read in a siege was answered")
	}
	return answered
}

// attackers is how many requests of theirs are under way at once.
const attackers = 3

// port is a way to reach the hub's proxy.
type port struct {
	*client
	name  string
	http1 bool
}

// ports are all ways, for somebody who presents certificates.
func (w *world) ports(certificates ...tls.Certificate) []port {
	nobody := &user{w: w, name: "nobody"}
	all := []port{{&client{user: nobody, base: w.hub.Plain, http: rawclient.New(nil, false)}, "plain port", true}}
	for _, http1 := range []bool{true, false} {
		base, c := w.secure(!http1, certificates...)
		all = append(all, port{&client{user: nobody, base: base, http: c}, fmt.Sprintf("TLS port, HTTP/1.1: %t", http1), http1})
	}
	return all
}

func (w *world) certificate(name, group string) *tls.Certificate {
	w.t.Helper()
	certFile, keyFile, err := env.ClientCert(name, group)
	w.must(err)
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	w.must(err)
	return &pair
}

// attack is what attackers have.
type attack struct {
	w              *world
	ports, foreign []port // without a certificate, and with one that is not the node's
	hostile        []credentials
	victim         *account
}

// startAttackers has attackers send hostile requests until ctx ends.
func (w *world) startAttackers(ctx context.Context, all *sync.WaitGroup) {
	a := &attack{w: w, ports: w.ports()}
	for _, who := range [][]string{{"system:node:another", "system:nodes"}, {w.hub.User, "developers"}, {"admin", "system:masters"}} {
		a.foreign = append(a.foreign, w.ports(*w.certificate(who[0], who[1]))[1:]...)
	}
	mallory := newAccount(w.t, foreign, "mallory", second)
	w.bind(mallory, second)
	for _, u := range w.users {
		if u.token.Load() == nil || u.revocable {
			continue
		}
		// What is forged resembles the token that the user reads with: of another one the hub forgets whose it is as soon as
		// an apiserver refuses it.
		a.victim = newAccount(w.t, first, u.name)
		a.victim.token = *u.token.Load()
		a.hostile = append(a.hostile, hostile(w.t, mallory, a.victim)...)
	}
	a.hostile = append(a.hostile, w.renewed(a.ports[1].client)...)
	for i := range uint64(attackers) {
		r := w.random(4000 + i)
		all.Go(func() {
			for ctx.Err() == nil {
				a.once(ctx, r)
				pause(ctx, time.Duration(r.IntN(20))*time.Millisecond)
			}
		})
	}
}

// bind lets an account read and write in a namespace.
func (w *world) bind(a *account, namespace string) {
	w.t.Helper()
	_, err := env.admins[0].RbacV1().RoleBindings(namespace).Create(w.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: a.name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: a.name, Namespace: a.namespace}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "fuzz"},
	}, metav1.CreateOptions{})
	w.made(err)
}

// await reads with a token until the answer has a code.
func (c *client) await(what, token, path string, code int) {
	c.w.t.Helper()
	poll.Eventually(c.w.t, what, func() bool {
		for range 6 { // the hub asks one apiserver after the other
			if c.with(bearer(token)).do(c.w.t.Context(), http.MethodGet, path, asJSON, "", nil).code != code {
				return false
			}
		}
		return true
	})
}

// renewed are the credentials of an account that has read, was deleted, and whose name another one has got. That may
// read nothing, and is known to the hub.
func (w *world) renewed(through *client) []credentials {
	w.t.Helper()
	old := newAccount(w.t, foreign, "eve", first)
	w.bind(old, first)
	through.await("eve reads", old.token, configMaps.path(first), http.StatusOK)
	w.must(env.admins[0].RbacV1().RoleBindings(first).Delete(w.t.Context(), old.name, metav1.DeleteOptions{}))
	through.await("eve may read no more", old.token, configMaps.path(first), http.StatusForbidden)
	w.must(env.admins[0].CoreV1().ServiceAccounts(foreign).Delete(w.t.Context(), old.name, metav1.DeleteOptions{}))
	other := newAccount(w.t, foreign, old.name)
	through.await("the other eve is known", other.token, "/version", http.StatusOK)
	return []credentials{
		{name: "an account of the same name", header: bearer(other.token)},
		{name: "the token of an account that was deleted", header: bearer(old.token), is: old},
	}
}

// once makes one hostile request, and looks for what the sender may not read.
func (a *attack) once(ctx context.Context, r *rand.Rand) {
	c, ports := a.hostile[r.IntN(len(a.hostile))], a.ports
	if r.IntN(8) == 0 {
		c, ports = credentials{name: "a certificate that is not the node's"}, a.foreign
	}
	p := ports[r.IntN(len(ports))]
	if c.http1 && !p.http1 {
		p = ports[0]
	}
	method, path, contentType, body := a.request(r)
	accept := []string{asJSON, asProtobuf, "*/*", asJSON + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1," + asJSON}[r.IntN(4)]
	got := p.with(c.header).do(ctx, method, path, accept, contentType, []byte(body))
	what := fmt.Sprintf("%s on the %s: %s %s: %v", c.name, p.name, method, path, got)
	if got.code == http.StatusCreated {
		a.w.report("a token for an attacker", "%s", what)
	}
	mayRead := func(namespace string) bool { return c.is != nil && slices.Contains(c.is.reads, namespace) }
	switch got.code {
	case 0: // there is no answer
		return
	case http.StatusSwitchingProtocols:
		if !slices.ContainsFunc([]string{first, second}, func(n string) bool { return mayRead(n) && strings.Contains(path, "/"+n+"/") }) {
			a.w.report("a stream for an attacker", "%s", what)
		}
	case http.StatusOK:
	default:
		a.w.did("attacks that were refused")
		return
	}
	a.w.did("attacks that were answered")
	for _, namespace := range []string{first, second} {
		if !mayRead(namespace) && bytes.Contains(got.body, []byte(namespace)) {
			a.w.report("an answer with what the sender may not read", "%s", what)
		}
	}
	if method == http.MethodGet && bytes.Contains(got.body, []byte(invented)) {
		a.w.report("an object that never existed", "%s", what)
	}
}

// request is one that is to read what is somebody else's, or to change what the hub knows of somebody else.
func (a *attack) request(r *rand.Rand) (method, path, contentType, body string) {
	res, namespace := resources[r.IntN(len(resources))], []string{first, second}[r.IntN(2)]
	list := res.path(namespace)
	one := list + "/" + nameOf(res, r.IntN(objects))
	switch r.IntN(13) {
	case 0:
		return http.MethodPatch, one + "?" + []string{"dryRun=All", "dr%79Run=All", "x=1&dryRun=All", "dryRun=All&y=%zz"}[r.IntN(4)],
			"application/merge-patch+json", `{"metadata":{"annotations":{"` + mark + `":"` + invented + `"}}}`
	case 1:
		return http.MethodDelete, one + "?dryRun=All", asJSON, `{"kind":"DeleteOptions","apiVersion":"v1"}`
	case 2:
		return http.MethodPost, tokenPath(a.victim.name), asJSON, tokenRequest
	case 3:
		path = []string{"/version", "/api", "/apis", "/openapi/v3", fmt.Sprintf("/version?x=%d", r.Int())}[r.IntN(5)]
	case 4:
		path = one
	case 5:
		path = one + "?timeoutSeconds=1&access_token=" + a.victim.token
	case 6:
		path = list + "?timeout=1ns"
	case 7:
		path = list + fmt.Sprintf("?labelSelector=a%%21%%3D%d", r.IntN(1000))
	case 8:
		path = list + "?resourceVersion=999999999999"
	case 9:
		path = list + "?watch=true&timeoutSeconds=1&resourceVersion=" + []string{"0", "1", ""}[r.IntN(3)]
	case 10:
		path = list + "?watch=true&timeoutSeconds=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
	default:
		path = list
	}
	return http.MethodGet, path, "", ""
}
