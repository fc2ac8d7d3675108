// Command manager is a controller-runtime manager that does what an operator does when it starts, and nothing
// else: it connects, finds one kind by discovery, watches it, and serves /readyz.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func main() {
	probes := flag.String("health-probe-bind-address", ":8081", "address of /readyz")
	metrics := flag.String("metrics-bind-address", ":8080", "address of /metrics")
	group := flag.String("group", "", "group of the kind")
	version := flag.String("version", "", "version of the kind")
	kind := flag.String("kind", "", "the kind to watch")
	flag.Parse()
	if err := run(*probes, *metrics, schema.GroupVersionKind{Group: *group, Version: *version, Kind: *kind}); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(probes, metrics string, kind schema.GroupVersionKind) error {
	ctrl.SetLogger(zap.New())
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{
		HealthProbeBindAddress: probes,
		Metrics:                server.Options{BindAddress: metrics},
	})
	if err != nil {
		return err
	}
	if err := manager.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	ignore := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
		return reconcile.Result{}, nil
	})
	if err := ctrl.NewControllerManagedBy(manager).For(object).Named("bare").Complete(ignore); err != nil {
		return err
	}
	return manager.Start(ctrl.SetupSignalHandler())
}
