# `make` alone lists the targets.
SHELL := /bin/bash
IMG ?= example.com/memcached-operator:v0.1.0
KUBECTL ?= kubectl
HYBRID := cargo run -q --locked -p hybrid-operator-cli --

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Try it
.PHONY: demo
demo: ## Run the demo on a local control plane (KEEP=1 leaves it running, KUBECONFIG=... uses a cluster)
	@demo/run

.PHONY: run
run: ## Run the operator against the cluster of $KUBECONFIG
	cargo run --locked --bin memcached-operator -- run --watches-file ./watches.yaml

.PHONY: control-plane
control-plane: ## Start a control plane and print its KUBECONFIG; stop it with ctrl-c
	@# The operator's package selects the version of the Kubernetes types for both.
	cargo build -q --locked -p hybrid-operator-test -p memcached-operator --bins
	@"$${CARGO_TARGET_DIR:-target}/debug/control-plane" up

##@ Develop
.PHONY: build
build: ## Build everything
	cargo build --locked --workspace

.PHONY: test
test: ## Run the unit, snapshot and end-to-end tests
	@tests/run $(ARGS)

.PHONY: soak
soak: ## Run ten minutes of a faulty API server, and of deletions in each example (SOAK=seconds)
	SOAK=$${SOAK:-600} cargo test --locked --test e2e -- api_faults:: chaos:: --nocapture --test-threads=8

.PHONY: check
check: check-static test ## Check formatting, clippy, docs and dependencies, and run the tests

.PHONY: check-static
check-static: deny ## Check formatting, clippy, docs, dependencies and generated files
	$(HYBRID) generate --check
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps
	@test -z "$$(gofmt -l tests/control-plane)" || { echo "gofmt: $$(gofmt -l tests/control-plane)"; exit 1; }

.PHONY: deny
deny: ## Check licences, duplicate versions, sources and advisories of the dependencies
	@tests/dependencies

.PHONY: generate
generate: ## Write generated files (CRDs and samples of charts and native controllers)
	$(HYBRID) generate
	@# The CRDs of the examples, which are not projects of their own.
	UPDATE_GENERATED=1 cargo test --locked -q --test generated

.PHONY: conformance
conformance: ## Compare with Helm's output (CASES=DIR, VECTORS=DIR, or CHARTS=DIR HELM=PATH for other folders)
	cargo run -q --locked --release -p helm-core --example conformance

.PHONY: bench
bench: ## Compare the speed of the chart engine with Helm's; see docs/benchmarks.md
	benches/run

##@ Deploy
.PHONY: docker-build
docker-build: ## Build the image $(IMG)
	docker build -t $(IMG) .

.PHONY: install
install: ## Install the CRDs into the cluster of $KUBECONFIG
	$(KUBECTL) apply -k config/crd

.PHONY: deploy
deploy: ## Install the CRDs and the operator
	$(KUBECTL) apply -k config/default

.PHONY: undeploy
undeploy: ## Remove the operator and the CRDs; delete the custom resources first
	$(KUBECTL) delete -k config/default
