package spool

import (
	"encoding/json"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/quota"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// record is an event on disk, as JSON.
type record struct {
	head

	Bare []byte `json:"event"` // in protobuf
}

type head struct {
	User       string `json:"user"` // who has posted it, and as whom it is sent
	APIVersion string `json:"apiVersion"`
	Namespace  string `json:"namespace"`
	Name       string `json:"eventName"`
	UserAgent  string `json:"userAgent,omitempty"`
}

func (h *head) isNode() bool { return h.User == quota.Node }

func (h *head) event() string { return h.Namespace + "/" + h.Name }

func (h *head) name() name { return name{h.User, h.event()} }

func (h *head) typeMeta() wire.TypeMeta {
	return wire.TypeMeta{APIVersion: h.APIVersion, Kind: "Event"}
}

func (r *record) object() (runtime.Object, error) {
	return convert.FromBare(wire.Protobuf, r.typeMeta(), r.Bare)
}

// about is the object that the event is about, for a log.
func (r *record) about() string {
	object, _ := r.object()
	var of corev1.ObjectReference
	switch e := object.(type) {
	case *corev1.Event:
		of = e.InvolvedObject
	case *eventsv1.Event:
		of = e.Regarding
	}
	return fmt.Sprintf("%.63s %.63s/%.253s", of.Kind, of.Namespace, of.Name)
}

func parse(b []byte) (record, error) {
	var r record
	err := json.Unmarshal(b, &r)
	return r, err
}

// key orders events by arrival. It reveals only their number.
func key(number uint64) string { return fmt.Sprintf("%016x", number) }

func parseKey(key string) (uint64, error) { return strconv.ParseUint(key, 16, 64) }
