package attack

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

// decodeList reads a list of Secrets in protobuf.
func decodeList(t *testing.T, body []byte) corev1.SecretList {
	t.Helper()
	object, err := decode(body)
	if err != nil {
		t.Fatal(err)
	}
	list, ok := object.(*corev1.SecretList)
	if !ok {
		t.Fatalf("a %T where a list of Secrets was asked for", object)
	}
	return *list
}

func decode(body []byte) (any, error) {
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	return object, err
}
