package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/cmd/edgehubctl/view"
	"github.com/edgehub-io/edgehub/imagepull/engine"
	"github.com/edgehub-io/edgehub/imagepull/engine/archive"
	"github.com/edgehub-io/edgehub/imagepull/engineapi"
	"github.com/edgehub-io/edgehub/ota/api"
)

// signedImages has the hub verify the envelope of a bundle, and returns the images that it names. What the file calls them does not
// count.
func (c *call) signedImages(ctx context.Context, a *archive.Archive, envelope []byte) ([]engine.Wanted, error) {
	var b api.UpgradeBundle
	if err := c.hub.Post(ctx, api.UpgradeBundles+"?"+api.DryRunParam+"="+api.DryRunAll, envelope, &b); err != nil {
		return nil, err
	}
	var wanted []engine.Wanted
	for _, image := range slices.Sorted(maps.Keys(b.Images)) {
		name, err := engineapi.Normalize(image)
		if err != nil {
			return nil, err
		}
		by := name
		if !strings.Contains(name, "@") {
			by += "@" + b.Images[image]
		}
		target, ok, err := a.Find(by)
		switch {
		case err != nil:
			return nil, err
		case !ok || target.Digest.String() != b.Images[image]:
			return nil, engineapi.Errorf(engineapi.Corrupt, "the file lacks image %s with digest %s, which its bundle names; make the bundle again", name, b.Images[image])
		}
		wanted = append(wanted, engine.Wanted{Image: name, Target: target, Ahead: true})
	}
	return wanted, nil
}

// offer has the hub take a bundle whose images are on the node, and retain them for the pods that need its version by now: the cloud may
// be there, and decide otherwise.
func (c *call) offer(ctx context.Context, envelope []byte, all []imported) error {
	var b api.UpgradeBundle
	if err := c.hub.Post(ctx, api.UpgradeBundles, envelope, &b); err != nil {
		but := ""
		if len(all) > 0 {
			but = "the images are on the node, but "
		}
		return fmt.Errorf("%sthe version of the bundle is not offered to any pod, as far as is known: %w; to try that again, import the file once more", but, err)
	}
	out := c.out
	if c.output != "" {
		out = c.err // stdout has the images
	}
	fmt.Fprintln(out, bundleText(&b))
	pods, err := c.hub.Pods(ctx)
	if err != nil {
		return err
	}
	o := offered{call: c, out: out, bundle: &b}
	o.look(pods)
	for i := range all {
		all[i].Pods = o.need
	}
	if err := c.adopt(ctx, all, o.here...); err != nil || len(all) > 0 {
		return err
	}
	return o.printMissing(ctx)
}

// bundleText is a line about a bundle that the hub has taken.
func bundleText(b *api.UpgradeBundle) string {
	to := "offered to pod " + strings.Join(b.Pods, ", pod ")
	if b.Problem != "" {
		to = "offered to no pod now: " + b.Problem
	}
	return fmt.Sprintf("Bundle of %s %s/%s, revision %d (%s), signed with key %s, counts until %s: %s",
		b.Kind, b.Namespace, b.Name, b.Number, b.Revision, b.Key, b.Expires.Local().Format(time.RFC3339), to)
}

// offered is a bundle that the hub has taken.
type offered struct {
	*call
	out    io.Writer // for people
	bundle *api.UpgradeBundle
	need   []string // its pods that need its version, as the hub shows them
	here   []string // full names of images that its pods run now
}

// look finds out which of its pods need its version, and prints the others.
func (o *offered) look(pods []*corev1.Pod) {
	for _, pod := range pods {
		word := pod.Namespace + "/" + pod.Name
		if !slices.Contains(o.bundle.Pods, word) {
			continue
		}
		for _, i := range api.NewTarget("", &pod.Spec).Images() {
			o.addHere(i.Image)
		}
		if next, ok := api.NextOf(pod); ok && next.Revision == o.bundle.Revision && view.NeedsUpgrade(pod) {
			o.need = append(o.need, word)
			continue
		}
		fmt.Fprintf(o.out, "Pod %s does not need revision %s as of now; once %s pods shows that it does: %s pull %s\n", word, o.bundle.Revision, name, name, word)
	}
}

func (o *offered) addHere(image string) {
	if full, err := engineapi.Normalize(image); err == nil {
		o.here = append(o.here, full)
	}
}

// printMissing prints which images of its version are not known to be on the node. The hub was not asked to pull them.
func (o *offered) printMissing(ctx context.Context) error {
	pulls, err := o.hub.ImagePulls(ctx)
	if err != nil {
		return err
	}
	for _, p := range pulls {
		for _, i := range p.Images {
			if i.State == api.Ready {
				o.addHere(i.Image)
			}
		}
	}
	var missing []string
	for _, i := range o.bundle.Containers {
		full, _ := engineapi.Normalize(i.Image) // what is no name is missing, too
		if !slices.Contains(o.here, full) && !slices.Contains(missing, i.Image) {
			missing = append(missing, i.Image)
		}
	}
	for _, pod := range o.need {
		if len(missing) == 0 {
			fmt.Fprintf(o.out, "To upgrade: %s upgrade %s\n", name, pod)
			continue
		}
		fmt.Fprintf(o.out, "Pod %s also needs %s, which the file does not have: %s pull %[1]s, or the import of another file, brings them\n", pod, strings.Join(missing, ", "), name)
	}
	return nil
}
