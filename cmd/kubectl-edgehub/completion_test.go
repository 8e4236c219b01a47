package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/ota/api"
)

// useCluster sets KUBECONFIG to a cluster with DaemonSets of each strategy.
func useCluster(t *testing.T) {
	t.Helper()
	mux := http.NewServeMux()
	answer := func(path string, list any) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(list)
		})
	}
	answer("/apis/apps/v1/namespaces/default/daemonsets", appsv1.DaemonSetList{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSetList"},
		Items:    []appsv1.DaemonSet{managed("log", "OTA"), managed("plain", ""), managed("typo", "Adv"), managed("web", "AdvancedRollingUpdate")},
	})
	db := appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db", Annotations: map[string]string{api.StrategyAnnotation: "OTA", api.OfflineUpgradeAnnotation: "InPlace"}}}
	db.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
	answer("/apis/apps/v1/namespaces/default/statefulsets", appsv1.StatefulSetList{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSetList"},
		Items:    []appsv1.StatefulSet{db, {ObjectMeta: metav1.ObjectMeta{Name: "plain"}}},
	})
	answer("/apis/apps/v1/namespaces/shop/daemonsets", appsv1.DaemonSetList{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSetList"}, Items: []appsv1.DaemonSet{managed("till", "AdvancedRollingUpdate")},
	})
	answer("/api/v1/namespaces", corev1.NamespaceList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NamespaceList"},
		Items:    []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, {ObjectMeta: metav1.ObjectMeta{Name: "shop"}}},
	})
	away := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge2"}}
	away.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}}
	answer("/api/v1/nodes", corev1.NodeList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"},
		Items:    []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "edge1"}}, away},
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "config")
	config := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: edge, cluster: {server: %q}}]
users: [{name: admin, user: {}}]
contexts: [{name: prod, context: {cluster: edge, user: admin}}, {name: prod-shop, context: {cluster: edge, user: admin, namespace: shop}}]
current-context: prod
`, server.URL)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", file)
}

func managed(name, strategy string) appsv1.DaemonSet {
	ds := appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
	ds.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
	if strategy != "" {
		ds.Annotations = map[string]string{api.StrategyAnnotation: strategy}
	}
	return ds
}

// What shells do with this is tested in cmd/internal/cli, and how kubectl completes kubectl edgehub where
// there is a kubectl: in test/integration/plugin.
func TestCompletion(t *testing.T) {
	useCluster(t)
	tests := map[string]struct{ words, want string }{
		"nothing yet":                         {"", "status pause resume nodes bundle release completion help"},
		"the beginning of a command":          {"pa", "pause"},
		"a DaemonSet":                         {"status ", "ds/log ds/typo ds/web sts/db"},
		"the beginning of a DaemonSet":        {"status ds/w", "ds/web"},
		"a StatefulSet":                       {"status sts/", "sts/db"},
		"a StatefulSet in two words":          {"status statefulset ", "db"},
		"a StatefulSet cannot be paused":      {"pause sts/", ""},
		"a DaemonSet by another kind":         {"status daemonset.apps/w", "daemonset.apps/web"},
		"a DaemonSet that can be paused":      {"pause ", "ds/web"},
		"a DaemonSet in two words":            {"resume ds ", "web"},
		"another kind":                        {"status deploy/", ""},
		"another kind in two words":           {"status deploy ", ""},
		"a second DaemonSet":                  {"status ds web ", ""},
		"a DaemonSet of a namespace":          {"-n shop status ", "ds/till"},
		"a DaemonSet of a namespace behind =": {"status --namespace=shop ", "ds/till"},
		"a DaemonSet of a context":            {"status --context prod-shop ", "ds/till"},
		"a namespace":                         {"status -n ", "default shop"},
		"a namespace behind =":                {"status --namespace=s", "--namespace=shop"},
		"a context behind =":                  {"status --context=prod-", "--context=prod-shop"},
		"a cluster":                           {"--cluster ", "edge"},
		"a user":                              {"--user ", "admin"},
		"a form of output behind =":           {"status -o=", "-o=json"},
		"a file":                              {"--kubeconfig completion_t", "completion_test.go"},
		"a duration":                          {"status --timeout ", ""},
		"flags of status":                     {"status --r", "--ready-only --request-timeout"},
		"flags of another command":            {"pause --r", "--request-timeout"},
		"a node":                              {"nodes ", "edge1 edge2"},
		"a second node":                       {"nodes edge1 ", ""},
		"a node that can be released":         {"release ", "edge2"},
		"a workload that can be upgraded":     {"bundle ", "sts/db"},
		"a file to write":                     {"bundle -o completion_t", "completion_test.go"},
		"a file to write behind =":            {"bundle --output=completion_t", "--output=completion_test.go"},
		"a key":                               {"bundle --key completion_t", "completion_test.go"},
		"a platform":                          {"bundle --platform linux/arm6", "linux/arm64"},
		"flags of bundle":                     {"bundle --p", "--password --platform --proxy-url"},
		"flags of nodes":                      {"nodes --o", "--output"},
		"flags before the command":            {"--w", "--watch"},
		"a kubeconfig that is not there":      {"--kubeconfig /nowhere status ", ""},
		"a context without a kubeconfig":      {"--kubeconfig /nowhere --context ", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			run(t.Context(), "kubectl-edgehub", append([]string{cli.Verb}, strings.Split(tt.words, " ")...), &out, &out)
			if got := strings.Join(strings.Fields(out.String()), " "); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	var out bytes.Buffer
	if run(t.Context(), kubectlCompleter, []string{"status", "ds/w"}, &out, &out); out.String() != "ds/web\n:4\n" {
		t.Errorf("to kubectl: got %q", out.String())
	}
}
