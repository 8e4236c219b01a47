package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cmd/edgehubctl/hubclient"
	"github.com/edgehub-io/edgehub/cmd/edgehubctl/view"
	"github.com/edgehub-io/edgehub/cmd/internal/cli"
)

const name = "edgehubctl"

// wide is an --output of tables: a line for each row, however long, and more columns.
const wide = "wide"

// call is one command as it was given: the values of the flags, what it is about, and where output goes.
type call struct {
	address   string
	tls       hubclient.TLSFiles
	namespace string
	output    string
	timeout   time.Duration
	noWait    bool
	cancel    bool
	wait      bool
	noPull    bool
	when      when
	all       bool
	force     bool
	length    time.Duration
	reason    string
	remove    bool
	to        string
	file      string
	minFree   int
	container containerFlags
	checkDir  string // with the owner's checks; another one in tests

	flags *pflag.FlagSet
	// pod is the one that the command is about, if any, and inPod what exec runs in it.
	pod      types.NamespacedName
	inPod    []string
	hub      *hubclient.Client
	out, err io.Writer
	timing
}

func (c *call) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.address, "address", cmp.Or(os.Getenv("EDGEHUB_ADDRESS"), "127.0.0.1:10267"), "HOST:PORT where the hub listens; the environment variable EDGEHUB_ADDRESS sets another default")
	fs.StringVar(&c.tls.CA, "certificate-authority", "", "file with the certificate of a hub that offers its API over TLS (--serve-client-ca-file), or with its CA")
	fs.StringVar(&c.tls.Cert, "client-certificate", "", "file with your client certificate for that hub")
	fs.StringVar(&c.tls.Key, "client-key", "", "file with the private key for --client-certificate")
	fs.StringVarP(&c.namespace, "namespace", "n", "", "namespace of the pod, if not given as NAMESPACE/POD; empty: default. With pods, queue, events and upgrade --all: this namespace only; empty: all")
	fs.StringVarP(&c.output, "output", "o", "", "json prints JSON, for programs; wide, of pods, queue, history, status and events, tables with a line for each row, however long, and more columns; empty: text that fits the terminal, or 80 columns")
	fs.DurationVar(&c.timeout, "timeout", 0, "how long to wait at most; 0: without limit")
	fs.BoolVar(&c.noWait, "no-wait", false, "request the pull, or wait until the container to restart has stopped, and no longer")
	fs.BoolVar(&c.cancel, "cancel", false, "cancel the pull, and release the images that are on the node")
	fs.BoolVar(&c.wait, "wait", false, "wait until the new pod, or the pod after its rollback, is Ready and stays Ready")
	fs.BoolVar(&c.noPull, "no-pull", false, "do not pull the images before the upgrade")
	fs.StringVar(&c.when.at, "at", "", "begin at this time: 2026-11-22T03:00:00+01:00, or 03:00 for the next 03:00 here")
	fs.StringVar(&c.when.window, "window", "", "begin within this part of a day, in the next one in which it can: 02:00-05:00")
	fs.StringVar(&c.when.timeZone, "tz", "", "IANA name of the time zone of --window, such as Europe/Berlin; empty: the hub's")
	fs.BoolVar(&c.all, "all", false, "every pod of this node that needs an upgrade, one after the other")
	fs.BoolVar(&c.force, "force", false, "in spite of a hold; with restart: although it is not known whether kubelet would start the container again")
	fs.DurationVar(&c.length, "for", 0, "how long to hold the pod, such as 2h")
	fs.StringVar(&c.reason, "reason", "", "with --for: why, for people; at most 200 bytes")
	fs.BoolVar(&c.remove, "remove", false, "end the hold")
	fs.StringVar(&c.to, "to", "", "revision to go back to, as history shows it; empty: the previous one")
	fs.StringVar(&c.file, "output-file", "", "file to write, which must not exist; -: stdout; empty: edgehub-NODE-TIME.tar.gz in this folder")
	fs.IntVar(&c.minFree, "min-free", 20, "percentage of the disk that an import leaves free, as --image-pull-min-free of the hub")
	c.container.add(fs)
}

func (c *call) program() *cli.Program {
	p := cli.NewProgram(name, name, help, cli.Usage, c.addFlags)
	p.Values = func(_ context.Context, flag, typed string) []string {
		switch flag {
		case "output-file", "certificate-authority", "client-certificate", "client-key":
			return cli.Files(typed)
		}
		return nil
	}
	c.flags = p.Flags
	text, table := []string{"json"}, []string{"json", wide}
	ofContainer := []string{"namespace", "container", "container-runtime-endpoint"}
	p.Commands = []cli.Command{
		{Name: "pods", Outputs: table, Flags: []string{"namespace"}, Run: c.on(pods)},
		{Name: "pull", Outputs: text, Flags: []string{"namespace", "no-wait", "timeout", "cancel"}, Args: c.podNames(view.NeedsUpgrade), Run: c.onPod(pull)},
		{
			Name: "upgrade", Outputs: text, Flags: []string{"namespace", "wait", "timeout", "no-pull", "at", "window", "tz", "all", "force"},
			Args: c.podNames(view.NeedsUpgrade), Run: c.upgrade,
		},
		{
			Name: "import", Outputs: text, Flags: []string{"timeout", "min-free", "container-runtime-endpoint"},
			Args: func(_ context.Context, _ []string, typed string) []string { return cli.Files(typed) }, Run: c.importFile,
		},
		{Name: "queue", Outputs: table, Flags: []string{"namespace"}, Run: c.on(queue)},
		{Name: "cancel", Outputs: text, Flags: []string{"namespace"}, Args: c.podNames(isOwned), Run: c.onPod(cancel)},
		{Name: "hold", Outputs: text, Flags: []string{"namespace", "for", "reason", "remove"}, Args: c.podNames(isOwned), Run: c.onPod(hold)},
		{Name: "rollback", Outputs: text, Flags: []string{"namespace", "to", "force", "wait", "timeout"}, Args: c.podNames(isOwned), Run: c.onPod(rollback)},
		{Name: "history", Outputs: table, Flags: []string{"namespace"}, Args: c.podNames(isOwned), Run: c.onPod(history)},
		{Name: "status", Outputs: table, Run: c.on(status)},
		{Name: "events", Outputs: table, Flags: []string{"namespace"}, Run: c.on(events)},
		{Name: "web", Outputs: text, Run: c.on(web)},
		{Name: "check", Outputs: text, Flags: []string{"namespace"}, Args: c.podNames(isAny), Run: c.check},
		{Name: "bundle", Outputs: text, Flags: []string{"output-file"}, Run: c.on(writeBundle)},
		{Name: "logs", Flags: append(ofContainer, "follow", "previous", "tail", "since"), Args: c.podNames(isAny), Run: c.onPod(logs)},
		{Name: "exec", Flags: append(ofContainer, "stdin", "tty"), Args: c.podNames(isAny), Run: c.exec},
		{Name: "restart", Flags: append(ofContainer, "no-wait", "timeout", "force"), Args: c.podNames(isAny), Run: c.onPod(restart)},
		p.Completion(c.out),
	}
	return p
}

// on has f asked of the hub, by a command line without further words.
func (c *call) on(f func(context.Context, *call) error) func(context.Context, []string) error {
	return func(ctx context.Context, words []string) (err error) {
		switch {
		case len(words) > 0:
			return cli.WrongUse("want nothing behind the command, got %s", cli.Plural(len(words), "word"))
		case c.timeout < 0:
			return cli.WrongUse("--timeout=%v: want a duration such as 10m", c.timeout)
		case c.noWait && c.timeout > 0:
			return cli.WrongUse("--timeout limits how long the command waits: leave it out, or --no-wait")
		}
		if c.hub, err = hubclient.New(c.address, c.tls); err != nil {
			return err
		}
		return f(ctx, c)
	}
}

// onPod is on for a command that is about one pod.
func (c *call) onPod(f func(context.Context, *call) error) func(context.Context, []string) error {
	return func(ctx context.Context, words []string) (err error) {
		if len(words) != 1 {
			return cli.WrongUse("want one POD, got %s", cli.Plural(len(words), "word"))
		}
		if c.pod, err = c.podNamed(words[0]); err != nil {
			return err
		}
		return c.on(f)(ctx, nil)
	}
}

// podNamed parses NAMESPACE/POD, or POD with -n or in the namespace default.
func (c *call) podNamed(word string) (types.NamespacedName, error) {
	namespace, pod, ok := strings.Cut(word, "/")
	if !ok {
		namespace, pod = cmp.Or(c.namespace, "default"), word
	}
	if namespace == "" || pod == "" || strings.Contains(pod, "/") {
		return types.NamespacedName{}, cli.WrongUse("%q: want a pod as NAMESPACE/POD, as edgehubctl pods shows them", word)
	}
	if ok && c.namespace != "" && c.namespace != namespace {
		return types.NamespacedName{}, cli.WrongUse("pod %s is not in namespace %s: leave -n out", word, c.namespace)
	}
	return types.NamespacedName{Namespace: namespace, Name: pod}, nil
}

func isAny(*corev1.Pod) bool { return true }

func isOwned(p *corev1.Pod) bool { return metav1.GetControllerOf(p) != nil }

// podNames completes the names of the pods that are wanted.
func (c *call) podNames(wanted func(*corev1.Pod) bool) func(ctx context.Context, before []string, typed string) []string {
	return func(ctx context.Context, before []string, typed string) (names []string) {
		hub, err := hubclient.New(c.address, c.tls)
		if err != nil || len(before) > 0 {
			return nil
		}
		pods, _ := hub.Pods(ctx) // none if it does not answer
		for _, p := range pods {
			switch {
			case !wanted(p), c.namespace != "" && c.namespace != p.Namespace:
			case c.namespace != "" && !strings.Contains(typed, "/"):
				names = append(names, p.Name)
			default:
				names = append(names, p.Namespace+"/"+p.Name)
			}
		}
		return names
	}
}

// width returns how wide text may be: as the terminal, or 80 columns, which is the least that people have;
// 0 is without limit.
func (c *call) width() int {
	if c.output == wide {
		return 0
	}
	return cmp.Or(cli.Width(c.out), 80)
}

// say prints an answer, as JSON if that is wanted.
func (c *call) say(answer string, err error) error {
	switch {
	case err != nil:
		return err
	case c.output == "json":
		return cli.PrintJSON(c.out, map[string]string{"message": answer})
	}
	fmt.Fprintln(c.out, answer)
	return nil
}

// print prints what a command shows: v as JSON, or text, which may be empty.
func (c *call) print(v any, text string) error {
	if c.output == "json" {
		return cli.PrintJSON(c.out, v)
	}
	_, err := io.WriteString(c.out, text)
	return err
}
