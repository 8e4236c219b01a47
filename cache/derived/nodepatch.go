package derived

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// maxPatchBytes bounds a patch of the Node. flannel's have 300 bytes.
const maxPatchBytes = 16 << 10

var (
	errForm     = errors.New("while the cloud is away, a pod can only patch annotations and the condition NetworkUnavailable of its node's Node")
	errTooLarge = fmt.Errorf("while the cloud is away, patches of the node's Node are kept up to %d bytes", maxPatchBytes)
)

// nodePatch is a patch of annotations, and of the condition NetworkUnavailable. There is nothing else in
// it: what was checked is what is applied and sent.
type nodePatch struct {
	Metadata struct {
		UID             string             `json:"uid,omitempty"`
		ResourceVersion string             `json:"resourceVersion,omitempty"`
		Annotations     map[string]*string `json:"annotations,omitempty"` // nil: it is deleted
	} `json:"metadata"`
	Status *struct {
		Conditions []condition `json:"conditions"` // one
	} `json:"status,omitempty"`
}

// condition is a corev1.NodeCondition whose empty fields are left as they are.
type condition struct {
	Type               corev1.NodeConditionType `json:"type"`
	Status             string                   `json:"status,omitempty"`
	Reason             string                   `json:"reason,omitempty"`
	Message            string                   `json:"message,omitempty"`
	LastHeartbeatTime  string                   `json:"lastHeartbeatTime,omitempty"`
	LastTransitionTime string                   `json:"lastTransitionTime,omitempty"`
}

// parseNodePatch reads the body of a PATCH: a strategic merge patch, or a JSON merge patch of annotations. Its
// error is for the client, which gets 503.
func parseNodePatch(contentType string, body []byte) (*nodePatch, error) {
	mediaType, _, err := mime.ParseMediaType(contentType)
	strategic := mediaType == string(types.StrategicMergePatchType)
	if err != nil || !strategic && mediaType != string(types.MergePatchType) {
		return nil, errForm
	}
	if len(body) > maxPatchBytes {
		return nil, errTooLarge
	}
	p := &nodePatch{}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields() // labels, the spec, and directives as $patch
	if decoder.Decode(p) != nil || decoder.More() {
		return nil, errForm
	}
	if s := p.Status; s != nil && (!strategic || len(s.Conditions) != 1 || s.Conditions[0].Type != corev1.NodeNetworkUnavailable) {
		return nil, errForm
	}
	if len(p.keys()) == 0 {
		return nil, errForm
	}
	return p, nil
}

// body is the patch as a strategic merge patch.
func (p *nodePatch) body() []byte {
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings
	}
	return body
}

const (
	annotationKey = "annotation:"
	conditionKey  = "condition:" + string(corev1.NodeNetworkUnavailable)
)

// keys are what the patch changes.
func (p *nodePatch) keys() []string {
	var all []string
	for name := range p.Metadata.Annotations {
		all = append(all, annotationKey+name)
	}
	if p.Status != nil {
		all = append(all, conditionKey)
	}
	return all
}

// with returns p, changed by a later patch of the same object. Either is unchanged.
func (p *nodePatch) with(later *nodePatch) *nodePatch {
	sum := *later
	if p == nil {
		return &sum
	}
	sum.Metadata.ResourceVersion = cmp.Or(p.Metadata.ResourceVersion, later.Metadata.ResourceVersion)
	sum.Metadata.Annotations = map[string]*string{}
	maps.Copy(sum.Metadata.Annotations, p.Metadata.Annotations)
	maps.Copy(sum.Metadata.Annotations, later.Metadata.Annotations)
	sum.Status = cmp.Or(later.Status, p.Status)
	return &sum
}

// updated returns p with what a later patch has made of the same, or nil if that is not known.
func (p *nodePatch) updated(later *nodePatch) *nodePatch {
	if p == nil || later == nil {
		return nil
	}
	next := *p
	next.Metadata.Annotations = maps.Clone(p.Metadata.Annotations)
	for name := range next.Metadata.Annotations {
		if value, ok := later.Metadata.Annotations[name]; ok {
			next.Metadata.Annotations[name] = value
		}
	}
	if p.Status != nil {
		next.Status = cmp.Or(later.Status, p.Status)
	}
	return &next
}

// writtenBy returns the keys that a field manager has written, as the Node's managedFields say.
func writtenBy(manager string, n *corev1.Node) []string {
	var all []string
	for _, entry := range n.ManagedFields {
		if entry.Manager != manager || entry.FieldsV1 == nil {
			continue
		}
		var fields struct {
			Metadata struct {
				Annotations map[string]json.RawMessage `json:"f:annotations"`
			} `json:"f:metadata"`
			Status struct {
				Conditions map[string]json.RawMessage `json:"f:conditions"`
			} `json:"f:status"`
		}
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		for field := range fields.Metadata.Annotations {
			if name, ok := strings.CutPrefix(field, "f:"); ok && !isReserved(name) {
				all = append(all, annotationKey+name)
			}
		}
		if _, ok := fields.Status.Conditions[`k:{"type":"NetworkUnavailable"}`]; ok {
			all = append(all, conditionKey)
		}
	}
	return all
}

// isReserved reports whether an annotation is Kubernetes' own: kubelet's, or a controller's.
func isReserved(annotation string) bool {
	domain, _, found := strings.Cut(annotation, "/")
	for _, own := range []string{"kubernetes.io", "k8s.io"} {
		if found && (domain == own || strings.HasSuffix(domain, "."+own)) {
			return true
		}
	}
	return false
}
