package ota

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/coreclient"
)

// cloudTimeout bounds all calls to the cloud for one request, so that a network that drops
// packets ends in an answer, too. The apiserver itself gives up on a request after 34 s at most.
const cloudTimeout = 30 * time.Second

// Pods reads and deletes pods in the cloud. It never retries: client-go's clientset would retry
// for ten seconds and more while the cloud is away, and a person waits for the answer. It is
// safe for concurrent use.
type Pods struct{ client rest.Interface }

// NewPods returns a client for the apiserver of config. It does not throttle, and does not
// change config.
func NewPods(config *rest.Config) (*Pods, error) {
	client, err := coreclient.New(config)
	if err != nil {
		return nil, err
	}
	return &Pods{client}, nil
}

// List returns the pods of a node from the apiserver, or from the cache while the cloud is away.
// It makes the kubelet's query: a node may list pods only by this selector, and the kubelet's
// watch keeps the cache's view of it up to date.
func (p *Pods) List(ctx context.Context, node string) (*corev1.PodList, error) {
	list := new(corev1.PodList)
	err := p.client.Get().MaxRetries(0).
		Resource("pods").
		Param("fieldSelector", fields.OneTermEqualSelector("spec.nodeName", node).String()).
		Do(ctx).Into(list)
	return list, err
}

// Node returns the node of this name, which must be this one.
func (p *Pods) Node(ctx context.Context, name string) (*corev1.Node, error) {
	node := new(corev1.Node)
	err := p.client.Get().MaxRetries(0).Resource("nodes").Name(name).Do(ctx).Into(node)
	return node, err
}

// annotate sets an annotation of a pod, unless another has its name by now.
func (p *Pods) annotate(ctx context.Context, pod *corev1.Pod, key, value string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID, "annotations": map[string]string{key: value}}})
	if err != nil {
		return err
	}
	return p.client.Patch(types.StrategicMergePatchType).MaxRetries(0).
		Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("status").
		Body(patch).
		Do(ctx).Error()
}

func (p *Pods) delete(ctx context.Context, namespace, name string, options metav1.DeleteOptions) error {
	return p.client.Delete().MaxRetries(0).
		Namespace(namespace).Resource("pods").Name(name).
		Body(&options).
		Do(ctx).Error()
}

// cloudFailure turns an error of Pods into a failure with a status code. doing is what was tried,
// such as "list the pods of node n". caller is the request's context, without cloudTimeout.
//
// If the hub knows that the cloud is away, the failure has the time since when in place of err. The log
// and GET /debug/cache show why each apiserver cannot be reached.
func (s *server) cloudFailure(caller context.Context, err error, doing string) error {
	switch {
	case caller.Err() != nil:
		return failf(statusClientGone, "%s: the caller hung up: %w", doing, err)
	case isUnreachable(err):
		if offline := s.Offline(); offline != "" {
			return failf(http.StatusServiceUnavailable, "%s: %s; send the request again once the cloud is back, which GET %s tells", doing, offline, api.Readyz)
		}
		if strings.Contains(err.Error(), "the cloud cannot be reached") {
			return failf(http.StatusServiceUnavailable, "%s: try again once the cloud can be reached: %w", doing, err)
		}
		return failf(http.StatusServiceUnavailable, "%s: the cloud cannot be reached, try again once it can: %w", doing, err)
	}
	return failf(http.StatusInternalServerError, "%s: the cloud refused: %w", doing, err)
}

// notSent reports whether the hub has answered that a request reached no apiserver. Any other error
// but a refusal leaves open whether the request was executed.
func notSent(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && status.ErrStatus.Code == http.StatusServiceUnavailable && strings.HasPrefix(status.ErrStatus.Message, "edgehub: the cloud ")
}

// isRefused reports whether an apiserver has answered that it does not execute a request.
func isRefused(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && status.ErrStatus.Code >= 400 && status.ErrStatus.Code < 500
}

// isUnreachable reports whether no apiserver has answered. An apiserver that is too busy counts
// as unreachable, and so does a gateway's 502 or 504: no apiserver has answered the gateway.
func isUnreachable(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		switch status.Status().Code {
		case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return true
		}
		return false
	}
	if _, ok := errors.AsType[*url.Error](err); ok {
		return true
	}
	if _, ok := errors.AsType[net.Error](err); ok { // also deadlines
		return true
	}
	return errors.Is(err, io.ErrUnexpectedEOF) // the connection broke within a body
}
