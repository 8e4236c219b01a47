package main

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/cmd/kubectl-edgehub/imagetar"
	"github.com/edgehub-io/edgehub/cmd/kubectl-edgehub/progress"
	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/bundle"
)

// progressEvery is the time between two lines on how far the images are.
const progressEvery = 5 * time.Second

// bundleFlags are the flags of the command bundle beside --output.
type bundleFlags struct {
	key       string
	validFor  time.Duration
	images    bool
	platforms []string
}

func (f *bundleFlags) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&f.key, "key", "", "file with the private key that signs: ed25519, as PEM")
	fs.DurationVar(&f.validFor, "valid-for", 30*24*time.Hour, fmt.Sprintf("for how long nodes take it, at most %v", bundle.MaxValidity))
	fs.BoolVar(&f.images, "images", false, "put the images into the file, as the registry has them now")
	fs.StringSliceVar(&f.platforms, "platform", nil, "with --images: a platform of nodes, such as linux/arm64; several with commas or repeated; empty: those of the nodes")
}

// bundle writes a signed upgrade of a workload into a file.
func (c *call) bundle(ctx context.Context, words []string) error {
	n, err := parseName(words)
	if err != nil {
		return err
	}
	platforms, err := c.checkBundle()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(c.signing.key)
	if err != nil {
		return fmt.Errorf("read --key: %w", err)
	}
	key, err := bundle.ReadPrivateKey(text)
	if err != nil {
		return fmt.Errorf("--key %s: %w", c.signing.key, err)
	}
	to, err := c.open()
	if err != nil {
		return err
	}
	err = c.bundleOf(ctx, to, n, key, platforms)
	if err != nil && ctx.Err() != nil {
		return cli.Errorf(cli.Failed, "interrupted: %s was not written", c.output)
	}
	return err
}

// checkBundle refuses flags, and returns the platforms.
func (c *call) checkBundle() (platforms []imagetar.Platform, err error) {
	_, isTerminal := cli.Terminal(c.out)
	file, statErr := os.Stat(c.output)
	switch f := &c.signing; {
	case c.output == "":
		return nil, cli.WrongUse("want a file to write: --output FILE, or - for stdout")
	case c.output == "-" && isTerminal:
		return nil, cli.WrongUse("a bundle is no text for a terminal: --output FILE writes it to a file")
	case c.output != "-" && statErr == nil && !file.Mode().IsRegular():
		return nil, cli.WrongUse("--output=%s: it is there, and no file", c.output)
	case f.key == "":
		return nil, cli.WrongUse("want the key that signs it: --key FILE; `openssl genpkey -algorithm ed25519 -out FILE` makes one")
	case f.validFor < time.Minute || f.validFor > bundle.MaxValidity:
		return nil, cli.WrongUse("--valid-for=%v: want a duration from 1m to %v", f.validFor, bundle.MaxValidity)
	case len(f.platforms) > 0 && !f.images:
		return nil, cli.WrongUse("--platform is about the images: add --images, or leave it out")
	}
	for _, text := range c.signing.platforms {
		p, err := imagetar.ParsePlatform(text)
		if err != nil {
			return nil, cli.WrongUse("--platform: %w", err)
		}
		platforms = append(platforms, p)
	}
	return platforms, nil
}

func (c *call) bundleOf(ctx context.Context, to *cluster, n named, key ed25519.PrivateKey, platforms []imagetar.Platform) error {
	w, err := get(ctx, to, n)
	if err != nil {
		return err
	}
	if err := mayBundle(w); err != nil {
		return err
	}
	pods, err := podsOf(ctx, to, w)
	if err != nil {
		return err
	}
	revisions, err := revisionsOf(ctx, to, w)
	if err != nil {
		return err
	}
	b, warnings, err := readMarks(w, pods, revisions)
	if err != nil {
		return err
	}
	for _, warning := range warnings {
		fmt.Fprintln(c.err, "warning:", warning)
	}
	b.Issued = to.clock.now().UTC().Truncate(time.Second)
	b.Expires = b.Issued.Add(c.signing.validFor)
	keyName, err := c.keyFor(ctx, to, key.Public().(ed25519.PublicKey), b)
	if err != nil {
		return err
	}
	var images []*imagetar.Image
	if c.signing.images {
		if len(platforms) == 0 {
			if platforms, err = platformsOf(ctx, to, b, pods); err != nil {
				return err
			}
		}
		source, err := imagetar.NewSource(name + "/" + cli.Version())
		if err != nil {
			return err
		}
		defer source.Close()
		if images, err = resolve(ctx, source, b, platforms); err != nil {
			return err
		}
	}
	envelope, err := b.Sign(key)
	if err != nil {
		return fmt.Errorf("sign the bundle of %s: %w", progress.NameOf(w), err)
	}
	size, err := writeFile(c.output, cli.Raw(c.out), func(file io.Writer) error {
		return imagetar.Write(ctx, file, imagetar.File{Name: api.UpgradeBundleFile, Content: envelope}, images, c.copied())
	})
	if err != nil {
		return err
	}
	c.printBundle(b, keyName, images, size)
	return nil
}

// platformsOf returns the platforms of the nodes of the pods that a bundle is for.
func platformsOf(ctx context.Context, to *cluster, b *bundle.Bundle, pods []*corev1.Pod) (out []imagetar.Platform, err error) {
	seen, known := map[string]bool{}, map[imagetar.Platform]bool{}
	for _, pod := range pods {
		if node := pod.Spec.NodeName; node != "" && b.Bases[revisionOf(pod)] != nil && !seen[node] {
			seen[node] = true
			n, err := to.client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				continue
			} else if err != nil {
				return nil, fmt.Errorf("read the platform of node %s, which --platform would say: %w", node, err)
			}
			p := imagetar.Platform{OS: n.Status.NodeInfo.OperatingSystem, Architecture: n.Status.NodeInfo.Architecture}
			if p.Architecture != "" && !known[p] {
				known[p] = true
				out = append(out, p)
			}
		}
	}
	if len(out) == 0 {
		return nil, errors.New("no node of the pods says which platform it is: say it by --platform, such as linux/arm64")
	}
	return out, nil
}

// resolve returns the images of a bundle, each once, and sets their digests in the bundle.
func resolve(ctx context.Context, source *imagetar.Source, b *bundle.Bundle, platforms []imagetar.Platform) (out []*imagetar.Image, err error) {
	known := map[*imagetar.Image]bool{}
	b.Images = map[string]digest.Digest{}
	for _, t := range b.Target.Images() {
		i, err := source.Resolve(ctx, t.Image, platforms)
		if err != nil {
			return nil, err
		}
		b.Images[t.Image] = i.Digest
		if !known[i] {
			known[i] = true
			out = append(out, i)
		}
	}
	return out, nil
}

// copied returns a function that prints how many bytes are copied, every progressEvery.
func (c *call) copied() func(done, total int64) {
	last := time.Now()
	return func(done, total int64) {
		if time.Since(last) >= progressEvery {
			last = time.Now()
			fmt.Fprintf(c.err, "images: %s\n", cli.BytesOf(done, total))
		}
	}
}

// writeFile has write write a file of mode 0644, or stdout for "-", and returns its bytes. The file is under another name until all of
// it is on disk; then it replaces what is there.
func writeFile(path string, stdout io.Writer, write func(io.Writer) error) (size int64, err error) {
	if path == "-" {
		to := &counter{w: stdout}
		err := write(to)
		return to.n, err
	}
	temporary := fmt.Sprintf("%s.%08x.tmp", path, rand.Uint32())
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // it is no secret
	if err != nil {
		return 0, err
	}
	to := &counter{w: f}
	if err = write(to); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(temporary, path) // from here on it is there
	}
	if err != nil {
		return 0, errors.Join(err, os.Remove(temporary))
	}
	return to.n, nil
}

// counter counts the bytes that it writes.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// printBundle prints what is in the file.
func (c *call) printBundle(b *bundle.Bundle, key string, images []*imagetar.Image, size int64) {
	out, file := c.out, c.output
	if file == "-" {
		out, file = c.err, "FILE"
	}
	fmt.Fprintf(out, "%s: %s\n", c.output, cli.Size(size))
	line := func(label, text string) { fmt.Fprint(out, cli.Hanging(label+":", text, 13, cli.Width(out))) }
	line("workload", strings.ToLower(b.Kind)+" "+b.Namespace+"/"+b.Name)
	line("revision", fmt.Sprintf("%s, number %d", b.Target.Revision, b.Target.Number))
	line("for pods of", strings.Join(slices.Sorted(maps.Keys(b.Bases)), ", "))
	for _, i := range images {
		line("image", fmt.Sprintf("%s %s %s", i.Name, i.Digest, cli.Size(i.Size())))
	}
	if len(images) == 0 {
		line("images", "none in the file: a node needs to have them already, or --images puts them in")
	}
	line("valid until", b.Expires.Format(time.DateTime+" UTC"))
	line("key", cmp.Or(key, "of "+c.signing.key))
	fmt.Fprintf(out, "On the node: sudo edgehubctl import %s\n", filepath.Base(file))
}
