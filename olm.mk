##@ Package for OLM
VERSION ?= 0.1.0
BUNDLE_IMG ?= example.com/memcached-operator-bundle:v$(VERSION)
CATALOG_IMG ?= example.com/memcached-operator-catalog:v$(VERSION)
HYBRID ?= hybrid-operator

.PHONY: bundle
bundle: ## Write the bundle of version $(VERSION) with the image $(IMG), and check it
	$(HYBRID) olm bundle --version $(VERSION) --image $(IMG) $(BUNDLE_ARGS)
	$(HYBRID) olm validate bundle

.PHONY: bundle-build
bundle-build: ## Build the image $(BUNDLE_IMG) of the bundle
	$(CONTAINER_TOOL) build -f bundle.Dockerfile -t $(BUNDLE_IMG) .

.PHONY: bundle-push
bundle-push: ## Push the image $(BUNDLE_IMG)
	$(CONTAINER_TOOL) push $(BUNDLE_IMG)

.PHONY: catalog
catalog: ## Add the bundle with the image $(BUNDLE_IMG) to the catalog
	$(HYBRID) olm catalog bundle --image $(BUNDLE_IMG)

.PHONY: catalog-build
catalog-build: catalog ## Build the image $(CATALOG_IMG) of the catalog
	$(CONTAINER_TOOL) build -f catalog.Dockerfile -t $(CATALOG_IMG) .

.PHONY: catalog-push
catalog-push: ## Push the image $(CATALOG_IMG)
	$(CONTAINER_TOOL) push $(CATALOG_IMG)
