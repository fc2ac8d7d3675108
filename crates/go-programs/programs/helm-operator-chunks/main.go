// The Helm operator of helm-operator-plugins as its `run`, but with releases in chunks, which only programs that use its
// packages can choose.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	helmclient "github.com/operator-framework/helm-operator-plugins/pkg/client"
	helmmanager "github.com/operator-framework/helm-operator-plugins/pkg/manager"
	"github.com/operator-framework/helm-operator-plugins/pkg/reconciler"
	"github.com/operator-framework/helm-operator-plugins/pkg/storage"
	"github.com/operator-framework/helm-operator-plugins/pkg/watches"
	"helm.sh/helm/v3/pkg/storage/driver"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// Size of a chunk in bytes, small so that releases of tests have several.
const chunkSize = 256 << 10

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	flags := flag.NewFlagSet("run", flag.ExitOnError)
	file := flags.String("watches-file", "watches.yaml", "")
	metrics := flags.String("metrics-bind-address", "0", "")
	probes := flags.String("health-probe-bind-address", "0", "")
	// The first argument is `run`.
	if err := flags.Parse(os.Args[2:]); err != nil {
		return err
	}
	log.SetLogger(zap.New())
	options := ctrl.Options{HealthProbeBindAddress: *probes}
	options.Metrics.BindAddress = *metrics
	helmmanager.ConfigureWatchNamespaces(&options, log.Log)
	restConfig, err := config.GetConfig()
	if err != nil {
		return err
	}
	manager, err := ctrl.NewManager(restConfig, options)
	if err != nil {
		return err
	}
	if err := manager.AddReadyzCheck("readyz", healthz.Ping); err != nil {
		return err
	}
	configs, err := helmclient.NewActionConfigGetter(restConfig, manager.GetRESTMapper(), helmclient.StorageDriverMapper(chunks))
	if err != nil {
		return err
	}
	clients, err := helmclient.NewActionClientGetter(configs)
	if err != nil {
		return err
	}
	entries, err := watches.Load(*file)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		controller, err := reconciler.New(
			reconciler.WithActionClientGetter(clients),
			reconciler.WithChart(*entry.Chart),
			reconciler.WithGroupVersionKind(entry.GroupVersionKind),
		)
		if err != nil {
			return err
		}
		if err := controller.SetupWithManager(manager); err != nil {
			return err
		}
	}
	return manager.Start(ctrl.SetupSignalHandler())
}

// Stores the releases of a custom resource. The index is owned by it; chunks are owned by their index.
func chunks(_ context.Context, owner client.Object, restConfig *rest.Config) (driver.Driver, error) {
	core, err := clientcorev1.NewForConfig(restConfig)
	if err != nil {
		return nil, err
	}
	reference := metav1.NewControllerRef(owner, owner.GetObjectKind().GroupVersionKind())
	isIndex := func(secret *corev1.Secret) bool { return secret.Type == storage.SecretTypeChunkedIndex }
	secrets := helmclient.NewOwnerRefSecretClient(
		core.Secrets(owner.GetNamespace()), []metav1.OwnerReference{*reference}, isIndex)
	config := storage.ChunkedSecretsConfig{ChunkSize: chunkSize}
	return storage.NewChunkedSecrets(secrets, "helm-operator", config), nil
}
