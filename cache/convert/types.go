package convert

import (
	"fmt"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/wire"
)

// builtIn returns the types that are converted: those of stable versions, which take 3.6 MB of the
// binary. With the alpha and beta versions, in client-go/kubernetes/scheme, they would take 9.0 MB,
// for types that hardly any node reads.
var builtIn = sync.OnceValue(func() *runtime.Scheme {
	types := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		admissionregistrationv1.AddToScheme,
		appsv1.AddToScheme,
		authenticationv1.AddToScheme,
		authorizationv1.AddToScheme,
		autoscalingv1.AddToScheme,
		autoscalingv2.AddToScheme,
		batchv1.AddToScheme,
		certificatesv1.AddToScheme,
		coordinationv1.AddToScheme,
		corev1.AddToScheme,
		discoveryv1.AddToScheme,
		eventsv1.AddToScheme,
		flowcontrolv1.AddToScheme,
		networkingv1.AddToScheme,
		nodev1.AddToScheme,
		policyv1.AddToScheme,
		rbacv1.AddToScheme,
		resourcev1.AddToScheme,
		schedulingv1.AddToScheme,
		storagev1.AddToScheme,
		storagemigrationv1.AddToScheme,
	} {
		if err := add(types); err != nil {
			panic(fmt.Sprintf("convert: types of k8s.io/api contradict each other: %v", err)) // tests run this
		}
	}
	return types
})

// newObject returns an empty object of type t.
func newObject(t wire.TypeMeta) (runtime.Object, error) {
	if isMetadata(t) {
		return &metav1.PartialObjectMetadata{}, nil
	}
	object, err := builtIn().New(groupVersionKind(t))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", t.APIVersion, t.Kind, ErrUnknownType)
	}
	return object, nil
}

// Knows reports whether objects of type t can be converted by Bare.
func Knows(t wire.TypeMeta) bool {
	return isMetadata(t) || builtIn().Recognizes(groupVersionKind(t))
}

// KnowsAll reports whether objects of a version of an API are of types that Bare converts, but for those that are newer than the hub.
func KnowsAll(of schema.GroupVersion) bool { return builtIn().IsVersionRegistered(of) }

// isMetadata reports whether t is PartialObjectMetadata. Its versions v1 and v1beta1 are equal.
func isMetadata(t wire.TypeMeta) bool {
	return groupVersionKind(t).Group == metav1.GroupName && t.Kind == MetadataType.Kind
}

func groupVersionKind(t wire.TypeMeta) schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(t.APIVersion, t.Kind)
}
