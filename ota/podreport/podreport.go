// Package podreport writes what the hub has to report of its pods to the cloud: annotations and
// conditions of pods, now or when the cloud is back.
package podreport

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/nodepods"
)

// Report is what a pod should have. What it does not name stays as it is.
type Report struct {
	// Annotations are the values by key; "" is no such annotation.
	Annotations map[string]string
	// Conditions are without times; one without status is no such condition.
	Conditions []corev1.PodCondition
}

// Source returns what it has to report of a pod, always the whole of it: it is asked again until
// the pod has it. It must be safe for concurrent use.
type Source func(pod *corev1.Pod) Report

// Reporter is safe for concurrent use.
type Reporter struct {
	client   rest.Interface
	pods     *nodepods.Pods
	online   func() bool
	log      *slog.Logger
	again    chan struct{} // one message stands for any number of changes
	returned atomic.Bool   // the cloud is back

	attempts map[types.UID]*attempts // of pods that were reported; Run's alone
}

// attempts are those to report one pod.
type attempts struct {
	pace     *rate.Limiter
	sent     string    // the last patch, without times
	retry    time.Time // when it is repeated
	failures int       // in a row
	problem  string    // of the last
}

const (
	requestTimeout = 30 * time.Second
	// settle collects changes that come together.
	settle = 200 * time.Millisecond
	// reportEvery is how often a pod is reported at most, after reportsAtOnce: whoever may hold a pod may do so, and end it,
	// a hundred times a second.
	reportEvery   = 3 * time.Second
	reportsAtOnce = 2
	// firstRetry is when a patch is repeated that failed, or whose effect the watch does not show: it is lost. After
	// failures that doubles up to longestRetry; conflicts and a busy apiserver end by themselves.
	firstRetry, longestRetry = 10 * time.Second, 5 * time.Minute
)

// New returns a Reporter. client is for the core group, with the node's identity; online reports whether the cloud
// can be reached.
func New(client rest.Interface, pods *nodepods.Pods, online func() bool, log *slog.Logger) *Reporter {
	return &Reporter{client: client, pods: pods, online: online, log: log, again: make(chan struct{}, 1), attempts: map[types.UID]*attempts{}}
}

// Changed has the sources asked again. It does not block. It is called when a source has something
// else to report, and when pods have changed.
func (r *Reporter) Changed() {
	select {
	case r.again <- struct{}{}:
	default:
	}
}

// CloudReturned has all pods reported that do not have what they should. It does not block.
func (r *Reporter) CloudReturned() {
	r.returned.Store(true)
	r.Changed()
}

// Now reports what one source has to report of all pods, and returns when the cloud has answered, or when ctx has ended. It is for
// what the cloud has to know before something else.
func (r *Reporter) Now(ctx context.Context, source Source) error {
	if !cache.WaitForCacheSync(ctx.Done(), r.pods.Synced) {
		return ctx.Err()
	}
	var errs []error
	for _, pod := range r.pods.All() {
		if body := Patch(pod, []Report{source(pod)}, time.Now()); body != nil {
			errs = append(errs, r.send(ctx, pod, body))
		}
	}
	return errors.Join(errs...)
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
		select {
		case <-ctx.Done():
			return
		case <-time.After(settle):
		}
		if !r.pods.Synced() || !r.online() {
			continue // Changed or CloudReturned is called when that changes
		}
		if r.returned.Swap(false) {
			clear(r.attempts)
		}
		if again := r.reportAll(ctx, sources); again > 0 {
			retry.Reset(again)
		}
	}
}

// reportAll returns after which time to call it again; 0 if all pods have what they should.
func (r *Reporter) reportAll(ctx context.Context, sources []Source) (again time.Duration) {
	var all sync.WaitGroup
	slots := make(chan struct{}, 4) // requests at a time
	known, sent := map[types.UID]*attempts{}, []*attempts{}
	for _, pod := range r.pods.All() {
		a := r.attempts[pod.UID]
		if a != nil {
			known[pod.UID] = a
		}
		patch := string(Patch(pod, ask(pod, sources), time.Time{}))
		if patch == "" {
			continue
		}
		if a == nil {
			a = &attempts{pace: rate.NewLimiter(rate.Every(reportEvery), reportsAtOnce)}
			known[pod.UID] = a
		}
		if wait := a.wait(patch); wait > 0 {
			again = cmp.Or(min(again, wait), wait)
			continue
		}
		sent = append(sent, a)
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			reports := ask(pod, sources) // they may have changed while others were sent
			body := Patch(pod, reports, time.Now())
			if body == nil {
				return
			}
			if err := r.send(ctx, pod, body); ctx.Err() == nil {
				r.keep(a, pod, string(Patch(pod, reports, time.Time{})), err)
			}
		})
	}
	all.Wait()
	r.attempts = known
	for _, a := range sent {
		wait := max(settle, time.Until(a.retry))
		again = cmp.Or(min(again, wait), wait)
	}
	return again
}

func ask(pod *corev1.Pod, sources []Source) []Report {
	var reports []Report
	for _, source := range sources {
		reports = append(reports, source(pod))
	}
	return reports
}

// wait returns how long to wait until a patch is sent: a repeated one, and one after a failure, longer than another.
func (a *attempts) wait(patch string) time.Duration {
	if wait := time.Until(a.retry); wait > 0 && (patch == a.sent || a.failures > 0) {
		return wait
	}
	turn := a.pace.Reserve()
	wait := turn.Delay()
	if wait > 0 {
		turn.Cancel()
	}
	return wait
}

// keep keeps the result of an attempt. It logs a problem once.
func (r *Reporter) keep(a *attempts, pod *corev1.Pod, patch string, err error) {
	a.sent = patch
	if err == nil {
		a.failures, a.problem, a.retry = 0, "", time.Now().Add(firstRetry)
		return
	}
	a.failures++
	b := wait.Backoff{Duration: firstRetry, Factor: 2, Cap: longestRetry, Jitter: 0.25, Steps: a.failures}
	for range a.failures - 1 {
		b.Step()
	}
	pause := b.Step()
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		pause = max(pause, time.Duration(seconds)*time.Second)
	}
	a.retry = time.Now().Add(pause)
	if a.problem != err.Error() {
		a.problem = err.Error()
		r.log.Warn("the state of a pod was not reported to the cloud, it is tried again",
			"pod", pod.Namespace+"/"+pod.Name, "uid", string(pod.UID), "err", err)
	}
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

// Apply gives a pod, which is the caller's own, what is reported of it. at is when the conditions came to be, where they are new.
func (r Report) Apply(pod *corev1.Pod, at time.Time) {
	for key, value := range r.Annotations {
		if delete(pod.Annotations, key); value != "" {
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, key, value)
		}
	}
	for _, c := range r.Conditions {
		have := api.Condition(pod, c.Type)
		if c.LastTransitionTime = metav1.NewTime(at); have != nil && have.Status == c.Status {
			c.LastTransitionTime = have.LastTransitionTime
		}
		pod.Status.Conditions = slices.DeleteFunc(pod.Status.Conditions, func(old corev1.PodCondition) bool { return old.Type == c.Type })
		if c.Status != "" {
			pod.Status.Conditions = append(pod.Status.Conditions, c)
		}
	}
}

type patch struct {
	Metadata struct {
		UID         types.UID          `json:"uid"` // the apiserver refuses another pod of this name
		Annotations map[string]*string `json:"annotations,omitempty"`
	} `json:"metadata"`
	Status struct {
		Conditions []any `json:"conditions,omitempty"`
	} `json:"status"`
}

// Patch returns the strategic merge patch of a pod's status that gives it what is reported of it,
// or nil if it has it.
func Patch(pod *corev1.Pod, reports []Report, now time.Time) []byte {
	var p patch
	p.Metadata.UID = pod.UID
	p.Metadata.Annotations = map[string]*string{}
	for _, want := range reports {
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
			if c.Status == "" {
				if have != nil {
					p.Status.Conditions = append(p.Status.Conditions, map[string]any{"type": c.Type, "$patch": "delete"})
				}
				continue
			}
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
