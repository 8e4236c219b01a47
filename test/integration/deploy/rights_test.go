package deploy

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

func (r right) rule() rbacv1.PolicyRule {
	rule := rbacv1.PolicyRule{Verbs: []string{r.verb}, APIGroups: []string{r.group}, Resources: []string{r.resource}}
	if r.name != "" {
		rule.ResourceNames = []string{r.name}
	}
	return rule
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

// deployedRights are those that deploy/ gives the account.
func deployedRights(t *testing.T) []right {
	t.Helper()
	ofCluster, err := env.admin.RbacV1().ClusterRoles().Get(t.Context(), account, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ofNamespace, err := env.admin.RbacV1().Roles(systemNamespace).Get(t.Context(), account, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range slices.Concat(ofCluster.Rules, ofNamespace.Rules) {
		if len(rule.NonResourceURLs) > 0 || slices.Contains(slices.Concat(rule.Verbs, rule.Resources, rule.APIGroups), "*") {
			t.Errorf("rule %+v gives more than can be taken apart", rule)
		}
	}
	return append(rightsIn(ofCluster.Rules, true), rightsIn(ofNamespace.Rules, false)...)
}

// grant gives the account all rights but one, and returns when that is in force.
func grant(t *testing.T, all []right, but *right) {
	t.Helper()
	var ofCluster, ofNamespace []rbacv1.PolicyRule
	for _, r := range all {
		switch {
		case but != nil && r == *but:
		case r.cluster:
			ofCluster = append(ofCluster, r.rule())
		default:
			ofNamespace = append(ofNamespace, r.rule())
		}
	}
	role, err := env.admin.RbacV1().ClusterRoles().Get(t.Context(), account, metav1.GetOptions{})
	if err == nil {
		role.Rules = ofCluster
		_, err = env.admin.RbacV1().ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	local, err := env.admin.RbacV1().Roles(systemNamespace).Get(t.Context(), account, metav1.GetOptions{})
	if err == nil {
		local.Rules = ofNamespace
		_, err = env.admin.RbacV1().Roles(systemNamespace).Update(t.Context(), local, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the apiserver knows what the account may do", func() string {
		for _, r := range all {
			if want := but == nil || r != *but; allowed(t, r) != want {
				return fmt.Sprintf("%s is allowed: %t", r, !want)
			}
		}
		return ""
	})
}

func allowed(t *testing.T, r right) bool {
	t.Helper()
	resource, subresource, _ := strings.Cut(r.resource, "/")
	review := &authorizationv1.SubjectAccessReview{}
	review.Spec.User = username
	review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Verb: r.verb, Group: r.group, Resource: resource, Subresource: subresource, Name: r.name}
	if !r.cluster {
		review.Spec.ResourceAttributes.Namespace = systemNamespace
	}
	got, err := env.admin.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return got.Status.Allowed
}

// Each right in deploy/ is needed: without it the controller is refused just that,
// doing what it is there for. With all of them it is refused nothing.
func TestEachRightIsNeeded(t *testing.T) {
	apply(t, "")
	defer remove(t) // its pods have nobody to run them
	all := deployedRights(t)
	s := newScenario(t)

	s.start()
	used := map[right]bool{}
	s.play(func() bool {
		for _, q := range s.requests() {
			for _, r := range all {
				used[r] = used[r] || r.covers(&q) && q.ResponseStatus.Code != http.StatusForbidden
			}
		}
		return len(s.refused()) > 0
	})
	for _, q := range s.refused() {
		t.Errorf("with all rights, the controller is refused %s %s", q.Verb, q.RequestURI)
	}
	for _, r := range all {
		if !used[r] {
			t.Errorf("deploy/ gives the right to %s, which is not used", r)
		}
	}
	s.stop()

	defer apply(t, "") // puts the rights back
	for _, r := range all {
		t.Run("without "+r.String(), func(t *testing.T) {
			grant(t, all, &r)
			s.start()
			defer s.stop()
			s.play(func() bool { return len(s.refused()) > 0 })
			refused := s.refused()
			if len(refused) == 0 {
				t.Errorf("everything works without the right to %s: take it out of deploy/", r)
			}
			for _, q := range refused {
				if !r.covers(&q) {
					t.Errorf("the controller is refused %s %s, which it has the right to", q.Verb, q.RequestURI)
				}
			}
		})
	}
}
