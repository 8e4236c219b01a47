package deploy

import (
	"context"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/edgehub-io/edgehub/controller/successor"
	"github.com/edgehub-io/edgehub/test/internal/audit"
)

// right is the smallest part of a role: one verb on one resource, and on one object
// where a rule names objects.
type right struct {
	cluster                     bool // in the ClusterRole, else in the Role
	group, resource, name, verb string
}

func (r right) String() string {
	return strings.TrimSuffix(strings.Join([]string{r.verb, strings.TrimPrefix(r.group+"/"+r.resource, "/"), r.name}, " "), " ")
}

// covers reports whether a request takes this right.
func (r right) covers(q *audit.Request) bool {
	resource, subresource, _ := strings.Cut(r.resource, "/")
	return q.Verb == r.verb && q.ObjectRef.APIGroup == r.group && q.ObjectRef.Resource == resource &&
		q.ObjectRef.Subresource == subresource && (r.name == "" || q.ObjectRef.Name == r.name)
}

// rightsIn takes rules apart.
func rightsIn(rules []rbacv1.PolicyRule, cluster bool) []right {
	var out []right
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, name := range names {
					for _, verb := range rule.Verbs {
						out = append(out, right{cluster, group, resource, name, verb})
					}
				}
			}
		}
	}
	return out
}

// deployedRights are those that deploy/ and deploy/admission give the account.
func deployedRights(t *testing.T) []right {
	t.Helper()
	ofCluster, err := env.admin.RbacV1().ClusterRoles().Get(t.Context(), account, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ofAdmission, err := env.admin.RbacV1().ClusterRoles().Get(t.Context(), successor.Policy, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ofNamespace, err := env.admin.RbacV1().Roles(systemNamespace).Get(t.Context(), account, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range slices.Concat(ofCluster.Rules, ofAdmission.Rules, ofNamespace.Rules) {
		if len(rule.NonResourceURLs) > 0 || slices.Contains(slices.Concat(rule.Verbs, rule.Resources, rule.APIGroups), "*") {
			t.Errorf("rule %+v gives more than can be taken apart", rule)
		}
	}
	return slices.Concat(rightsIn(ofCluster.Rules, true), rightsIn(ofAdmission.Rules, true), rightsIn(ofNamespace.Rules, false))
}

// applyAdmission applies deploy/admission until the end of the test, and waits until the controller can create pods as dry
// runs only.
func applyAdmission(t *testing.T) {
	t.Helper()
	apply(t, "admission")
	t.Cleanup(func() {
		if out, err := env.cluster.Kubectl(context.Background(), "delete", "-k", filepath.Join(moduleRoot, "deploy", "admission")); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	config, err := clientcmd.BuildConfigFromFlags("", writeKubeconfig(t))
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the policy is in force", func() string {
		asker := &successor.Asker{Client: client, Namespace: systemNamespace, Logger: slog.New(slog.DiscardHandler)}
		_, err := asker.BarePod(t.Context())
		return words(err)
	})
}

// Each right in deploy/ is needed, and with them the controller is refused nothing: doing what it is there for, it sends a
// request that takes the right, and that no other right covers.
func TestEachRightIsNeeded(t *testing.T) {
	apply(t, "")
	defer remove(t) // its pods have nobody to run them
	applyAdmission(t)
	all := deployedRights(t)
	s := newScenario(t)
	s.play()
	alone := map[right]bool{}
	for _, q := range s.requests() {
		if q.ResponseStatus.Code == http.StatusForbidden {
			if q.Verb == "create" && q.ObjectRef.Resource == "pods" {
				continue // by a quota
			}
			t.Errorf("the controller is refused %s %s", q.Verb, q.RequestURI)
			continue
		}
		var covering []right
		for _, r := range all {
			if r.covers(&q) {
				covering = append(covering, r)
			}
		}
		if len(covering) == 1 {
			alone[covering[0]] = true
		}
	}
	for _, r := range all {
		if !alone[r] {
			t.Errorf("deploy/ gives the right to %s, which is not needed: take it out", r)
		}
	}
}
