package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/cmd/kubectl-edgehub/progress"
	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/controller/rollback"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/controller/workload"
	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/bundle"
)

// permitsInPlace reports whether w permits upgrades in place without the cloud.
func permitsInPlace(w workload.Object) bool { return mayBundle(w) == nil }

// mayBundle returns why there can be no bundle for a workload, whatever its pods are.
func mayBundle(w workload.Object) error {
	inPlace, err := api.ParseOfflineUpgrade(w.GetAnnotations())
	strategy, problem := workload.StrategyOf(w)
	switch what := progress.NameOf(w); {
	case err != nil:
		return fmt.Errorf("%s: %w", what, err)
	case !inPlace:
		return fmt.Errorf("%s does not permit upgrades without the cloud: it needs the annotation %s: %s, and its nodes have to see that before they are offline",
			what, api.OfflineUpgradeAnnotation, api.OfflineUpgradeInPlace)
	case problem != "":
		return fmt.Errorf("%s: %s", what, problem)
	case strategy != daemonset.OTA:
		return fmt.Errorf("%s does not have the strategy OTA, with which owners upgrade: it needs the annotation %s: OTA", what, api.StrategyAnnotation)
	}
	return nil
}

func revisionOf(pod *corev1.Pod) string { return pod.Labels[appsv1.ControllerRevisionHashLabelKey] }

// notTheController ends an error about a mark that is not as the controller would write it.
const notTheController = "try again in some seconds; if that stays, somebody else than the controller has written its annotation " + api.TargetAnnotation + ", which deploy/admission prevents"

// readMarks returns the upgrade that the controller has written on the pods of w, by name, and what people should know about pods that
// cannot have it. Whoever may write pods may forge that, so it has to be what the revisions of w say.
func readMarks(w workload.Object, pods []*corev1.Pod, revisions []*appsv1.ControllerRevision) (_ *bundle.Bundle, warnings []string, err error) {
	b := &bundle.Bundle{Kind: string(workload.KindOf(w)), Namespace: w.GetNamespace(), Name: w.GetName(), UID: w.GetUID(), Bases: map[string][]api.ImageChange{}}
	what := progress.NameOf(w)
	if said, current := rollout.ReportOn(w); said != nil && !current {
		return nil, nil, fmt.Errorf("the controller has yet to see the last change of %s: try again in some seconds", what)
	}
	newest := workload.TargetRevision(w, revisions)
	if newest == nil {
		return nil, nil, fmt.Errorf("there is no revision of the last change of %s yet: try again in some seconds", what)
	}
	template, err := daemonset.TargetOf(newest)
	if err != nil {
		return nil, nil, err
	}
	history := rollback.NewRevisions(template.Revision, revisions, nil) // only rollbacks ask who restarts sidecars
	var first *corev1.Pod
	refused := map[string][]refusal{} // by base
	for _, pod := range pods {
		target, ok := api.NextOf(pod)
		if !ok {
			continue
		}
		base, changes, why := revisionOf(pod), target.InPlace, target.NotInPlace
		target.Prepull, target.Blocked, target.Asks, target.Answered, target.Unknown, target.InPlace, target.NotInPlace = nil, "", false, "", "", nil, ""
		switch {
		case target.Number <= 0:
			return nil, nil, fmt.Errorf("the controller has marked pod %s/%s without the number of its revision: it is older than this plugin, upgrade it", pod.Namespace, pod.Name)
		case target.Revision != template.Revision || target.Number != template.Number:
			return nil, nil, fmt.Errorf("pod %s/%s is marked for revision %s (number %d), and the newest of %s is %s (number %d): %s",
				pod.Namespace, pod.Name, target.Revision, target.Number, what, template.Revision, template.Number, notTheController)
		case first == nil:
			first, b.Target = pod, target
		case target.Encode() != b.Target.Encode():
			return nil, nil, fmt.Errorf("the controller is marking the pods of %s anew, %s/%s otherwise than %s/%s: try again in some seconds", what, pod.Namespace, pod.Name, first.Namespace, first.Name)
		}
		if len(changes) > 0 {
			why = api.NotInPlace(pod, changes) // by now
		}
		if len(changes) == 0 || why != "" {
			refused[base] = append(refused[base], refusal{pod, why})
			continue
		}
		found, problem := history.InPlace(pod, target)
		if problem == "" && !slices.Equal(found.Changes, changes) {
			problem = "these are not the images that differ"
		}
		if problem != "" {
			return nil, nil, fmt.Errorf("pod %s/%s is marked with an upgrade in place that the revisions of %s do not permit (%s): %s", pod.Namespace, pod.Name, what, problem, notTheController)
		}
		b.Bases[base] = changes
	}
	var all []refusal
	for _, base := range slices.Sorted(maps.Keys(refused)) {
		all = append(all, refused[base]...)
		if b.Bases[base] == nil {
			warnings = append(warnings, fmt.Sprintf("pods of revision %s cannot be upgraded with it: %s", base, mostly(refused[base])))
		}
	}
	for _, i := range b.Target.Images() {
		if !slices.Contains(template.Images(), i) {
			warnings = append(warnings, fmt.Sprintf("it names image %s of %s, too, which is not in the pod template: admission adds it, as far as the pods are marked", i.Image, i.Name))
		}
	}
	switch {
	case len(b.Bases) > 0:
		return b, warnings, nil
	case len(all) == 0:
		return nil, nil, fmt.Errorf("no pod of %s waits for an upgrade, as far as the controller has marked them", what)
	}
	return nil, nil, fmt.Errorf("no pod of %s can be upgraded without the cloud: %s", what, mostly(all))
}

// refusal is why a pod may not be upgraded in place; "" if that is not known yet.
type refusal struct {
	pod *corev1.Pod
	why string
}

// mostly returns the most frequent reason of some, which are not none, and a pod that has it.
func mostly(refused []refusal) string {
	count := map[string]int{}
	for _, r := range refused {
		count[r.why]++
	}
	most := refused[0]
	for _, r := range refused {
		if count[r.why] > count[most.why] {
			most = r
		}
	}
	return fmt.Sprintf("%s (%s, such as %s/%s)", cmp.Or(most.why, "the controller has yet to ask the apiserver, try again in some seconds"),
		cli.Plural(count[most.why], "pod"), most.pod.Namespace, most.pod.Name)
}
