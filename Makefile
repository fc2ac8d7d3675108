# `make` alone lists the targets. Targets and settings of your own belong into targets.mk.
SHELL := /bin/bash
.DEFAULT_GOAL := help
-include targets.mk
IMG ?= example.com/memcached-operator:v0.1.0
KUBECTL ?= kubectl
CONTAINER_TOOL ?= docker
# The Dockerfile needs BuildKit, which Docker before version 23 uses only on request.
export DOCKER_BUILDKIT ?= 1
PLATFORMS ?= linux/amd64,linux/arm64
# With true, `make uninstall` and `make undeploy` pass over what is not there.
ignore-not-found ?= false
TEST ?= cargo test --locked --workspace

# Says which cluster is about to be changed.
say_cluster = @$(KUBECTL) config view --minify -o jsonpath='Cluster: {.clusters[0].cluster.server} (context {.current-context}){"\n"}' 2>/dev/null || echo 'Cluster: that of this Pod, if any: there is no kubeconfig'

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Develop
.PHONY: run
run: Cargo.lock ## Run the operator against the cluster of $KUBECONFIG
	$(say_cluster)
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
	$(CONTAINER_TOOL) build -t $(IMG) .

.PHONY: docker-push
docker-push: ## Push the image $(IMG)
	$(CONTAINER_TOOL) push $(IMG)

# Docker's own builder builds for one platform only.
.PHONY: docker-buildx
docker-buildx: Cargo.lock ## Build and push $(IMG) for the platforms $(PLATFORMS)
	-$(CONTAINER_TOOL) buildx create --name memcached-operator-builder
	$(CONTAINER_TOOL) buildx build --builder memcached-operator-builder --platform $(PLATFORMS) --push -t $(IMG) .
	-$(CONTAINER_TOOL) buildx rm memcached-operator-builder

.PHONY: install
install: ## Install the CRDs into the cluster of $KUBECONFIG
	$(say_cluster)
	$(KUBECTL) apply -k config/crd

.PHONY: uninstall
uninstall: ## Delete the CRDs, and with them all custom resources
	$(say_cluster)
	$(KUBECTL) delete --ignore-not-found=$(ignore-not-found) -k config/crd

# Writes config/default with the image $(IMG) to $$overlay/all.yaml, without a change of any file here.
define manifests
	overlay=$$(mktemp -d ./.overlay.XXXXXX) && trap 'rm -rf "$$overlay"' EXIT && \
	printf '%s\n' 'resources: [../config/default]' 'patches:' \
	  '- target: {kind: Deployment, labelSelector: control-plane=controller-manager}' \
	  '  patch: |-' \
	  '    apiVersion: apps/v1' \
	  '    kind: Deployment' \
	  '    metadata: {name: any}' \
	  '    spec: {template: {spec: {containers: [{name: manager, image: "$(IMG)"}]}}}' \
	  >"$$overlay/kustomization.yaml" && \
	$(KUBECTL) kustomize "$$overlay" >"$$overlay/all.yaml" && \
	{ grep -qF 'image: $(IMG)' "$$overlay/all.yaml" || \
	  { echo "config/manager has no container named manager for the image $(IMG)" >&2; false; }; }
endef

.PHONY: deploy
deploy: ## Install the CRDs and the operator with the image $(IMG)
	$(say_cluster)
	@$(manifests) && $(KUBECTL) apply -f "$$overlay/all.yaml"

.PHONY: build-installer
build-installer: ## Write what deploy installs to dist/install.yaml
	@$(manifests) && mkdir -p dist && cp "$$overlay/all.yaml" dist/install.yaml

# The operator uninstalls the releases of the custom resources, so it goes last.
.PHONY: undeploy
undeploy: uninstall ## Delete all custom resources, the CRDs and the operator
	$(KUBECTL) delete --ignore-not-found=true -k config/default

# Targets of further files, such as those of 'hybrid-operator init --with olm'.
include $(filter-out targets.mk,$(wildcard *.mk))
