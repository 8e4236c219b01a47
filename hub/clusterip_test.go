package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/hub/config"
)

const known, unknown = true, false

// trusting is what a clusterIP knows of containers and pods, and what it decides.
type trusting struct {
	*clusterIP
	containers, pods []string
	err, podsErr     error
	asked            int // for pods
	decisions        []bool
	logs             bytes.Buffer
}

func newTrusting() *trusting {
	c := &trusting{}
	c.clusterIP = &clusterIP{
		suspects: func(context.Context) ([]string, error) { return c.containers, c.err },
		distrusting: func() ([]string, error) {
			c.asked++
			return c.pods, c.podsErr
		},
		lead: func(toHub bool) { c.decisions = append(c.decisions, toHub) },
		log:  slog.New(slog.NewTextHandler(&c.logs, nil)),
	}
	return c
}

// is looks once, and checks whether that can be found out, and what it decides.
func (c *trusting) is(t *testing.T, known, inForce bool, decisions ...bool) {
	t.Helper()
	c.decisions = nil
	if err := c.look(t.Context()); (err == nil) != known {
		t.Errorf("the error is %v", err)
	}
	if got := c.state().InForce; got != inForce {
		t.Errorf("in force is %t, want %t", got, inForce)
	}
	if !slices.Equal(c.decisions, decisions) {
		t.Errorf("decided was %v, want %v", c.decisions, decisions)
	}
}

func TestTheClusterIPLeadsToTheHubOnceAllPodsTrustIt(t *testing.T) {
	c := newTrusting()
	c.containers, c.pods = []string{"c1", "c2"}, []string{"shop/web", "shop/db"}
	c.is(t, known, false, false)
	if !strings.Contains(c.logs.String(), `pods="[shop/web shop/db]"`) {
		t.Errorf("the log is %s", &c.logs)
	}
	c.is(t, known, false)
	if c.asked != 1 {
		t.Errorf("pods were read %d times, though no other container runs", c.asked)
	}
	c.containers, c.pods = []string{"c2"}, []string{"shop/db"}
	c.is(t, known, false, false)
	c.containers, c.pods = []string{"c3"}, nil // a static pod's
	c.is(t, known, true, true)
	c.containers = nil
	c.is(t, known, true, true)
	if c.asked != 3 {
		t.Errorf("pods were read %d times, and once without a reason", c.asked)
	}
	c.containers, c.pods = []string{"c4"}, []string{"shop/new"}
	c.is(t, known, false, false)
}

func TestTheClusterIPStaysWhereItLeadsWhileThatIsNotKnown(t *testing.T) {
	c := newTrusting()
	c.err = errors.New("containerd is away")
	c.is(t, unknown, false)
	c.err = nil
	c.is(t, known, true, true)
	c.err = errors.New("containerd is away")
	c.is(t, unknown, true)
	c.err, c.containers, c.pods, c.podsErr = nil, []string{"c1"}, []string{"shop/web"}, errors.New("no list")
	c.is(t, unknown, true)
	c.podsErr = nil
	c.is(t, known, false, false)
}

// kube-proxy reads the slice as the hub decides, and as the apiserver sent it when the flag is gone.
func TestKubeProxyReadsWhereTheClusterIPLeads(t *testing.T) {
	port := int32(6443)
	slice := discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: "kubernetes", UID: "u1", ResourceVersion: "50", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}}, Ports: []discoveryv1.EndpointPort{{Port: &port}},
	}
	n := newNode(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/endpointslices") {
			serveServices(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(discoveryv1.EndpointSliceList{
			TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSliceList"},
			ListMeta: metav1.ListMeta{ResourceVersion: "60"}, Items: []discoveryv1.EndpointSlice{slice},
		})
	})
	n.config.PodAddresses = podAddress
	n.config.RuntimeEndpoint = "unix://" + n.path("containerd.sock")
	read := func(account string) string {
		var got discoveryv1.EndpointSliceList
		readObject(t, http.DefaultClient, "http://"+n.config.ProxyAddress+"/apis/discovery.k8s.io/v1/endpointslices", accountToken(account), &got)
		return fmt.Sprintf("%s:%d", got.Items[0].Endpoints[0].Addresses[0], *got.Items[0].Ports[0].Port)
	}
	const cloud = "192.0.2.1:6443"
	hub := n.config.PodServers()[0]
	for _, transforms := range [][]string{n.config.Transforms, {"apiserver-service", "root-ca"}} {
		n.config.ClusterIP, n.config.Transforms = config.ClusterIPAlways, transforms
		h, err := n.hub()
		if err != nil {
			t.Fatal(err)
		}
		h.clusterIP.suspects = func(context.Context) ([]string, error) { return nil, nil }
		stop := n.run(t, h)
		for account, want := range map[string]string{"kube-system:kube-proxy": hub, "kube-system:coredns": cloud, "shop:kube-proxy": cloud} {
			if got := read(account); got != want {
				t.Errorf("with the transforms %q, %s reads %s, want %s", transforms, account, got, want)
			}
		}
		if state := n.debugCache(t); !strings.Contains(state, `"inForce": true`) || !strings.Contains(state, `"cluster-ip"`) {
			t.Errorf("GET /debug/cache: %s", state)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		n.config.ClusterIP = config.ClusterIPOffline
		_, stop = n.start(t)
		if got := read("kube-system:kube-proxy"); got != cloud {
			t.Errorf("without the flag it reads %s", got)
		}
		if state := n.debugCache(t); strings.Contains(state, "inForce") {
			t.Errorf("without the flag, GET /debug/cache: %s", state)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
}
