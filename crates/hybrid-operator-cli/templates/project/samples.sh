# Runs the operator until all samples are ready, and deletes them. Used by `make test`.
set -eu
cd "$(dirname "$0")/.."
kubectl=${KUBECTL:-kubectl} hybrid=${HYBRID:-hybrid-operator} timeout=${TIMEOUT:-5m}

samples() {
  $kubectl kustomize config/samples
}

$kubectl apply -k config/crd
$kubectl kustomize config/crd | $kubectl wait --for=condition=Established --timeout="$timeout" -f -
$hybrid run --watches-file ./watches.yaml --metrics-bind-address 0 --health-probe-bind-address 0 &
operator=$!
trap 'kill $operator 2>/dev/null || true' EXIT
samples | $kubectl apply -f -
if ! samples | $kubectl wait --for=condition=Ready --timeout="$timeout" -f -; then
  samples | $kubectl get -o yaml -f -
  exit 1
fi
# The operator uninstalls their releases.
samples | $kubectl delete --timeout="$timeout" -f -
