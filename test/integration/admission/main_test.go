// Package admission tests the ValidatingAdmissionPolicies of deploy/admission in a
// real apiserver: what it refuses, with which words, and that it refuses what the
// controller refuses and nothing else. Most requests are dry runs, which admission
// sees like all others.
package admission

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/internal/poll"
	"github.com/edgehub-io/edgehub/test/internal/testmain"
)

const (
	namespace = "default"
	// admissionFolder is seen from this folder.
	admissionFolder = "../../../deploy/admission"
	policyName      = "edgehub-update-strategy"
	keysPolicyName  = "edgehub-known-keys"
)

// env is what all tests share.
var env struct {
	cluster *cluster.Cluster
	admin   *kubernetes.Clientset
}

func TestMain(m *testing.M) { os.Exit(testmain.Main(m, "admission", prepare)) }

func prepare(ctx context.Context, s *testmain.Env) (err error) {
	if env.cluster, err = s.StartCluster(ctx, cluster.Options{}); err != nil {
		return err
	}
	if env.admin, err = kubernetes.NewForConfig(env.cluster.AdminConfig()); err != nil {
		return err
	}
	if err := createWrongOnes(ctx); err != nil {
		return err
	}
	return applyPolicy(ctx)
}

// applyPolicy applies deploy/admission with one change: an expression that fails
// refuses the request, so that the tests see it.
func applyPolicy(ctx context.Context) error {
	manifests, err := env.cluster.Kubectl(ctx, "kustomize", filepath.FromSlash(admissionFolder))
	if err != nil {
		return err
	}
	const shipped, strict = "failurePolicy: Ignore", "failurePolicy: Fail"
	if strings.Count(manifests, shipped) != 4 {
		return fmt.Errorf("want %q in the policies of deploy/admission for people and kubelets: one that cannot tell must not keep them from their DaemonSets, Nodes and pods", shipped)
	}
	file := filepath.Join(env.cluster.Dir(), "admission.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(manifests, shipped, strict)), 0o600); err != nil {
		return err
	}
	if _, err := env.cluster.Kubectl(ctx, "apply", "-f", file); err != nil {
		return err
	}
	return awaitPolicy(ctx)
}

// awaitPolicy returns when the apiserver has taken note of the policy, which it
// does in the background.
func awaitPolicy(ctx context.Context) error {
	bad := daemonSet(onDelete, map[string]string{strategyKey: "nonsense"})
	if !poll.Within(poll.Patience, func() bool { return refusal(create(ctx, bad)) != "" }) {
		return errors.New("the policy has no effect")
	}
	return nil
}

const (
	onDelete = appsv1.OnDeleteDaemonSetStrategyType
	rolling  = appsv1.RollingUpdateDaemonSetStrategyType
)

func daemonSet(update appsv1.DaemonSetUpdateStrategyType, annotations map[string]string) *appsv1.DaemonSet {
	labels := map[string]string{"app": "web"}
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{GenerateName: "web-", Namespace: namespace, Annotations: annotations}}
	ds.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	ds.Spec.UpdateStrategy.Type = update
	ds.Spec.Template.Labels = labels
	ds.Spec.Template.Spec.Containers = []corev1.Container{{Name: "web", Image: "web:v1"}}
	return ds
}

// create asks whether ds would be taken.
func create(ctx context.Context, ds *appsv1.DaemonSet) error {
	_, err := env.admin.AppsV1().DaemonSets(namespace).Create(ctx, ds, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}
