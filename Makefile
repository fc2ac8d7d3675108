# `make` alone lists the targets. Targets and settings of your own belong into targets.mk.
SHELL := /bin/bash
.DEFAULT_GOAL := help
-include targets.mk
IMG ?= example.com/memcached-operator:v0.1.0
KUBECTL ?= kubectl
TEST ?= cargo test --locked --workspace

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Develop
.PHONY: run
run: Cargo.lock ## Run the operator against the cluster of $KUBECONFIG
	cargo run --locked --bin memcached-operator -- run --watches-file ./watches.yaml

.PHONY: build
build: Cargo.lock ## Build everything
	cargo build --locked --workspace

.PHONY: test
test: Cargo.lock ## Run the tests
	@$(TEST) $(ARGS)

.PHONY: check
check: check-static test ## Check formatting, clippy and docs, and run the tests

.PHONY: check-static
check-static: Cargo.lock ## Check formatting, clippy and docs
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps

# Only if the file is missing: later changes of the dependencies are yours.
Cargo.lock:
	cargo generate-lockfile

##@ Deploy
.PHONY: docker-build
docker-build: Cargo.lock ## Build the image $(IMG)
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

##@ Package for OLM
VERSION ?= 0.1.0
BUNDLE_IMG ?= example.com/memcached-operator-bundle:v$(VERSION)
CATALOG_IMG ?= example.com/memcached-operator-catalog:v$(VERSION)
CONTAINER_TOOL ?= docker
HYBRID ?= hybrid-operator

.PHONY: bundle
bundle: ## Write the bundle of version $(VERSION) with the image $(IMG), and check it
	$(HYBRID) generate bundle --version $(VERSION) --image $(IMG) $(BUNDLE_ARGS)
	$(HYBRID) bundle validate bundle

.PHONY: bundle-build
bundle-build: ## Build the image $(BUNDLE_IMG) of the bundle
	$(CONTAINER_TOOL) build -f bundle.Dockerfile -t $(BUNDLE_IMG) .

.PHONY: bundle-push
bundle-push: ## Push the image $(BUNDLE_IMG)
	$(CONTAINER_TOOL) push $(BUNDLE_IMG)

.PHONY: catalog
catalog: ## Add the bundle with the image $(BUNDLE_IMG) to the catalog
	$(HYBRID) generate catalog bundle --image $(BUNDLE_IMG)

.PHONY: catalog-build
catalog-build: catalog ## Build the image $(CATALOG_IMG) of the catalog
	$(CONTAINER_TOOL) build -f catalog.Dockerfile -t $(CATALOG_IMG) .

.PHONY: catalog-push
catalog-push: ## Push the image $(CATALOG_IMG)
	$(CONTAINER_TOOL) push $(CATALOG_IMG)
