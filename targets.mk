# The targets of the framework, which is in the same workspace. Makefile reads this file first.
TEST := tests/run
# Programs are built as the tests build them, so that their dependencies are compiled once.
BUILT := $${CARGO_TARGET_DIR:-target}/debug
MDBOOK_VERSION := 0.5.4
AXE_VERSION := 4.14.1
MDBOOK ?= $(or $(shell command -v mdbook),target/tools/bin/mdbook)
HYBRID := cargo run -q --locked -p hybrid-operator-cli --bin hybrid-operator --
GENERATE := cargo build -q --locked --workspace --bins && "$(BUILT)/hybrid-operator" generate --program "$(BUILT)/memcached-operator"

# The name that projects of charts alone expect on this machine.
BASE_IMG ?= localhost/hybrid-operator:v$(shell sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)

##@ Framework
.PHONY: demo
demo: ## Run the demo on a local control plane (KEEP=1 leaves it running, KUBECONFIG=... uses a cluster)
	@demo/run

.PHONY: control-plane
control-plane: ## Start a control plane and print its KUBECONFIG; stop it with ctrl-c
	@# The operator's package selects the version of the Kubernetes types for both.
	cargo build -q --locked -p hybrid-operator-test -p memcached-operator --bins
	@"$${CARGO_TARGET_DIR:-target}/debug/control-plane" up

.PHONY: soak
soak: ## Run ten minutes of a faulty API server, and of deletions in each example (SOAK=seconds)
	SOAK=$${SOAK:-600} cargo test --locked --test e2e -- api_faults:: chaos:: --nocapture --test-threads=8

.PHONY: simulate
simulate: ## Run generated histories of the operator, and compare each with a fresh install (SEEDS=FROM..TO)
	CHANGES=all SEEDS=$${SEEDS:-0..10000} cargo test --locked --profile simulate -p hybrid-operator --test simulation -- end_like_a_fresh_install --nocapture

.PHONY: migrate-test
migrate-test: ## Move 300 custom resources from the Go operators here and back (CUSTOM_RESOURCES)
	cargo build --locked --workspace --bins
	CUSTOM_RESOURCES=$${CUSTOM_RESOURCES:-300} cargo test --locked --test e2e -- there_and_back:: --nocapture

.PHONY: operators
operators: ## Run public Helm operators as their authors wrote them, and print a table (OPERATORS=folder)
	cargo build --locked --workspace --bins
	cargo build --locked --release -p chart-operator
	CHART_OPERATOR="$(abspath $(or $(CARGO_TARGET_DIR),target))/release/chart-operator" \
	  cargo test --locked --test e2e -- public_operators:: --nocapture

.PHONY: reproduce
reproduce: ## Build the program of a release twice, in two folders, and compare the bits (PACKAGE, PROGRAM)
	@.ci/reproduce

.PHONY: axe
axe: ## Install axe-core, with which the tests check the accessibility of the status page
	npm install --silent --no-audit --no-fund --no-package-lock --prefix target/axe axe-core@$(AXE_VERSION)

.PHONY: pictures
pictures: axe ## Draw the status page in all states, themes and widths, in target/pictures
	PICTURES="$(CURDIR)/target/pictures" cargo test --locked -p hybrid-operator --lib -- page::tests::browser --nocapture

.PHONY: base-image
base-image: ## Build the image for projects of charts alone, as BASE_IMG
	$(CONTAINER_TOOL) build -t $(BASE_IMG) -f images/hybrid-operator/Dockerfile .

.PHONY: base-image-buildx
base-image-buildx: ## Build and push BASE_IMG for the platforms $(PLATFORMS)
	-$(CONTAINER_TOOL) buildx create --name hybrid-operator-builder
	$(CONTAINER_TOOL) buildx build --builder hybrid-operator-builder --platform $(PLATFORMS) --push -t $(BASE_IMG) -f images/hybrid-operator/Dockerfile .
	-$(CONTAINER_TOOL) buildx rm hybrid-operator-builder

check-static: deny check-go check-generated check-crates

.PHONY: check-generated
check-generated: ## Check that generated files are up to date
	@# With the features of the tests, so that these compile nothing again.
	cargo build -q --locked --workspace --lib --bins --tests
	"$(BUILT)/hybrid-operator" generate --program "$(BUILT)/memcached-operator" --check

.PHONY: deny
deny: ## Check licences, duplicate versions, sources and advisories of the dependencies
	@tests/dependencies

.PHONY: check-crates
check-crates: ## Check features, WebAssembly, the oldest Rust and the packages of the crates that others use
	@tests/crates

.PHONY: check-go
check-go: ## Check the formatting of the Go sources
	@test -z "$$(gofmt -l crates fuzz)" || { echo "gofmt: $$(gofmt -l crates fuzz)"; exit 1; }

.PHONY: generate
generate: ## Write generated files (CRDs, roles, samples, dashboards, docs/reference)
	$(GENERATE)
	@# The CRDs of the examples, which are not projects of their own.
	UPDATE_GENERATED=1 cargo test --locked -q --test generated
	@# docs/reference, from the tables of the framework and the help texts of the commands.
	UPDATE_GENERATED=1 cargo test --locked -q -p hybrid-operator --lib -- page same_annotations
	UPDATE_GENERATED=1 cargo test --locked -q -p operator-runtime --lib -- list_of_metrics
	UPDATE_GENERATED=1 cargo test --locked -q -p hybrid-operator-cli --lib -- page_of_commands
	@# The types of built-in kinds, from the API server of the tests and from the sources of Kubernetes.
	UPDATE_GENERATED=1 cargo test --locked -q -p object-cel --test built_in
	UPDATE_GENERATED=1 cargo test --locked -q -p hybrid-operator-test --lib -- types_of_built_in_kinds

.PHONY: book
book: ## Build the book of docs/ in target/book (mdbook is installed there once)
	@command -v "$(MDBOOK)" >/dev/null || cargo install mdbook --locked --version $(MDBOOK_VERSION) --root target/tools
	"$(MDBOOK)" build
	@echo "the book is target/book/index.html"

.PHONY: conformance
conformance: ## Compare with Helm's output for public charts (CASES=DIR, VECTORS=DIR, or CHARTS=DIR HELM=PATH for others)
	@if [ -z "$$CASES$$VECTORS$$CHARTS$$CONFORMANCE" ] && [ ! -d ../shared/conformance ]; then \
	  benches/fetch && export CHARTS=$${CARGO_TARGET_DIR:-target}/charts/sources HELM=$${CARGO_TARGET_DIR:-target}/bench-go/helm; \
	fi && cargo run -q --locked --release -p helm-core --example conformance

.PHONY: fuzz-helm
fuzz-helm: ## Compare random renders with Helm's engine for MINUTES (10); SEED=N repeats a run, CHARTS=DIR adds charts
	mkdir -p target/tools && cd fuzz/helm && go build -o ../../target/tools/fuzz-helm .
	HELM_ENGINE=target/tools/fuzz-helm MINUTES=$(or $(MINUTES),10) cargo run -q --locked -p helm-core --example fuzz_helm

.PHONY: bench
bench: ## Compare the chart engine with Helm's, and starts with bare programs; see docs/contributing/benchmarks.md
	benches/run

.PHONY: scale
scale: ## Measure an operator with many releases, N=10,100,1000 for example; see docs/contributing/benchmarks.md
	benches/run scale
