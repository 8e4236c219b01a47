package main

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// testTimeout ends a package's tests that hang. It is no bound on what they do: each has a
// patience of its own.
const testTimeout = 45 * time.Minute

// suite is a part of the tests that runs by itself: make test-all ONLY=name.
type suite struct {
	name, what string
	gate       bool // every change must pass it
	root       bool // it takes root
	nodes      bool // it starts machines or containerd: what killed runs have left is removed before and after
	waits      bool // it waits for most of its time: those after it, which compute, run beside it
	quiet      bool // it has bounds on time or memory, and a machine that does other work may fail it
	random     bool // it takes a seed
	programs   bool // it runs the product's, so the suite build is chosen with it
	kubernetes bool // it starts some, which is built in the background of the suites before
	// answers are the packages, or folders of them, whose failures are wrong answers, or something
	// lost or invented, unless they say that something did not happen in time. "" is all.
	answers  []string
	packages []string          // Debian's, installed first
	env      map[string]string // for what is not set already
	steps    []step
}

// step is a command, or tests.
type step struct {
	dir     string   // below the checkout
	command []string // or else:
	args    []string // of go test
	// cached has Go take the result of an earlier run if nothing that it sees has changed. It sees
	// what is compiled into the tests, the files of their module that they open, and variables of
	// the environment that they read, but not what TestMain reads before it runs the tests. It does
	// not see programs that tests start, and what these read: then it has to be false.
	cached bool
}

// Debian's packages: cgo links the race detector.
var (
	compilers = []string{"gcc", "libc6-dev"}
	machines  = []string{"containerd", "runc", "containernetworking-plugins", "iptables", "conntrack", "ethtool", "socat", "iproute2"}
	systemd   = []string{"systemd", "curl"}
	shells    = []string{"bash", "zsh", "fish"} // completion is tested in each
)

// alerts is a module that the gate leaves out: Prometheus, and all else in the versions that it
// takes, costs minutes where caches are empty.
const alerts = "./test/alerts"

// measured is how tests with a bound on time or memory are named. They run in a suite of their
// own, one at a time.
const measured = "^TestMeasured"

// crashes and attacks are the modes of fuzzcache that have a suite of their own.
const (
	crashes = "TestWhateverHappensToTheHubNoAnswerIsWrong|TestWhatWasShownInAnOutageIsTakenBack"
	attacks = "TestNobodyReadsOrTakesAwayWhatIsAnothers|TestCredentialsAreWhatTheApiserverTakesThemFor"
)

// all are the suites, in the order in which they run: those of the gate first. See runner.suites.
func all() []suite {
	everywhere := []string{""}
	return []suite{
		{
			name: "vet", what: "go vet, of every module", gate: true,
			steps: makeEach("vet"),
		},
		{
			name: "build", what: "the programs that the suites below run", gate: true,
			steps: makeEach("build"),
		},
		{
			name: "node", what: "one node's life: pods, pre-pull, upgrade, outage, reboot, return", gate: true, root: true, nodes: true, waits: true, programs: true, kubernetes: true,
			packages: slices.Concat(machines, systemd),
			env:      map[string]string{"CONTAINERD": "installed"},
			steps: []step{inTest("-parallel=4", "-run=^("+strings.Join([]string{
				"TestNodesAreReadyThroughTheirHubs", "TestPodComesChangesAndGoes", "TestOwnerUpgradesHisNode",
				"TestUpgradeAfterPrepullFetchesNothing", "TestPodsLiveOnWhileTheCloudIsAway", "TestPodsComeBackAfterARebootWithoutTheCloud",
			}, "|")+")$", "./e2e")},
		},
		{
			name: "uninstall", what: "edgehub install, an outage, edgehub uninstall", gate: true, root: true, nodes: true, waits: true, programs: true, kubernetes: true,
			packages: slices.Concat(machines, systemd),
			steps: []step{inTest("-run=^TestNode$/^("+strings.Join([]string{
				"an_install_leaves_.*", "without_the_cloud_.*", "uninstall_refuses_.*", "uninstall_after_.*",
			}, "|")+")$", "./install")},
		},
		{
			name: "unit", what: "all unit tests", gate: true,
			packages: asRoot(append(shells, "systemd", "iproute2", "iptables", "nftables")...),
			answers:  []string{"cache", "proxy", "ota", "imagepull"},
			steps:    []step{cached(step{args: []string{"./..."}})},
		},
		{
			name: "race", what: "packages where goroutines meet, with the race detector", gate: true,
			packages: compilers,
			answers:  []string{"cache", "proxy", "ota", "imagepull"},
			steps:    []step{cached(step{args: append([]string{"-race"}, raced()...)})},
		},
		{
			name: "rules", what: "imports, docs, and the tests' own helpers", gate: true,
			steps: []step{
				inTest("-skip=^TestCleanRemoves", "./layering", "./docs", "./bench/...", "./suites", "./internal/..."),
				cached(step{dir: "test/cluster", args: []string{"./freeport", "./link", "./images", "./tempdir"}}),
			},
		},
		{
			name: "cache", what: "what a client of the hub reads online and offline, beside a real apiserver", gate: true, programs: true, kubernetes: true,
			answers: everywhere,
			steps:   []step{inTest("-parallel=10", "-skip="+measured, "./integration/cache")},
		},
		{
			name: "api", what: "OTA's API, admission policies, secrets, service filters, and answers through the hub, beside a real apiserver", gate: true, programs: true, kubernetes: true,
			answers: []string{"test/integration/secrets", "test/integration/servicefilters", "test/transparency"},
			steps:   []step{inTest(append(atOnce, apiPackages...)...), inTest("./integration/admission")},
		},
		{
			name: "random", what: "a few seconds of fuzz and chaos, with the same seeds each time", gate: true, programs: true, kubernetes: true, answers: everywhere,
			env:   map[string]string{"SEED": "1", "SECONDS": "15", "FIRST_SEED": "5", "SEEDS": "2"},
			steps: []step{inTest("-p=2", "-run=^(TestWhatClientsSeeIsWhatEtcdHad|TestChaos)$", "./fuzzcache", "./chaos/rollout")},
		},
		{
			name: "lint", what: "format, go.mod files, and golangci-lint",
			steps: makeEach("lint"),
		},
		{
			name: "races", what: "all unit tests, and the packages of api, with the race detector", programs: true, kubernetes: true,
			packages: compilers,
			answers:  []string{"cache", "proxy", "ota", "imagepull", "test"},
			steps: []step{
				{args: []string{"-race", "./..."}},
				inTest(append(append([]string{"-race"}, atOnce...), apiPackages...)...),
			},
		},
		{
			name: "cluster", what: "the tests' own cluster, with an inventory of the whole machine", kubernetes: true, root: true, nodes: true,
			packages: machines, env: map[string]string{"EDGEHUB_INVENTORY": "1"},
			steps: []step{{dir: "test/cluster", args: []string{"-p=1", "./..."}}, inTest("-run=^TestCleanRemoves", "./internal/leftovers")},
		},
		{
			name: "integration", what: "callers, certificates, manifests, releases and pre-pull through the API", kubernetes: true, nodes: true, quiet: true,
			packages: asRoot(machines...), answers: []string{"test/integration/callers"},
			steps: []step{inTest("-p=1", "-skip="+measured, "./integration/callers", "./integration/certificate", "./integration/deploy",
				"./integration/dist", "./integration/imagepull")},
		},
		{
			name: "rollout", what: "rollouts, the controller, autonomy and kubectl edgehub, with the race detector", programs: true, kubernetes: true,
			packages: compilers,
			steps:    []step{inTest("-race", "-p=1", "-skip="+measured, "./integration/rollout", "./integration/controller", "./integration/autonomy", "./integration/plugin", "./integration/rollback")},
		},
		{
			name: "engine", what: "pulls, on each version of containerd, with the race detector", root: true, nodes: true, quiet: true,
			packages: slices.Concat(compilers, machines),
			steps:    []step{inTest("-race", "-skip="+measured, "./integration/engine")},
		},
		{
			name: "clients", what: "informers, long lists, and requests that end badly, through a hub with the race detector", kubernetes: true,
			packages: compilers, answers: everywhere,
			steps: []step{inTest("-race", "-skip="+measured+"|^TestSameAnswersAsTheApiserver$", "./transparency")},
		},
		{
			name: "tls", what: "the hub's CA for pods with the TLS libraries of many languages, which it installs",
			packages: []string{"gcc", "libc6-dev", "openssl", "curl", "gnutls-bin", "libmbedtls-dev", "libwolfssl-dev", "default-jdk-headless", "nodejs", "python3", "erlang-base", "erlang-ssl"},
			steps:    []step{inTest("./tlsstacks")},
		},
		{
			name: "e2e", what: "three nodes and everything that happens to them", kubernetes: true, root: true, nodes: true, waits: true, programs: true,
			packages: slices.Concat(machines, systemd, []string{"chromium"}),
			steps:    []step{inTest("-parallel=4", "-skip="+measured, "./e2e")}, // each on a node of its own, where they wait
		},
		{
			name: "autonomy", what: "outages that are longer than pods tolerate", kubernetes: true, root: true, nodes: true, waits: true, programs: true,
			packages: slices.Concat(machines, systemd),
			steps:    []step{inTest("./autonomy")},
		},
		{
			name: "install", what: "edgehub install, upgrade and uninstall on a machine with systemd, which installs Debian's firewalls", kubernetes: true, root: true, nodes: true, programs: true,
			packages: slices.Concat(machines, systemd),
			steps:    []step{inTest("-skip="+measured, "./install/...")},
		},
		{
			name: "kubeadm", what: "a kubeadm node with kube-proxy, flannel and CoreDNS, without the cloud", kubernetes: true, root: true, nodes: true, programs: true,
			packages: slices.Concat(machines, systemd, []string{"tinyproxy-bin"}),
			// It builds pods' programs from where its sources are.
			steps: []step{inTest("-trimpath=false", "./kubeadm/...")},
		},
		{
			name: "alerts", what: "alerts and dashboards, with Prometheus' own rules engine",
			steps: append(makeEach("vet", "lint-tidy", "lint-code", "modules="+alerts, "tidy_modules="+alerts), step{dir: "test/alerts", args: []string{"./..."}}),
		},
		{
			name: "page", what: "the owner's page in Chromium: what it shows and does, by mouse and keyboard, in both languages, and what axe-core finds",
			steps: append(makeEach("page-tools"), inTest("./page")),
		},
		{
			name: "chaos", what: "rollouts, broken at random; SEEDS=10", kubernetes: true, random: true, answers: everywhere,
			packages: compilers, env: map[string]string{"SEEDS": "10"},
			steps: []step{inTest("-race", "./chaos/rollout")},
		},
		{
			name: "upgrades", what: "upgrades that wait for the cloud, and hub, kubelet, containerd, controller and node killed at random; UPGRADE_ROUNDS=8", kubernetes: true,
			root: true, nodes: true, programs: true, random: true, answers: everywhere,
			packages: machines, env: map[string]string{"UPGRADE_ROUNDS": "8"},
			steps: []step{inTest("-parallel=4", "./chaos/upgrade")},
		},
		{
			name: "fuzz", what: "what clients of a hub see, against etcd's history; SECONDS=60", kubernetes: true, random: true, programs: true, answers: everywhere,
			env:   map[string]string{"SECONDS": "60"},
			steps: []step{inTest("-skip=^("+crashes+"|"+attacks+")$", "./fuzzcache")},
		},
		{
			name: "crash", what: "the same, while the hub is killed and its files are spoilt, and after outages; SECONDS=60 ROUNDS=8", kubernetes: true, random: true, programs: true, answers: everywhere,
			env:   map[string]string{"SECONDS": "60", "ROUNDS": "8"},
			steps: []step{inTest("-run=^("+crashes+")$", "./fuzzcache")},
		},
		{
			name: "attack", what: "the same, while others send forged, foreign and old credentials; SECONDS=60", kubernetes: true, random: true, programs: true, answers: everywhere,
			env:   map[string]string{"SECONDS": "60"},
			steps: []step{inTest("-run=^("+attacks+")$", "./fuzzcache")},
		},
		{
			name: "soak", what: "a hub with 200 pods whose link is cut each half minute; DURATION=3m", kubernetes: true, quiet: true, programs: true,
			env:   map[string]string{"DURATION": "3m", "CUT_EVERY": "30s"},
			steps: []step{inTest("./soak")},
		},
		{
			name: "measured", what: "tests with bounds on time or memory", kubernetes: true, quiet: true, root: true, nodes: true, programs: true,
			packages: machines,
			steps:    []step{inTest("-p=1", "-parallel=1", "-run="+measured, "./integration/cache", "./integration/rollout", "./e2e")},
		},
		{
			name: "floods", what: "floods of the hub from a pod and from a user, beside a real kubelet; FLOOD=20s each", kubernetes: true, quiet: true, root: true, nodes: true, programs: true,
			packages: slices.Concat(machines, []string{"curl"}), env: map[string]string{"FLOOD": "20s"},
			steps: []step{inTest("./flood")},
		},
	}
}

// apiPackages are those of the suite api.
var apiPackages = []string{"./integration/ota", "./transparency", "./integration/servicefilters", "./integration/secrets"}

// atOnce has two packages run at a time, which wait for much of theirs.
var atOnce = []string{"-p=2", "-skip=" + measured + "|^TestLongListsAreTheApiservers$"}

// inTest are tests of the module test.
func inTest(args ...string) step { return step{dir: "test", args: args} }

// cached is a step of which Go sees all that its results depend on.
func cached(st step) step {
	st.cached = true
	return st
}

// makeEach are targets of the Makefile, each with all variables, which have a "=".
func makeEach(targetsAndVariables ...string) []step {
	isVariable := func(word string) bool { return strings.Contains(word, "=") }
	var variables []string
	for _, word := range targetsAndVariables {
		if isVariable(word) {
			variables = append(variables, word)
		}
	}
	var steps []step
	for _, word := range targetsAndVariables {
		if !isVariable(word) {
			steps = append(steps, step{command: append([]string{"make", "--no-print-directory", word}, variables...)})
		}
	}
	return steps
}

// judges reports whether a failure in a package is a wrong answer.
func (s suite) judges(pkg string) bool {
	return slices.ContainsFunc(s.answers, func(folder string) bool {
		return folder == "" || pkg == folder || strings.HasPrefix(pkg, folder+"/")
	})
}

// prepared are a suite's steps, and before them one that installs what they need.
func (s suite) prepared() []step {
	if len(s.packages) == 0 {
		return s.steps
	}
	return append([]step{{command: append([]string{".ci/packages"}, s.packages...)}}, s.steps...)
}

// environment is what a suite runs with, unless it is set already.
func (s suite) environment(seed int) map[string]string {
	// A program with the race detector waits for a second before it ends, in case one more race shows: each test
	// binary, and each hub that a test stops.
	env := map[string]string{"GORACE": "atexit_sleep_ms=0"}
	for name, value := range s.env {
		env[name] = value
	}
	if s.random {
		env["SEED"], env["FIRST_SEED"] = strconv.Itoa(seed), strconv.Itoa(seed)
	}
	return env
}

func (s suite) needs() []string {
	var all []string
	for _, need := range []struct {
		it   bool
		word string
	}{{s.root, "root"}, {s.quiet, "a quiet machine"}, {s.random, "a seed"}} {
		if need.it {
			all = append(all, need.word)
		}
	}
	return all
}

// asRoot are packages that a test does without where it does not run as root.
func asRoot(packages ...string) []string {
	if os.Geteuid() != 0 {
		return nil
	}
	return packages
}
