# Every target is a thin call of a script or program that can be run by hand; `make help` lists them.

SHELL := /usr/bin/env bash
.DEFAULT_GOAL := help

LAB := go run ./test/lab/cmd/lab

.PHONY: help
help: ## Lists the targets.
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Brings up a real control plane on this machine, runs the Jobs in examples/ through Plimsoll, shows what happened, stops.
	@$(LAB) demo $(if $(CLUSTER),--cluster '$(CLUSTER)')

.PHONY: up
up: ## Brings up the same control plane and leaves it running; CLUSTER=folder takes its objects from your own manifests.
	@$(LAB) up $(if $(CLUSTER),--cluster '$(CLUSTER)')

.PHONY: down
down: ## Stops what `make up` left running.
	@$(LAB) down

.PHONY: build
build: ## Builds the commands and the lab's control plane into bin/; the first time takes a quarter of an hour.
	@$(LAB) build

.PHONY: test
test: ## Runs all tests, those on the real control plane too; SUITE='unit' (or integration, e2e) runs some of them.
	@hack/test $(SUITE)

.PHONY: redecide
redecide: ## Measures on the lab how fast a device that comes free is given to who waits for it; for a machine at rest, no part of CI.
	@PLIMSOLL_MEASURE=1 go test ./test/e2e -count=1 -timeout=30m -v -run '^TestEndToEnd$$' -ginkgo.no-color \
		-ginkgo.focus='A device that comes free|whatever is cordoned and tainted on the way'

.PHONY: quiet
quiet: ## Leaves the lab alone for ten minutes, in which nothing may turn stale and nothing be decided or written; CI has a short form of it.
	@PLIMSOLL_QUIET=10m go test ./test/e2e -count=1 -timeout=40m -v -run '^TestEndToEnd$$' -ginkgo.no-color \
		-ginkgo.focus='are heard while nothing happens'

.PHONY: next-release
next-release: ## Shows the product on a real control plane of Kubernetes 1.37, whose first build takes a quarter of an hour; no part of CI.
	@$(LAB) build --release=next
	@PLIMSOLL_RELEASE=next PLIMSOLL_QUIET=1m go test ./test/e2e -count=1 -timeout=60m -v -ginkgo.no-color \
		-run '^(TestEndToEnd|TestDemoComesOutAsExpected)$$' \
		-ginkgo.focus='Kubernetes 1\.37|The ledger |cluster at rest|are heard while nothing happens'

.PHONY: simulate-day
simulate-day: ## Simulates a busy day of 1,000 nodes and 5,000 Jobs again and again, holds the bytes against each other, and says what it took.
	@go run ./test/performance/day/cmd/day -check

.PHONY: agree
agree: ## Plays every scenario that can be on the lab and holds it against simulate; a short form of it is in every test run.
	@PLIMSOLL_AGREE_ALL=1 go test ./test/e2e -v -count=1 -timeout=30m -run TestEndToEnd -ginkgo.focus-file=agree -ginkgo.no-color

.PHONY: oracle
oracle: ## Holds what gangs are promised, and what is predicted of pods, against the real kube-scheduler, on 5,000 random worlds each; or CASES=n, from SEED=n on.
	@cd test/oracle && go run ./agree -cases $(or $(CASES),5000) -seed $(or $(SEED),1)

.PHONY: lint
lint: ## Runs golangci-lint with the Kubernetes API linter.
	@hack/build-tool golangci-lint
	@bin/golangci-lint run ./...
	@cd test/oracle && ../../bin/golangci-lint run ./...

.PHONY: generate
generate: ## Writes deep copies and CRDs anew from the types in api/.
	@hack/generate

.PHONY: verify
verify: ## Checks generated files, formatting, module files, vet and lint.
	@hack/verify
