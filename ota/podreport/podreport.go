// Package podreport writes what the hub has to report of its pods to the cloud: annotations and
// conditions of pods, now or when the cloud is back.
package podreport

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/nodepods"
)

// Report is what a pod should have. What it does not name stays as it is.
type Report struct {
	// Annotations are the values by key; "" is no such annotation.
	Annotations map[string]string
	// Conditions are without times.
	Conditions []corev1.PodCondition
}

// Source returns what it has to report of a pod, always the whole of it: it is asked again until
// the pod has it. It must be safe for concurrent use.
type Source func(pod *corev1.Pod) Report

// Reporter is safe for concurrent use.
type Reporter struct {
	client rest.Interface
	pods   *nodepods.Pods
	online func() bool
	log    *slog.Logger
	again  chan struct{}           // one message stands for any number of changes
	sent   map[types.UID]time.Time // when a pod was last reported; Run's alone
}

const (
	requestTimeout = 30 * time.Second
	// reportEvery is how often a pod is reported at most: whoever may hold a pod may do so, and end it, a hundred times a second.
	reportEvery = 3 * time.Second
	// retryAfter is after a patch that failed; conflicts and a busy apiserver end by themselves.
	retryAfter = 10 * time.Second
)

// New returns a Reporter. client is for the core group, with the node's identity; online reports whether the cloud
// can be reached.
func New(client rest.Interface, pods *nodepods.Pods, online func() bool, log *slog.Logger) *Reporter {
	return &Reporter{client: client, pods: pods, online: online, log: log, again: make(chan struct{}, 1)}
}

// Changed has the sources asked again. It does not block. It is called when a source has something
// else to report, when pods have changed, and when the cloud is back.
func (r *Reporter) Changed() {
	select {
	case r.again <- struct{}{}:
	default:
	}
}

// Run reports what the sources have to report, until ctx ends.
func (r *Reporter) Run(ctx context.Context, sources ...Source) {
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.again:
		case <-retry.C:
		}
		if !r.pods.Synced() || !r.online() {
			continue // Changed is called when that changes
		}
		if again := r.reportAll(ctx, sources); again > 0 {
			retry.Reset(again)
		}
	}
}

// reportAll returns after which time to call it again; 0 if all pods have what they should.
func (r *Reporter) reportAll(ctx context.Context, sources []Source) (again time.Duration) {
	var all sync.WaitGroup
	failed := make(chan struct{}, 1)
	slots := make(chan struct{}, 4) // requests at a time
	sent := map[types.UID]time.Time{}
	for _, pod := range r.pods.All() {
		last, ok := r.sent[pod.UID]
		if ok {
			sent[pod.UID] = last
		}
		patch := Patch(pod, sources, time.Now())
		if patch == nil {
			continue
		}
		if wait := reportEvery - time.Since(last); ok && wait > 0 {
			again = cmp.Or(min(again, wait), wait)
			continue
		}
		sent[pod.UID] = time.Now()
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			if err := r.send(ctx, pod, patch); err != nil && ctx.Err() == nil {
				r.log.Warn("the state of a pod was not reported to the cloud, it is tried again",
					"pod", pod.Namespace+"/"+pod.Name, "uid", string(pod.UID), "err", err)
				select {
				case failed <- struct{}{}:
				default:
				}
			}
		})
	}
	all.Wait()
	r.sent = sent
	if again == 0 && len(failed) > 0 {
		again = retryAfter
	}
	return again
}

func (r *Reporter) send(ctx context.Context, pod *corev1.Pod, patch []byte) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := r.client.Patch(types.StrategicMergePatchType).
		Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("status").
		Body(patch).MaxRetries(0).Do(ctx).Error()
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it is another pod by now: the watch brings it
	}
	return err
}

type patch struct {
	Metadata struct {
		UID         types.UID          `json:"uid"` // the apiserver refuses another pod of this name
		Annotations map[string]*string `json:"annotations,omitempty"`
	} `json:"metadata"`
	Status struct {
		Conditions []corev1.PodCondition `json:"conditions,omitempty"`
	} `json:"status"`
}

// Patch returns the strategic merge patch of a pod's status that gives it what the sources report,
// or nil if it has it.
func Patch(pod *corev1.Pod, sources []Source, now time.Time) []byte {
	var p patch
	p.Metadata.UID = pod.UID
	p.Metadata.Annotations = map[string]*string{}
	for _, source := range sources {
		want := source(pod)
		for key, value := range want.Annotations {
			have, ok := pod.Annotations[key]
			switch {
			case value == "" && ok:
				p.Metadata.Annotations[key] = nil
			case value != "" && (!ok || have != value):
				p.Metadata.Annotations[key] = &value
			}
		}
		for _, c := range want.Conditions {
			have := api.Condition(pod, c.Type)
			if have != nil && have.Status == c.Status && have.Reason == c.Reason && have.Message == c.Message {
				continue
			}
			c.LastTransitionTime = metav1.NewTime(now)
			if have != nil && have.Status == c.Status {
				c.LastTransitionTime = have.LastTransitionTime
			}
			p.Status.Conditions = append(p.Status.Conditions, c)
		}
	}
	if len(p.Metadata.Annotations)+len(p.Status.Conditions) == 0 {
		return nil
	}
	b, err := json.Marshal(p)
	if err != nil {
		panic("podreport: encode patch: " + err.Error()) // strings and times
	}
	return b
}
