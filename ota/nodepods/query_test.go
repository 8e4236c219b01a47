package nodepods_test

import (
	"strings"
	"testing"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/nodepods"
)

func pod(name, uid, version string, labels ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid), ResourceVersion: version, Labels: map[string]string{}}}
	for _, label := range labels {
		key, value, _ := strings.Cut(label, "=")
		p.Labels[key] = value
	}
	p.Status.Phase = corev1.PodRunning
	p.Status.PodIP = "10.0.0.7"
	return p
}

func TestMatches(t *testing.T) {
	camera := pod("camera", "1", "1", "app=camera", "tier=edge")
	tests := map[string]bool{
		"":                                     true,
		"labelSelector=app%3Dcamera":           true,
		"labelSelector=app+in+(camera,gate)":   true,
		"labelSelector=app!%3Dcamera":          false,
		"labelSelector=tier%3Dedge,app%3Dx":    false,
		"fieldSelector=metadata.name%3Dcamera": true,
		"fieldSelector=status.phase%3DRunning,metadata.namespace!%3Dkube-system": true,
		"fieldSelector=status.phase!%3DRunning":                                  false,
		"fieldSelector=status.podIP%3D10.0.0.7":                                  true,
		"fieldSelector=spec.hostNetwork%3Dtrue":                                  false,
		"fieldSelector=metadata.name%3Dcamera&labelSelector=app%3Dgate":          false,
		"watch=false": true,
	}
	for query, want := range tests {
		q, err := nodepods.ParseQuery(query)
		if err != nil {
			t.Errorf("%s: %v", query, err)
			continue
		}
		if got := q.Matches(camera); got != want || q.Watch {
			t.Errorf("%s: got %v, want %v", query, got, want)
		}
	}
}

func TestQueriesThatAreRefused(t *testing.T) {
	for query, want := range map[string]string{
		"labelselector=app":                            `"labelselector" is no parameter: there are labelSelector, fieldSelector, watch and timeoutSeconds`,
		"labelSelector=app%3D%3D%3D":                   "labelSelector: unable to parse requirement: found '=', expected: identifier",
		"labelSelector=%0a%1b%3D":                      "labelSelector: ",
		"fieldSelector=spec.priority%3D1":              "fieldSelector: pods are not selected by spec.priority: there are metadata.name, metadata.namespace",
		"fieldSelector=metadata.name":                  "fieldSelector: invalid selector",
		"watch=yes":                                    `watch: "yes" is neither true nor false`,
		"timeoutSeconds=-1":                            `timeoutSeconds: "-1" is not a number of seconds`,
		"timeoutSeconds=1e9":                           `timeoutSeconds: "1e9" is not a number of seconds`,
		"timeoutSeconds=99999999999":                   `timeoutSeconds: "99999999999" is not a number of seconds`,
		"labelSelector=" + strings.Repeat("%28", 5000): "labelSelector: ",
	} {
		if _, err := nodepods.ParseQuery(query); err == nil || !strings.Contains(err.Error(), want) || strings.ContainsFunc(err.Error(), unicode.IsControl) || len(err.Error()) > 1000 {
			t.Errorf("%.100s: got %v, want %s", query, err, want)
		}
	}
}
