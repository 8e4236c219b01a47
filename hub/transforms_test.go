package hub

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// serveServices answers lists with one Service that stays on its node, and its slice. It knows
// no watches.
func serveServices(w http.ResponseWriter, r *http.Request) {
	meta := metav1.ObjectMeta{Namespace: "a", Name: "s", UID: "u", ResourceVersion: "5"}
	list := metav1.ListMeta{ResourceVersion: "9"}
	var o any
	switch {
	case r.URL.Query().Get("watch") != "":
		http.Error(w, "no watches", http.StatusBadRequest)
		return
	case r.URL.Path == "/api/v1/services":
		meta.Annotations = map[string]string{"openyurt.io/topologyKeys": "kubernetes.io/hostname"}
		o = corev1.ServiceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceList"}, ListMeta: list, Items: []corev1.Service{{ObjectMeta: meta}}}
	case r.URL.Path == "/api/v1/nodes":
		meta.Name, meta.Namespace = "n1", ""
		o = metav1.PartialObjectMetadataList{
			TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}, ListMeta: list, Items: []metav1.PartialObjectMetadata{{ObjectMeta: meta}},
		}
	case strings.HasSuffix(r.URL.Path, "/endpointslices"):
		meta.Labels = map[string]string{discoveryv1.LabelServiceName: "s"}
		o = discoveryv1.EndpointSliceList{
			TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSliceList"}, ListMeta: list,
			Items: []discoveryv1.EndpointSlice{{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{
				{Addresses: []string{"10.0.0.1"}, NodeName: new("n1")}, {Addresses: []string{"10.0.0.2"}, NodeName: new("n2")},
			}}},
		}
	default:
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(o)
}

func accountToken(account string) string {
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{}`)) + "." + encode([]byte(`{"sub":"system:serviceaccount:`+account+`"}`)) + "." + encode([]byte("s"))
}

// endpointsRead returns how many endpoints an account reads.
func (n *node) endpointsRead(t *testing.T, account string) int {
	t.Helper()
	var list discoveryv1.EndpointSliceList
	readObject(t, http.DefaultClient, "http://"+n.config.ProxyAddress+"/apis/discovery.k8s.io/v1/endpointslices", accountToken(account), &list)
	return len(list.Items[0].Endpoints)
}

func TestServicesAreFilteredForAccountsThatCarryTheirTraffic(t *testing.T) {
	n := newNode(t, serveServices)
	n.config.ServiceTopologyAccounts = append(n.config.ServiceTopologyAccounts, "ingress/nginx")
	n.start(t)
	if strings.Contains(n.debugCache(t), `"serviceFilters"`) {
		t.Error("Services are read before it is wanted")
	}
	for account, want := range map[string]int{"kube-system:kube-proxy": 1, "kube-system:coredns": 1, "ingress:nginx": 1, "kube-system:other": 2, "a:kube-proxy": 2} {
		if got := n.endpointsRead(t, account); got != want {
			t.Errorf("%s reads %d endpoints", account, got)
		}
	}
	state := strings.Join(strings.Fields(n.debugCache(t)), "")
	if !strings.Contains(state, `"transforms":["service-topology","discard-service","nodeport-isolation"]`) || !strings.Contains(state, `"annotatedServices":1`) {
		t.Errorf("GET /debug/cache: %s", state)
	}
}

func TestAFilterOfServicesCanBeTurnedOff(t *testing.T) {
	n := newNode(t, serveServices)
	n.config.Transforms = []string{"discard-service"}
	n.start(t)
	if got := n.endpointsRead(t, "kube-system:kube-proxy"); got != 2 {
		t.Errorf("%d endpoints", got)
	}
}
