package deploy

import (
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	chartutil "helm.sh/helm/v4/pkg/chart/common/util"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"
)

var chartFolder = filepath.Join(moduleRoot, "deploy", "helm", "edgehub-controller")

// loadChart reads the chart once: each time, Helm logs every link in it.
var loadChart = sync.OnceValues(func() (*chartv2.Chart, error) { return loader.Load(chartFolder) })

// render is helm template with these values, in YAML.
func render(t *testing.T, values string) (map[string]string, error) {
	t.Helper()
	chart, err := loadChart()
	if err != nil {
		t.Fatal(err)
	}
	given := map[string]any{}
	if err := sigsyaml.Unmarshal([]byte(values), &given); err != nil {
		t.Fatal(err)
	}
	all, err := chartutil.ToRenderValues(chart, given, common.ReleaseOptions{Name: account, Namespace: systemNamespace, IsInstall: true}, nil)
	if err != nil {
		return nil, err
	}
	return engine.Render(chart, all)
}

// manifests are the objects that a chart with these values makes.
func manifests(t *testing.T, values string) string {
	t.Helper()
	files, err := render(t, values)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, ".yaml") {
			out.WriteString("---\n" + files[name] + "\n")
		}
	}
	return out.String()
}

// objects reads manifests, by kind and name. What only a chart has is left out.
func objects(t *testing.T, manifests string) map[string]map[string]any {
	t.Helper()
	out := map[string]map[string]any{}
	for decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifests), 4096); ; {
		var o unstructured.Unstructured
		err := decoder.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("read manifests: %v", err)
		}
		if len(o.Object) == 0 {
			continue
		}
		labels := o.GetLabels()
		for _, key := range []string{"helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/instance"} {
			delete(labels, key)
		}
		o.SetLabels(labels)
		key := o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
		if out[key] != nil {
			t.Errorf("there are two of %s", key)
		}
		out[key] = o.Object
	}
}

// Whoever takes the chart gets what others get, field by field. But for the
// namespace, which Helm makes by itself.
func TestTheChartIsWhatTheFoldersAre(t *testing.T) {
	for values, folders := range map[string][]string{
		"{}":          {""},
		"replicas: 1": {"overlays/single"},
		"networkPolicy: {apiServer: {cidrs: [192.0.2.1/32], ports: [6443]}}": {"overlays/known-apiserver"},
		"monitoring: {enabled: true}":                                        {"overlays/monitoring"},
		"admissionPolicy: {enabled: true}":                                   {"", "admission"},
	} {
		t.Run(values, func(t *testing.T) {
			want := map[string]map[string]any{}
			for _, folder := range folders {
				out, err := env.cluster.Kubectl(t.Context(), "kustomize", filepath.Join(moduleRoot, "deploy", folder))
				if err != nil {
					t.Fatal(err)
				}
				maps.Copy(want, objects(t, out))
			}
			delete(want, "Namespace /"+systemNamespace)
			got := objects(t, manifests(t, values))
			for key, object := range want {
				if !equality.Semantic.DeepEqual(got[key], object) {
					t.Errorf("%s is not the same:\nin the chart:\n%s\nin deploy:\n%s", key, inYAML(t, got[key]), inYAML(t, object))
				}
			}
			for key := range got {
				if want[key] == nil {
					t.Errorf("only the chart has %s", key)
				}
			}
		})
	}
}

func inYAML(t *testing.T, object any) string {
	t.Helper()
	out, err := sigsyaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestTheChartIsInOrder(t *testing.T) {
	result := lint.RunAll(chartFolder, nil, systemNamespace)
	for _, m := range result.Messages {
		if m.Severity > support.InfoSev {
			t.Error(m)
		}
	}
}

func TestWrongValuesAreRefusedByTheirName(t *testing.T) {
	for values, name := range map[string]string{
		"replicas: 0":                                      "replicas",
		"replicas: many":                                   "replicas",
		"replica: 2":                                       "replica",
		"image: {tag: 'v 1'}":                              "image/tag",
		"image: {digest: 'sha256:1'}":                      "image/digest",
		"image: {repository: ''}":                          "image/repository",
		"image: {pullPolicy: Sometimes}":                   "image/pullPolicy",
		"resources: {limits: {memory: lots}}":              "resources/limits/memory",
		"leaderElection: {namespace: Edge_Hub}":            "leaderElection/namespace",
		"extraArgs: [workers=8]":                           "extraArgs/0",
		"networkPolicy: {apiServer: {cidrs: [apiserver]}}": "networkPolicy/apiServer/cidrs/0",
		"networkPolicy: {apiServer: {ports: []}}":          "networkPolicy/apiServer/ports",
		"admissionPolicy: {action: Refuse}":                "admissionPolicy/action",
		"monitoring: {enabled: 'yes'}":                     "monitoring/enabled",
	} {
		if _, err := render(t, values); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v, want an error that names %s", values, err, name)
		}
	}
}

// What no folder has.
func TestOtherValuesSayWhatTheySay(t *testing.T) {
	const digest = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
	for values, want := range map[string][]string{
		"image: {repository: registry.example.com/c, tag: v1, pullPolicy: Always}": {"image: registry.example.com/c:v1\n", "imagePullPolicy: Always\n"},
		"image: {tag: v1, digest: '" + digest + "'}":                               {"image: edgehub/edgehub-controller@" + digest + "\n"},
		"imagePullSecrets: [regcred]":                                              {"imagePullSecrets:\n        - name: regcred\n"},
		"resources: {limits: {memory: 1Gi}}":                                       {"memory: 1Gi\n"},
		"leaderElection: {namespace: leases}":                                      {"--leader-elect-resource-namespace=leases\n", "namespace: leases\n"},
		"extraArgs: [--workers=8]":                                                 {`- "--workers=8"` + "\n"},
		"nodeSelector: {a: b}":                                                     {"nodeSelector:\n        a: b\n"},
		"tolerations: [{key: edge}]":                                               {"- key: edge\n"},
		"podAnnotations: {a: b}":                                                   {"annotations:\n        a: b\n"},
		"monitoring: {enabled: true, labels: {release: prometheus}}":               {"release: prometheus\n"},
		"admissionPolicy: {enabled: true, action: Audit}":                          {"validationActions:\n  - Audit\n", "validationActions:\n  - Warn\n"},
	} {
		got := manifests(t, values)
		objects(t, got) // is YAML
		for _, words := range want {
			if !strings.Contains(got, words) {
				t.Errorf("%s: %q is not in\n%s", values, words, got)
			}
		}
	}
	for values, without := range map[string]string{
		"networkPolicy: {enabled: false}":    "NetworkPolicy",
		"networkPolicy: {denyOthers: false}": "default-deny",
		"priorityClassName: ''":              "ResourceQuota",
	} {
		if strings.Contains(manifests(t, values), without) {
			t.Errorf("%s: %s is there all the same", values, without)
		}
	}
}

func TestTheChartsNotesNameTheNamespace(t *testing.T) {
	files, err := render(t, "{}")
	if err != nil {
		t.Fatal(err)
	}
	if notes := files["edgehub-controller/templates/NOTES.txt"]; !strings.Contains(notes, "kubectl label namespace "+systemNamespace) {
		t.Errorf("the notes are\n%s", notes)
	}
}

// The apiserver takes what the chart makes, in a namespace such as Helm makes, and
// Pod Security the pods once it is labelled as the notes say.
func TestTheChartInstalls(t *testing.T) {
	applyOperatorCRDs(t)
	apply(t, "") // the namespace with its labels
	remove(t)
	file := filepath.Join(t.TempDir(), "chart.yaml")
	everything := manifests(t, "{monitoring: {enabled: true}, admissionPolicy: {enabled: true}, extraArgs: [--workers=8]}")
	if err := os.WriteFile(file, []byte(everything), 0o600); err != nil {
		t.Fatal(err)
	}
	applyStrictly(t, "-f", file)
	t.Cleanup(func() { remove(t) })
	awaitPods(t, 2)
}

func TestTheChartsReadmeTellsOfEachValue(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(chartFolder, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range valueNames(t) {
		if !strings.Contains(string(readme), "`"+name+"`") {
			t.Errorf("the README does not tell of value %s", name)
		}
	}
}

// valueNames are the values that the chart has, as people write them after --set.
func valueNames(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chartFolder, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{}
	if err := sigsyaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	return namesIn("", values)
}

func namesIn(prefix string, values map[string]any) []string {
	var out []string
	for key, value := range values {
		inner, ok := value.(map[string]any)
		if !ok || len(inner) == 0 || key == "resources" {
			out = append(out, prefix+key)
			continue
		}
		out = append(out, namesIn(prefix+key+".", inner)...)
	}
	return out
}
