package successor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/edgehub-io/edgehub/controller/expectations"
)

// Policy is the ValidatingAdmissionPolicy that comes with the right to create pods, and leaves dry
// runs of it: a role cannot (deploy/admission).
const Policy = "edgehub-controller-dry-run"

// How long the answer to a proof counts. Whoever removes the policy leaves the controller with a
// right that is not used after an hour, and with a pod that is created and deleted, after a minute (right and policy may just
// have been applied, and the policy takes seconds to be in force), two, four, and so on, up to an hour. What an
// admin mends otherwise counts after a minute.
const (
	provedFor   = time.Hour
	unprovedFor = time.Minute
)

// Asker asks, as long as it is proved that it can create no pod other than as a dry run. A nil Asker asks
// nobody. It is safe for concurrent use.
type Asker struct {
	Client kubernetes.Interface
	// Namespace is where the proof is made: the controller's own.
	Namespace string
	// Logger gets a line when what is proved changes.
	Logger *slog.Logger

	mu       sync.Mutex
	missing  pace
	patches  pace
	until    time.Time // when it is to be proved again
	unproved string    // why it is not; "" if it is
	created  int       // how many proofs in a row have created a pod
}

// Ask returns what would become of a pod in place of old, of which it reads name, namespace and UID.
func (a *Asker) Ask(ctx context.Context, pod, old *corev1.Pod) Verdict {
	if a == nil {
		return Verdict{Result: Unknown, Why: "nobody was asked"}
	}
	if why := a.prove(ctx); why != "" {
		return Verdict{Result: Unknown, Why: why}
	}
	verdict := ask(ctx, a.Client, pod, old)
	verdict.Asked = true
	return verdict
}

// How many questions about missing pods are asked in a second, and as many about patches, for all workloads together and for those
// of a namespace: whoever may create DaemonSets can have many whose pods are refused, and each question goes through the cluster's
// webhooks. The client may send 500 requests a second by default (--kube-api-qps).
const (
	perSecond = 20
	perSpace  = 5
)

// pace bounds questions.
type pace struct {
	all *rate.Limiter
	by  map[string]*rate.Limiter // of workloads in a namespace
}

// allows reports whether a question may be asked now, and counts it.
func (p *pace) allows(namespace string) bool {
	if p.all == nil {
		p.all, p.by = rate.NewLimiter(perSecond, 2*perSecond), map[string]*rate.Limiter{}
	}
	own := p.by[namespace]
	if own == nil {
		own = rate.NewLimiter(perSpace, 2*perSpace)
		p.by[namespace] = own
	}
	now := time.Now()
	return own.AllowN(now, 1) && p.all.AllowN(now, 1)
}

// MayAsk reports whether a question about a missing pod of a namespace may be asked now, and counts it.
func (a *Asker) MayAsk(namespace string) bool {
	if a == nil {
		return true // nobody is asked
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.missing.allows(namespace)
}

// MayAskPatch is MayAsk for AskPatch.
func (a *Asker) MayAskPatch(namespace string) bool {
	if a == nil {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.patches.allows(namespace)
}

// BarePod returns a pod that asks for nothing, as the apiserver would create it.
func (a *Asker) BarePod(ctx context.Context) (*corev1.Pod, error) {
	pod := proof()
	pod.Namespace = a.Namespace
	verdict := a.Ask(ctx, pod, pod)
	if verdict.Pod == nil {
		return nil, errors.New(cmp.Or(verdict.Why, "admission of the pod ended without an object"))
	}
	return verdict.Pod, nil
}

// prove returns why nobody may be asked, or "".
func (a *Asker) prove(ctx context.Context) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if now.Before(a.until) {
		return a.unproved
	}
	first, before := a.until.IsZero(), a.unproved
	var created bool
	a.unproved, created = a.tryToCreate(ctx)
	switch {
	case created:
		a.until = now.Add(min(unprovedFor<<min(a.created, 10), provedFor))
		a.created++
	case a.unproved != "":
		a.until = now.Add(unprovedFor)
	default:
		a.until, a.created = now.Add(provedFor), 0
	}
	switch {
	case a.unproved == before && !first:
	case a.unproved == "":
		a.Logger.Info("whether admission lets the next pod in is asked before a pod is deleted", "policy", Policy)
	default:
		a.Logger.Warn("whether admission lets the next pod in is not known before a pod is deleted: apply deploy/admission", "why", a.unproved)
	}
	return a.unproved
}

// denied is what the apiserver says for the policy.
var denied = regexp.MustCompile(`ValidatingAdmissionPolicy '` + Policy + `' with binding '[^']*' denied request`)

// tryToCreate creates a pod that would never run. It returns "" if the policy denies that, else what is wrong, and
// whether there was a pod.
func (a *Asker) tryToCreate(ctx context.Context) (wrong string, created bool) {
	pods := a.Client.CoreV1().Pods(a.Namespace)
	pod, err := pods.Create(ctx, proof(), metav1.CreateOptions{})
	switch {
	case err == nil:
		if err := pods.Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Sprintf("policy %s does not keep the controller from creating pods; delete pod %s/%s, which waits at a scheduling gate: %s", Policy, a.Namespace, pod.Name, expectations.QuoteError(err)), true
		}
		return fmt.Sprintf("policy %s does not keep the controller from creating pods", Policy), true
	case denied.MatchString(err.Error()):
		return "", false
	case noRight.MatchString(err.Error()):
		return "the controller has no right to create pods as dry runs", false
	}
	return "it cannot be proved that the controller creates pods as dry runs only: " + expectations.QuoteError(err), false
}

// proof is a pod that waits at a scheduling gate for ever, and that the strictest Pod Security
// Standard permits: that is looked at before the policy.
func proof() *corev1.Pod {
	yes, no := true, false
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "edgehub-proof-"},
		Spec: corev1.PodSpec{
			SchedulingGates:              []corev1.PodSchedulingGate{{Name: "edgehub.io/never"}},
			AutomountServiceAccountToken: &no,
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: &yes, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: "none", Image: "none.invalid/none",
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
}
