##@ Check
.PHONY: check
check: ## Check that generated files are up to date, lint the charts, and render the samples
	$(HYBRID) generate --check
	$(HYBRID) lint
	@for sample in $(filter-out %/kustomization.yaml,$(wildcard config/samples/*.yaml)); do \
	  echo "rendering $$sample" && $(HYBRID) template --cr "$$sample" >/dev/null || exit 1; \
	done

.PHONY: test
test: ## Run the operator against the cluster of $KUBECONFIG until the samples are ready, and delete them
	$(say_cluster)
	@KUBECTL="$(KUBECTL)" HYBRID="$(HYBRID)" sh tests/samples
