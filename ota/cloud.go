package ota

import (
	"context"
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
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/ota/coreclient"
)

// cloudTimeout bounds all that one request asks of the cloud, so that a network
// that swallows packets ends in an answer too. The apiserver itself gives up on
// a request after 34 s or earlier.
const cloudTimeout = 30 * time.Second

// Pods reads and deletes pods in the cloud. It asks once and returns what came
// of it: client-go's clientset would repeat a request for ten seconds and more
// while the cloud is away, and a person is waiting for the answer. It is safe for
// concurrent use.
type Pods struct{ client rest.Interface }

// NewPods returns a client for the apiserver that config names. It does not
// throttle, and does not change config.
func NewPods(config *rest.Config) (*Pods, error) {
	client, err := coreclient.New(config)
	if err != nil {
		return nil, err
	}
	return &Pods{client}, nil
}

// list returns pods of all namespaces, as the apiserver has them; while the cloud
// is away, as the cache has them.
func (p *Pods) list(ctx context.Context, selector fields.Selector) (*corev1.PodList, error) {
	list := new(corev1.PodList)
	err := p.client.Get().MaxRetries(0).
		Resource("pods").
		Param("fieldSelector", selector.String()).
		Do(ctx).Into(list)
	return list, err
}

func (p *Pods) delete(ctx context.Context, namespace, name string, options metav1.DeleteOptions) error {
	return p.client.Delete().MaxRetries(0).
		Namespace(namespace).Resource("pods").Name(name).
		Body(&options).
		Do(ctx).Error()
}

// cloudFailure gives an error of Pods the code it is answered with. doing says
// what was tried, such as "list the pods of node n". caller is the request's
// context, without cloudTimeout.
//
// Where the hub knows that the cloud is away, it says so itself, and since when: err is
// then the same in other words, and why each apiserver cannot be reached stands in the log
// and in GET /debug/cache.
func (s *server) cloudFailure(caller context.Context, err error, doing string) error {
	switch {
	case caller.Err() != nil:
		return failf(statusClientGone, "%s: the caller hung up: %w", doing, err)
	case isUnreachable(err):
		if offline := s.offline(); offline != "" {
			return failf(http.StatusServiceUnavailable, "%s: %s; send the request again once the cloud is back, which GET /readyz tells", doing, offline)
		}
		if strings.Contains(err.Error(), "the cloud cannot be reached") {
			return failf(http.StatusServiceUnavailable, "%s: try again once the cloud can be reached: %w", doing, err)
		}
		return failf(http.StatusServiceUnavailable, "%s: the cloud cannot be reached, try again once it can: %w", doing, err)
	}
	return failf(http.StatusInternalServerError, "%s: the cloud refused: %w", doing, err)
}

// isUnreachable tells a cloud that did not answer from one that did. An
// apiserver too busy to answer counts as the former, and so does a gateway's 502
// or 504, which speaks for a cloud behind it that did not answer.
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
	if _, ok := errors.AsType[net.Error](err); ok { // deadlines are net.Errors too
		return true
	}
	return errors.Is(err, io.ErrUnexpectedEOF) // cut off in the middle of a body
}
