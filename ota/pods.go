package ota

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// listPods answers with the pods of this node as a v1 PodList.
func (s *server) listPods(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), cloudTimeout)
	defer cancel()

	list, err := s.nodesPods(ctx)
	if err != nil {
		return s.cloudFailure(r.Context(), err, "list the pods of node "+s.node)
	}
	list.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"} // decoding leaves it out
	if list.Items == nil {
		list.Items = []corev1.Pod{} // a list of none, not null
	}
	body, err := json.Marshal(list)
	if err != nil {
		return fmt.Errorf("encode the pods of node %s: %w", s.node, err)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, '\n')) // fails when the caller is gone
	return nil
}

// nodesPods asks what the kubelet asks: its selector is the one that a node may
// list pods by, and while the cloud is away, its watch is what the cache has
// the newest state from.
func (s *server) nodesPods(ctx context.Context) (*corev1.PodList, error) {
	return s.pods.list(ctx, fields.OneTermEqualSelector("spec.nodeName", s.node))
}
