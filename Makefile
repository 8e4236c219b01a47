# `make` alone lists the targets. Everything runs from a clean clone on a machine
# with Go, git and make; .ci/packages installs what else a target needs, or says
# what to install.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Go is that of go.mod, fetched if the one installed is older. Some distributions' Go does so
# only when told.
GOTOOLCHAIN ?= auto
export GOTOOLCHAIN

# The release that this source is, or becomes: the docs and the chart name the same, and a
# test compares them.
release := v0.6.0

VERSION ?= $(or $(shell git describe --tags --match 'v*' --abbrev=12 --dirty 2>/dev/null),$(release)-dev)
REVISION ?= $(or $(shell git rev-parse HEAD 2>/dev/null),unknown)
# Seven digits everywhere: git's own abbreviation depends on what else a clone has.
COMMIT  ?= $(shell echo $(REVISION) | cut -c 1-7)

# grpcnotrace leaves out golang.org/x/net/trace: 29 MB less in a binary that
# imports gRPC. The version is stamped here, so the build need not look at git.
version_package := github.com/edgehub-io/edgehub/cmd/internal/cli
build_flags := -trimpath -buildvcs=false -tags grpcnotrace \
	-ldflags '-s -w -X $(version_package).version=$(VERSION) -X $(version_package).commit=$(COMMIT)'

programs := ./cmd/edgehub ./cmd/edgehubctl ./cmd/edgehub-controller ./cmd/kubectl-edgehub

# What else decides about the bytes of a release is said here, and not by whoever builds it:
# Go is that of go.mod, even if the one installed is newer.
DIST ?= dist
ARCHITECTURES ?= amd64 arm64
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null)
dist_environment := CGO_ENABLED=0 GOTOOLCHAIN=go$(shell awk '$$1 == "go" { print $$2 }' go.mod) \
	GOFLAGS= GOWORK=off GOEXPERIMENT= GOFIPS140=off GOAMD64=v1 GOARM64=v8.0

# The most bytes that the hub's binary may have. A node keeps it on flash, and
# pulls it over a thin line.
hub_size_limit := 40000000

# Folders with a go.mod. test/cluster/kubernetes is one file that pulls in all of
# Kubernetes; linting it would cost minutes. So are coredns and flannel beside it; containerd*
# and flannelcni have no code. The suite alerts vets and lints test/alerts: Prometheus, and all else
# in the versions that it takes, costs minutes where caches are empty.
modules := . ./test ./test/cluster ./deploy/dist
tidy_modules := $(modules) ./test/alerts $(addprefix ./test/cluster/,kubernetes containerd17 containerd2 coredns flannel flannelcni) ./.ci/tools

# Outside the checkout, so that a fresh clone finds it built: minutes on a slow machine.
golangci_lint := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/edgehub/golangci-lint-$(shell cat .ci/tools/go.mod .ci/tools/go.sum | sha256sum | cut -c 1-12)

# How long soak lasts, and how often the link is cut meanwhile.
DURATION ?= 30m

# How long fuzz-cache, crash and attack last, in seconds, and their seed: another one each time, which it says.
SECONDS ?= 3600
SEED ?=
CUT_EVERY ?= 1m

# How many seeds chaos-rollout plays, some 7 s each, how many rounds crash-upgrade, four in 25 s,
# how many crash-return, eight in a minute or two, and the first of each.
SEEDS ?= 10
ROUNDS ?= 50
RETURNS ?= 8
FIRST_SEED ?= 1
# Pods of each round of crash-upgrade.
PODS ?= 6
# -count=1 stands where tests start other programs: the go command does not see
# when those change, and would take an old result for a new one. The suites say which do not.

# The race detector is linked with cgo.
race_packages := gcc libc6-dev
node_packages := containerd runc containernetworking-plugins iptables conntrack ethtool socat iproute2
# Units are checked with it, and a node is turned over under it, as process 1 of a test's own.
install_packages := systemd
kubeadm_packages := $(install_packages) curl
page_packages := chromium fonts-noto-cjk

# $(call each,folders,command) runs command in each folder, and fails if it failed in one.
each = failed=; for module in $(1); do echo "$@: $$module"; (cd "$$module" && $(2)) || failed=yes; done; [[ -z $$failed ]]

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z][a-z0-9-]*:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

bin ?= bin

.PHONY: build
build: ## build bin/edgehub, bin/edgehubctl, bin/edgehub-controller and bin/kubectl-edgehub
	@CGO_ENABLED=0 .ci/progress "building the programs" go build -v $(build_flags) -o $(bin)/ $(programs)

.PHONY: dist
dist: ## build a release in dist/: programs, archives, images, SBOMs and checksums; docs/release.md
	@if [[ -n $$(git status --porcelain 2>/dev/null) ]]; then \
		echo "THERE ARE CHANGES THAT ARE NOT COMMITTED: nobody can build this again from $(REVISION)"; \
	fi
	rm -rf $(DIST)
	@for architecture in $(ARCHITECTURES); do \
		echo "building for linux/$$architecture"; \
		$(dist_environment) GOOS=linux GOARCH=$$architecture go build $(build_flags) -o $(DIST)/linux-$$architecture/ $(programs); \
	done
	cd deploy/dist && $(dist_environment) go run . pack --out $(abspath $(DIST)) --sources ../.. \
		--version $(VERSION) --revision $(REVISION) --date $(SOURCE_DATE_EPOCH)

.PHONY: dist-push
dist-push: ## push the images in dist/ to a registry: REGISTRY=registry.example.com/edgehub
	cd deploy/dist && go run . push $(abspath $(DIST)) $(REGISTRY)

.PHONY: size
size: build ## check that the hub's binary is small enough for a node
	@size=$$(stat --format=%s bin/edgehub); \
	echo "bin/edgehub: $$size bytes of $(hub_size_limit) allowed"; \
	(( size <= $(hub_size_limit) ))

.PHONY: lint
lint: lint-format lint-tidy lint-code ## check format, go.mod files and code, with golangci-lint

# As the suites do, so that what one has compiled the others need not.
compiled := CGO_ENABLED=0 GOFLAGS='-trimpath -buildvcs=false -tags=grpcnotrace'

.PHONY: vet
vet: ## go vet, of every module
	@$(call each,$(modules),$(compiled) go vet ./...)

.PHONY: lint-format
lint-format:
	@unformatted=$$("$$(go env GOROOT)/bin/gofmt" -l .); \
	if [[ -n $$unformatted ]]; then echo "not formatted, run gofmt -w on:"; echo "$$unformatted"; exit 1; fi

.PHONY: lint-tidy
lint-tidy:
	@$(call each,$(tidy_modules),$(abspath .ci/progress) "go mod tidy" go mod tidy -diff)

.PHONY: lint-code
lint-code: $(golangci_lint)
	@$(call each,$(modules),$(compiled) $(abspath .ci/progress) --show golangci-lint $(golangci_lint) run --config $(abspath .golangci.yml) ./...)

$(golangci_lint):
	cd .ci/tools && CGO_ENABLED=0 $(abspath .ci/progress) "building golangci-lint" go build -v -trimpath -buildvcs=false -ldflags '-s -w' -o $@.partial github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@mv $@.partial $@

# What each suite is, needs and runs stands in test/suites/suites.go. -trimpath, so that a
# fresh clone need not compile what another one has compiled.
suites = cd test && export CGO_ENABLED=0 GOFLAGS='-trimpath -buildvcs=false -tags=grpcnotrace' && \
	../.ci/progress "building what runs the tests" go build -v -o ../bin/edgehub-suites ./suites && exec ../bin/edgehub-suites

.PHONY: test
test: ## show that it works: unit tests, what clients see of an apiserver, a node, an install
	@$(suites)

.PHONY: test-all
test-all: ## all suites and a table of them; ONLY=cache,node repeats a part, SEED=7 the random ones
	@$(suites) --all $(if $(ONLY),--only=$(ONLY)) $(if $(SEED),--seed=$(SEED))

.PHONY: test-list
test-list: ## list the suites, and what each needs
	@$(suites) --list

# make itself ends with 2 whatever failed, so .ci/run asks this first. Other errors are for make test.
.PHONY: test-machine
test-machine: ## check that this machine can run the gate
	@code=0; ($(suites) --check) || code=$$?; (( code != 3 ))

# One suite: make test-unit, make test-e2e.
test-%:
	@$(suites) --only=$* $(if $(SEED),--seed=$(SEED))

.PHONY: screenshots
screenshots: page-tools ## write the pictures of the owner's page in docs/images, with Chromium
	cd test && SCREENSHOTS=$(abspath docs/images) go test -count=1 -timeout 10m -run TestScreenshots ./page

# A browser, letters for Chinese, and axe-core as package-lock.json has it.
.PHONY: page-tools
page-tools:
	@.ci/packages $(page_packages)
	@command -v npm >/dev/null || .ci/packages npm
	cd test/page && npm ci --ignore-scripts --no-audit --no-fund

.PHONY: chaos-rollout
chaos-rollout: ## break rollouts at random; SEEDS=200 for a long run, FIRST_SEED=n to begin there
	@.ci/packages $(race_packages)
	cd test && SEEDS=$(SEEDS) FIRST_SEED=$(FIRST_SEED) go test -race -count=1 -timeout 4h -v ./chaos/rollout

# Without root no disk is full.
.PHONY: crash
crash: ## kill the hub and spoil its files at random, for SECONDS; SEED=1
	cd test && SECONDS=$(SECONDS) SEED=$(SEED) go test -count=1 -timeout 0 -v -run '^TestWhateverHappensToTheHub' ./fuzzcache

.PHONY: crash-return
crash-return: ## kill the hub within 30 s of the cloud's return; RETURNS=100 for a long run, FIRST_SEED=n to begin there
	cd test && ROUNDS=$(RETURNS) FIRST_SEED=$(FIRST_SEED) go test -count=1 -timeout 4h -v -run '^TestWhatWasShownInAnOutage' ./fuzzcache

.PHONY: attack
attack: ## send forged, foreign and old credentials at random, for SECONDS; SEED=1
	cd test && SECONDS=$(SECONDS) SEED=$(SEED) go test -count=1 -timeout 0 -v -run '^TestNobodyReads' ./fuzzcache

# The first run on a host also builds Kubernetes.
.PHONY: crash-upgrade
crash-upgrade: build ## kill hub, kubelet, containerd, controller or node while upgrades wait for the cloud, 25 s for four rounds; ROUNDS=200, FIRST_SEED=n, PODS=100; root needed
	@if (( EUID != 0 )); then echo "this starts containerd and kubelet, which needs root: sudo make crash-upgrade" >&2; exit 1; fi
	@.ci/packages $(node_packages)
	cd test && UPGRADE_ROUNDS=$(ROUNDS) FIRST_SEED=$(FIRST_SEED) PODS=$(PODS) go test -count=1 -parallel 4 -timeout 4h -v ./chaos/upgrade

.PHONY: soak
soak: build ## have a hub serve 200 pods while its link is cut each minute; DURATION=30m
	cd test && DURATION=$(DURATION) CUT_EVERY=$(CUT_EVERY) go test -count=1 -timeout 0 -v ./soak

.PHONY: fuzz-cache
fuzz-cache: ## hold all that many clients of a hub see against etcd's history; SECONDS=60 SEED=1
	cd test && SECONDS=$(SECONDS) SEED=$(SEED) go test -count=1 -timeout 0 -v -run '^TestWhatClientsSeeIsWhatEtcdHad$$' ./fuzzcache

# ARGS=--only=memory,offline measures a part of it; --help lists what there is. For docs:
# ARGS=--results=bench/results.json, then make charts. Syncs of the disk are counted with strace.
.PHONY: bench
bench: build ## measure the hub: times beside a bare reverse proxy, memory, disk, starts, reconnects
	@.ci/packages strace
	cd test && go run ./bench $(ARGS)

# A quarter of an hour on two cores, or less. ARGS="--nodes=500,1000 --other-pods=10000" is a
# smaller one; --help lists what else it takes.
.PHONY: bench-rollout
bench-rollout: build ## roll DaemonSets out over 5,000 simulated nodes, beside Kubernetes' own way
	cd test && go run ./bench/rollout $(ARGS)

.PHONY: docs
docs: ## write the tables of docs/flags.md and docs/metrics.md from code
	UPDATE_DOCS=1 go test -count=1 -p 1 -run 'Reference$$' ./cmd/...

.PHONY: charts
charts: ## write the table and the charts of docs/benchmarks.md from test/bench/results.json
	cd test && go run ./bench/chart

.PHONY: demo
demo: build cluster-command ## play an upgrade and an outage on a cluster with two nodes; root needed
	@.ci/packages $(node_packages) curl jq
	@test/demo/run

.PHONY: demo-down
demo-down: cluster-command ## stop what make demo left running, and keep its logs
	@test/demo/run down

.PHONY: demo-node
demo-node: build kubeadm-command ## make a node with kubeadm, install the hub, take cloud and power away; root needed
	@.ci/packages $(node_packages) $(kubeadm_packages)
	@bin/edgehub-kubeadm up --hub bin/edgehub

.PHONY: demo-node-down
demo-node-down: kubeadm-command ## stop what make demo-node left running
	@bin/edgehub-kubeadm down

# Without -trimpath: it builds the pods' programs, and has to know where its sources are.
.PHONY: kubeadm-command
kubeadm-command:
	@cd test && CGO_ENABLED=0 ../.ci/progress "building edgehub-kubeadm" go build -v -buildvcs=false -tags grpcnotrace -o ../bin/ ./kubeadm/cmd/edgehub-kubeadm

.PHONY: cluster-command
cluster-command:
	@cd test/cluster && CGO_ENABLED=0 ../../.ci/progress "building edgehub-cluster" go build -v -trimpath -buildvcs=false -tags grpcnotrace -o ../../bin/ ./cmd/edgehub-cluster

.PHONY: clean
clean: ## remove what was built in this folder
	rm -rf bin dist
