package view

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/ota/api"
)

// ImageChange is what an upgrade does to the image of one container, or of one volume that is
// an image.
type ImageChange struct {
	Container string `json:"container,omitempty"`
	Volume    string `json:"volume,omitempty"`
	// Now is "" for what only the new version has.
	Now string `json:"now,omitempty"`
	// AfterUpgrade is "" for what the new version no longer has, and for a
	// pod that needs no upgrade. It is null where this node does not know it.
	AfterUpgrade *string `json:"afterUpgrade"`
}

// imagesNow are the images that pod runs now.
func imagesNow(pod *corev1.Pod) []ImageChange {
	var out []ImageChange
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		out = append(out, ImageChange{Container: c.Name, Now: c.Image, AfterUpgrade: new("")})
	}
	if u, ok, err := api.OfflineUpgradeOf(pod); ok && err == nil && u.Revision == api.RunsOffline(pod) {
		for _, c := range u.Images { // the spec is the cloud's
			if i := slices.IndexFunc(out, func(have ImageChange) bool { return have.Container == c.Name }); i >= 0 {
				out[i].Now = c.Image
			}
		}
	}
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.Image != nil && v.Image.Reference != "" {
			out = append(out, ImageChange{Volume: v.Name, Now: v.Image.Reference, AfterUpgrade: new("")})
		}
	}
	return out
}

// imagesAfter adds the images after an upgrade of pod to revision, which the controller has written on the pod; where it has not,
// they are unknown.
func imagesAfter(now []ImageChange, pod *corev1.Pod, revision string) []ImageChange {
	if target, ok, err := api.TargetOf(pod); ok && err == nil && target.Revision == revision {
		return imagesOfTarget(now, target)
	}
	for i := range now {
		now[i].AfterUpgrade = nil
	}
	return now
}

// imagesOfTarget adds the images of target. Containers go by their names; a webhook that injects one may give it another name
// each time, so those that are left go by the repositories of their images.
func imagesOfTarget(now []ImageChange, target api.Target) []ImageChange {
	var after []ImageChange
	for _, c := range slices.Concat(target.InitContainers, target.Containers) {
		after = append(after, ImageChange{Container: c.Name, AfterUpgrade: &c.Image})
	}
	for _, v := range target.Volumes {
		after = append(after, ImageChange{Volume: v.Name, AfterUpgrade: &v.Image})
	}
	left := make([]*ImageChange, len(now)) // what none of after is the successor of
	for i := range now {
		left[i] = &now[i]
	}
	succeed := func(same func(now, after *ImageChange) bool) {
		after = slices.DeleteFunc(after, func(a ImageChange) bool {
			i := slices.IndexFunc(left, func(n *ImageChange) bool { return same(n, &a) })
			if i >= 0 {
				left[i].AfterUpgrade = a.AfterUpgrade
				left = slices.Delete(left, i, i+1)
			}
			return i >= 0
		})
	}
	succeed(func(now, after *ImageChange) bool {
		return now.Container == after.Container && now.Volume == after.Volume
	})
	succeed(func(now, after *ImageChange) bool {
		before, _ := splitImage(now.Now)
		then, _ := splitImage(*after.AfterUpgrade)
		return before == then && (now.Volume == "") == (after.Volume == "")
	})
	if !target.Admitted { // admission may add them again
		for _, n := range left {
			n.AfterUpgrade = nil
		}
	}
	return append(now, after...)
}

// splitImage splits an image into its repository and its version: the tag, the digest or
// both, with the separator in front.
func splitImage(image string) (repository, version string) {
	name := image[strings.LastIndex(image, "/")+1:] // a port may have a colon, too
	at := strings.IndexAny(name, ":@")
	if at < 0 {
		return image, ""
	}
	return image[:len(image)-len(name)+at], name[at:]
}

// MaxChanges is how many images are named; others are counted.
const MaxChanges = 2

// ImageChanges formats the images that an upgrade changes: app:v1 -> v2. It is empty for a pod
// that needs no upgrade.
func (r *Pod) ImageChanges(most int) string {
	if r.NeedsUpgrade == nil || !*r.NeedsUpgrade {
		return ""
	}
	var changes []string
	for i := range r.Images {
		if c := r.Images[i].String(); c != "" {
			changes = append(changes, c)
		}
	}
	if len(changes) == 0 {
		return "same images"
	}
	if more := len(changes) - most; more > 0 {
		changes = append(changes[:most], fmt.Sprintf("+%d", more))
	}
	return strings.Join(changes, ", ")
}

// String is "" for an image that stays as it is.
func (c *ImageChange) String() string {
	const arrow = " -> "
	repository, version := splitImage(c.Now)
	switch {
	case c.AfterUpgrade == nil:
		return shortImage(c.Now) + arrow + "unknown"
	case *c.AfterUpgrade == c.Now:
		return ""
	case c.Now == "":
		return "new " + shortImage(*c.AfterUpgrade)
	case *c.AfterUpgrade == "":
		return "no more " + shortImage(c.Now)
	}
	after := *c.AfterUpgrade
	if r, v := splitImage(after); r == repository && v != "" && version != "" {
		return shortImage(c.Now) + arrow + shortVersion(v)[1:]
	}
	if now, then := shortImage(c.Now), shortImage(after); now != then {
		return now + arrow + then
	}
	return c.Now + arrow + after // another registry, or a digest that begins alike
}

// shortImage leaves out the registry and most of a digest.
func shortImage(image string) string {
	repository, version := splitImage(image)
	return repository[strings.LastIndex(repository, "/")+1:] + shortVersion(version)
}

func shortVersion(version string) string {
	const enough = len("@sha256:") + 12
	tag, digest, ok := strings.Cut(version, "@")
	if !ok {
		return version
	}
	digest = "@" + digest
	return tag + digest[:min(len(digest), enough)]
}
