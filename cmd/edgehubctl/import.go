package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/cmd/edgehubctl/cri"
	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/imagepull/engine"
	"github.com/edgehub-io/edgehub/imagepull/engine/archive"
	"github.com/edgehub-io/edgehub/imagepull/engineapi"
	"github.com/edgehub-io/edgehub/ota/api"
)

// imported is one image of the output of import as JSON, an interface to scripts.
type imported struct {
	Image  string `json:"image"`
	Digest string `json:"digest"`
	Bytes  int64  `json:"bytes"`
	// Pods are those whose next version it is of, and which the hub retains it for.
	Pods []string `json:"pods,omitempty"`
}

// importFile brings the images of a file into containerd that pods of this node name, and has the hub retain those of their
// next versions. See package engine for who does what.
func (c *call) importFile(ctx context.Context, words []string) error {
	if len(words) != 1 {
		return cli.WrongUse("want one FILE, or - for stdin, got %s", cli.Plural(len(words), "word"))
	}
	if c.minFree < 0 || c.minFree > 99 {
		return cli.WrongUse("--min-free=%d: want a percentage below 100", c.minFree)
	}
	return c.on(func(ctx context.Context, c *call) error { return importFrom(ctx, c, words[0]) })(ctx, nil)
}

func importFrom(ctx context.Context, c *call, path string) error {
	ctx, cancel := c.limited(ctx)
	defer cancel()
	pods, err := c.hub.Pods(ctx) // first: without the hub, nobody knows what pods need
	if err != nil {
		return err
	}
	file := os.Stdin
	if path != "-" {
		if file, err = os.Open(path); err != nil {
			return err
		}
		defer func() { _ = file.Close() }() // only read
	}
	all, envelope, err := c.importImages(ctx, file, pods)
	if err != nil && ctx.Err() != nil {
		return c.unfinished(ctx, "reading it", "Nothing of it was imported")
	}
	if err != nil {
		return fmt.Errorf("nothing of %s was imported: %w", cmp.Or(strings.TrimPrefix(path, "-"), "stdin"), err)
	}
	if envelope != nil {
		return c.offer(ctx, envelope, all)
	}
	return c.adopt(ctx, all)
}

// noRuntime returns in plain words why containerd cannot be asked, nil if it can.
func (c *call) noRuntime() error {
	node, err := cri.Open(c.container.endpoint, c.pace)
	if err != nil {
		return err
	}
	return node.Close()
}

// imagesOf returns the images that pods name, by their full names, and for each the pods whose next versions do.
func imagesOf(pods []*corev1.Pod) map[string][]string {
	all := map[string][]string{}
	add := func(images []api.TargetImage, ahead ...string) {
		for _, i := range images {
			if name, err := engineapi.Normalize(i.Image); err == nil {
				all[name] = slices.Compact(append(all[name], ahead...))
			}
		}
	}
	for _, pod := range pods {
		add(api.NewTarget("", &pod.Spec).Images())
		if target, ok, err := api.TargetOf(pod); ok && err == nil {
			add(target.Images(), pod.Namespace+"/"+pod.Name)
		}
	}
	return all
}

// importImages imports the images of a file that pods name, or those of a signed bundle, whose envelope it returns.
func (c *call) importImages(ctx context.Context, file *os.File, pods []*corev1.Pod) (_ []imported, envelope []byte, err error) {
	const withoutImages = 4 * api.MaxUpgradeBundle // more than such a bundle has, the only one that can do without containerd
	noRuntime := c.noRuntime()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	show, began := c.progressReporter(), time.Now()
	report := func(format string, values ...any) { show(fmt.Sprintf(format, values...), time.Since(began)) }
	plain, err := c.plain(ctx, file, func(n int64) {
		if noRuntime != nil && n > withoutImages {
			cancel(noRuntime)
			return
		}
		report("%s read", cli.Size(n&^(64<<20-1)))
	})
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = plain.Close() }() // only read from now on
	a, err := archive.Open(plain)
	if err != nil {
		return nil, nil, err
	}
	envelope, signed, err := a.Member(api.UpgradeBundleFile, api.MaxUpgradeBundle)
	if err != nil {
		return nil, nil, err
	}
	var wanted []engine.Wanted
	var named map[string][]string
	if signed {
		wanted, err = c.signedImages(ctx, a, envelope)
	} else {
		named = imagesOf(pods)
		wanted, err = c.namedImages(a, named)
	}
	if err != nil || len(wanted) == 0 {
		return []imported{}, envelope, err
	}
	if noRuntime != nil {
		return nil, nil, noRuntime
	}
	images, err := c.bring(ctx, a, wanted, report)
	if err != nil {
		return nil, nil, err
	}
	var all []imported
	for _, i := range images {
		all = append(all, imported{Image: i.Name, Digest: i.Target.Digest.String(), Bytes: i.Size, Pods: named[i.Name]})
	}
	return all, envelope, nil
}

// namedImages returns the images of a file that pods name, of which there is one at least.
func (c *call) namedImages(a *archive.Archive, named map[string][]string) ([]engine.Wanted, error) {
	var wanted []engine.Wanted
	for _, name := range slices.Sorted(maps.Keys(named)) {
		target, ok, err := a.Find(name)
		if err != nil {
			return nil, err
		}
		if ok {
			wanted = append(wanted, engine.Wanted{Image: name, Target: target, Ahead: len(named[name]) > 0})
		}
	}
	return wanted, c.leftOut(a, named, wanted)
}

// bring has the engine bring images into containerd, all or none.
func (c *call) bring(ctx context.Context, a *archive.Archive, wanted []engine.Wanted, report func(format string, values ...any)) ([]engineapi.Image, error) {
	e, err := engine.New(engine.Options{Address: c.container.endpoint, MinFree: c.minFree})
	if err != nil {
		return nil, err
	}
	images, err := e.Import(ctx, a, wanted, func(image string, p engineapi.Progress) {
		tenth := cli.Percent(p.Done, p.Total) / 10 * 10
		report("%s: %d%% of %s", image, tenth, cli.Size(p.Total))
	})
	return images, errors.Join(err, e.Close())
}

// plain returns a file as archive.Open needs it, or what the end of ctx is about: a pipe may bring nothing for hours.
func (c *call) plain(ctx context.Context, file *os.File, copied func(int64)) (*os.File, error) {
	folder := cmp.Or(os.Getenv("TMPDIR"), "/var/tmp") // /tmp may be in memory
	var plain *os.File
	done := make(chan error, 1) // nobody may wait for it any more
	go func() {
		var err error
		plain, err = archive.Plain(ctx, file, folder, c.minFree, copied)
		done <- err
	}()
	select {
	case err := <-done:
		return plain, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// leftOut says what of the file no pod names, and fails if that is all.
func (c *call) leftOut(a *archive.Archive, named map[string][]string, wanted []engine.Wanted) error {
	names, unnamed := a.Names()
	rest := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.ContainsFunc(wanted, func(w engine.Wanted) bool { return w.Image == name })
	})
	if len(wanted) > 0 {
		if len(rest) > 0 {
			fmt.Fprintf(c.err, "Left out, since no pod of this node names it: %s\n", strings.Join(rest, ", "))
		}
		return nil
	}
	if unnamed > 0 {
		names = append(names, cli.Plural(unnamed, "image")+" without a name")
	}
	missing := slices.DeleteFunc(slices.Sorted(maps.Keys(named)), func(name string) bool { return len(named[name]) == 0 })
	advice := "no pod of this node waits for an upgrade"
	if len(missing) > 0 {
		advice = "their next versions name " + strings.Join(missing, ", ") + "; save one under that whole name, and where it has a digest, as the registry has it, such as by skopeo copy --all docker://NAME oci-archive:FILE:NAME"
	}
	return fmt.Errorf("it has %s, which no pod of this node names: %s", cmp.Or(strings.Join(names, ", "), "no image"), advice)
}

// adopt has the hub retain what was imported ahead, and waits until it does. here are the full names of images that are on the node anyway.
func (c *call) adopt(ctx context.Context, all []imported, here ...string) error {
	pods := map[string]bool{}
	var text strings.Builder
	for _, i := range all {
		here = append(here, i.Image)
		for _, pod := range i.Pods {
			pods[pod] = true
		}
		fmt.Fprintf(&text, "%s: on the node, %s, %s\n", i.Image, cli.Size(i.Bytes), i.Digest)
	}
	if err := c.print(all, text.String()); err != nil {
		return err
	}
	var errs []error
	for _, word := range slices.Sorted(maps.Keys(pods)) {
		errs = append(errs, c.adoptFor(ctx, word, here))
	}
	return errors.Join(errs...)
}

func (c *call) adoptFor(ctx context.Context, word string, here []string) error {
	pod, err := c.podNamed(word)
	if err != nil {
		return err
	}
	path := api.ImagePullPath(pod.Namespace, pod.Name)
	if _, err := c.hub.Ask(ctx, http.MethodPost, path+"?"+api.ImportedParam+"=true"); err != nil {
		return fmt.Errorf("the images for pod %s are on the node, but the hub does not keep them: %w; to try that again: %s pull %s", pod, err, name, pod)
	}
	var state api.ImagePull
	if err := c.hub.Read(ctx, path, &state); err != nil {
		return err
	}
	var missing []string // which may need a registry that does not answer: nobody waits for these
	for _, i := range state.Images {
		full, _ := engineapi.Normalize(i.Image) // what is no name is missing, too
		if i.State != api.Ready && !slices.Contains(here, full) {
			missing = append(missing, i.Image)
		}
	}
	if len(missing) > 0 {
		fmt.Fprintf(c.err, "Pod %s also needs %s, which the file does not have: the hub pulls it\n", pod, strings.Join(missing, ", "))
		return nil
	}
	quiet := *c
	if c.output != "" {
		quiet.out = io.Discard // JSON has been printed
	}
	if err := quiet.followPull(ctx, pod); err != nil {
		return err
	}
	fmt.Fprintf(quiet.out, "To upgrade: %s upgrade %s\n", name, pod)
	return nil
}
