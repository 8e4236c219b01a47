package podstatus

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func waiting(reason string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
}

func ended(reason string, code, signal int32) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: reason, ExitCode: code, Signal: signal}}
}

func running() corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
}

func container(name string, ready bool, restarts int32, state corev1.ContainerState) corev1.ContainerStatus {
	started := state.Running != nil
	return corev1.ContainerStatus{Name: name, Ready: ready, RestartCount: restarts, State: state, Started: &started}
}

// podOf has the containers app and log behind the init containers setup and proxy, of
// which proxy is a sidecar.
func podOf(phase corev1.PodPhase, init, containers []corev1.ContainerStatus, change ...func(*corev1.Pod)) *corev1.Pod {
	always := corev1.ContainerRestartPolicyAlways
	pod := &corev1.Pod{}
	pod.Spec.InitContainers = []corev1.Container{{Name: "setup"}, {Name: "proxy", RestartPolicy: &always}}
	pod.Spec.Containers = []corev1.Container{{Name: "app"}, {Name: "log"}}
	pod.Status = corev1.PodStatus{Phase: phase, InitContainerStatuses: init, ContainerStatuses: containers}
	for _, c := range change {
		c(pod)
	}
	return pod
}

func condition(t corev1.PodConditionType, status corev1.ConditionStatus, reason string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: t, Status: status, Reason: reason})
	}
}

func reason(s string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Status.Reason = s } }

func alwaysRestarted(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyAlways }

func deleted(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }

// What kubectl itself shows is compared with all this in test/integration/ota.
func TestAPodInTheWordsOfKubectl(t *testing.T) {
	type all = []corev1.ContainerStatus
	isReady := condition(corev1.PodReady, corev1.ConditionTrue, "")
	isInitialized := condition(corev1.PodInitialized, corev1.ConditionTrue, "")
	setUp := container("setup", false, 2, ended("Completed", 0, 0))
	initialized := all{setUp, container("proxy", true, 1, running())}
	app, log := container("app", true, 0, running()), container("log", true, 3, running())
	done := container("app", false, 0, ended("Completed", 0, 0))
	tests := map[string]struct {
		pod             *corev1.Pod
		ready           string
		status          string
		restarts        int32
		reason, because string // of the failure
	}{
		"it runs":                         {podOf("Running", initialized, all{app, log}, isReady, isInitialized), "3/3", "Running", 4, "", ""},
		"a sidecar is not ready":          {podOf("Running", all{setUp, container("proxy", false, 0, running())}, all{app, log}, isInitialized), "2/3", "Running", 3, "", ""},
		"one crashes":                     {podOf("Running", initialized, all{container("app", false, 5, waiting("CrashLoopBackOff")), log}, isInitialized), "2/3", "CrashLoopBackOff", 9, "CrashLoopBackOff", "app"},
		"the first one counts":            {podOf("Pending", initialized, all{container("app", false, 0, waiting("ErrImagePull")), container("log", false, 0, waiting("ImagePullBackOff"))}, isInitialized), "1/3", "ErrImagePull", 1, "ErrImagePull", "app"},
		"it was just created":             {podOf("Pending", nil, nil), "0/3", "Pending", 0, "", ""},
		"it is being created":             {podOf("Pending", initialized, all{container("app", false, 0, waiting("ContainerCreating")), log}, isInitialized), "2/3", "ContainerCreating", 4, "", ""},
		"its sidecar has yet to start":    {podOf("Pending", all{setUp, container("proxy", false, 0, waiting("PodInitializing"))}, all{container("app", false, 0, waiting("PodInitializing"))}), "0/3", "Init:1/2", 2, "", ""},
		"it sets up":                      {podOf("Pending", all{container("setup", false, 0, running())}, nil), "0/3", "Init:0/2", 0, "", ""},
		"its init container crashes":      {podOf("Pending", all{container("setup", false, 7, waiting("CrashLoopBackOff"))}, nil), "0/3", "Init:CrashLoopBackOff", 7, "CrashLoopBackOff", "setup"},
		"its init image is not there":     {podOf("Pending", all{container("setup", false, 0, waiting("ErrImagePull"))}, nil), "0/3", "Init:ErrImagePull", 0, "ErrImagePull", "setup"},
		"its init container failed":       {podOf("Pending", all{container("setup", false, 1, ended("Error", 1, 0))}, nil), "0/3", "Init:Error", 1, "CrashLoopBackOff", "setup"},
		"its init container was killed":   {podOf("Pending", all{container("setup", false, 1, ended("", 137, 9))}, nil), "0/3", "Init:Signal:9", 1, "CrashLoopBackOff", "setup"},
		"its init container exited":       {podOf("Pending", all{container("setup", false, 1, ended("", 4, 0))}, nil), "0/3", "Init:ExitCode:4", 1, "CrashLoopBackOff", "setup"},
		"one has exited":                  {podOf("Running", initialized, all{container("app", false, 0, ended("", 3, 0)), log}), "2/3", "ExitCode:3", 4, "", ""},
		"one was killed":                  {podOf("Running", initialized, all{container("app", false, 0, ended("", 137, 9)), log}), "2/3", "Signal:9", 4, "", ""},
		"one is done, and the pod Ready":  {podOf("Running", initialized, all{done, log}, isReady), "2/3", "Running", 4, "", ""},
		"one is done, and the pod is not": {podOf("Running", initialized, all{done, log}), "2/3", "NotReady", 4, "", ""},
		"one is done, and one has failed": {podOf("Running", initialized, all{done, container("log", false, 0, ended("Error", 2, 0))}), "1/3", "Error", 1, "", ""},
		"one has exited again":            {podOf("Running", initialized, all{container("app", false, 1, ended("Error", 3, 0)), log}), "2/3", "Error", 5, "CrashLoopBackOff", "app"},
		"one is done again":               {podOf("Running", initialized, all{container("app", false, 1, ended("Completed", 0, 0)), log}, alwaysRestarted), "2/3", "NotReady", 5, "CrashLoopBackOff", "app"},
		"one is done, and was once":       {podOf("Running", initialized, all{container("app", false, 1, ended("Completed", 0, 0)), log}), "2/3", "NotReady", 5, "", ""},
		"its sidecar is done again":       {podOf("Running", all{setUp, container("proxy", false, 1, ended("Completed", 0, 0))}, all{app, log}, isReady, isInitialized), "2/3", "Running", 4, "CrashLoopBackOff", "proxy"},
		"its init container fails once":   {podOf("Pending", all{container("setup", false, 0, ended("Error", 1, 0))}, nil), "0/3", "Init:Error", 0, "", ""},
		"all are done":                    {podOf("Succeeded", all{setUp}, all{done, done}), "0/3", "Completed", 0, "", ""},
		"it was evicted":                  {podOf("Failed", nil, nil, reason("Evicted")), "0/3", "Evicted", 0, "Evicted", ""},
		"it failed":                       {podOf("Failed", nil, all{container("app", false, 1, ended("Error", 2, 0))}), "0/3", "Error", 1, "Failed", "app"},
		"it is deleted":                   {podOf("Running", initialized, all{app, log}, deleted), "3/3", "Terminating", 4, "", ""},
		"it is deleted and failed":        {podOf("Failed", nil, nil, reason("Evicted"), deleted), "0/3", "Evicted", 0, "Evicted", ""},
		"its node is lost":                {podOf("Running", initialized, all{app, log}, reason("NodeLost"), deleted), "3/3", "Unknown", 4, "", ""},
		"it waits for a gate":             {podOf("Pending", nil, nil, condition(corev1.PodScheduled, corev1.ConditionFalse, "SchedulingGated")), "0/3", "SchedulingGated", 0, "", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Of(tt.pod); fmt.Sprintf("%d/%d", got.Ready, got.Containers) != tt.ready || got.Status != tt.status || got.Restarts != tt.restarts {
				t.Errorf("got %+v, want %s %s %d", got, tt.ready, tt.status, tt.restarts)
			}
			f := FailureOf(tt.pod)
			if (f == nil) != (tt.reason == "") || f != nil && (f.Reason != tt.reason || f.Container != tt.because) {
				t.Errorf("got failure %+v, want %q of %q", f, tt.reason, tt.because)
			}
		})
	}
}

// What kubelet has rejected has no statuses of containers, or those of containers that were never started.
func TestPodsThatKubeletDoesNotTryAgain(t *testing.T) {
	type all = []corev1.ContainerStatus
	neverStarted := corev1.ContainerStatus{Name: "app", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}
	exited := container("app", false, 0, ended("Error", 137, 9))
	for name, tt := range map[string]struct {
		pod             *corev1.Pod
		ended, rejected bool
	}{
		"it is rejected":                      {podOf("Failed", nil, nil, reason("OutOfcpu")), true, true},
		"it is rejected, with statuses":       {podOf("Failed", nil, all{neverStarted}, reason("UnexpectedAdmissionError")), true, true},
		"it is evicted while it runs":         {podOf("Failed", nil, all{exited}, reason("Evicted")), true, false},
		"its only init container had started": {podOf("Failed", all{exited}, all{neverStarted}, reason("Evicted")), true, false},
		"it waits for its images":             {podOf("Pending", nil, all{neverStarted}), false, false},
		"it crashes":                          {podOf("Running", nil, all{exited}), false, false},
	} {
		if ended, rejected := Ended(tt.pod); ended != tt.ended || rejected != tt.rejected {
			t.Errorf("%s: ended %v, rejected %v", name, ended, rejected)
		}
	}
}

func TestAFailureIsOneLineThatIsSafeToPrint(t *testing.T) {
	pod := podOf("Running", nil, []corev1.ContainerStatus{container("app", false, 2, waiting("CrashLoopBackOff"))})
	last := ended("OOMKilled", 137, 9)
	last.Terminated.Message = "a\x1b]0;title\x07\nb\u202e" + strings.Repeat("x", 5000)
	pod.Status.ContainerStatuses[0].LastTerminationState = last
	got := FailureOf(pod).String()
	if want := "container app: CrashLoopBackOff, restarts: 2, last exit code 137 (signal 9), OOMKilled, a ]0;title b xxx"; !strings.HasPrefix(got, want) || len(got) > 500 {
		t.Errorf("got %d bytes: %q, want %q...", len(got), got, want)
	}
}

func TestRestartsOfAllContainers(t *testing.T) {
	pod := podOf("Running", []corev1.ContainerStatus{container("setup", false, 2, running())}, []corev1.ContainerStatus{container("app", true, 3, running())})
	if got := Restarts(pod); got != 5 {
		t.Errorf("got %d", got)
	}
}
