package main

import (
	"context"
	"os"
	"time"

	configclientset "github.com/openshift/client-go/config/clientset/versioned"
	"github.com/operator-framework/api/crds"
	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	"github.com/operator-framework/operator-lifecycle-manager/pkg/api/client/clientset/versioned"
	"github.com/operator-framework/operator-lifecycle-manager/pkg/controller/operators"
	"github.com/operator-framework/operator-lifecycle-manager/pkg/controller/operators/catalog"
	"github.com/operator-framework/operator-lifecycle-manager/pkg/controller/operators/olm"
	"github.com/operator-framework/operator-lifecycle-manager/pkg/controller/operators/validatingroundtripper"
	"github.com/operator-framework/operator-lifecycle-manager/pkg/lib/operatorclient"
	"github.com/operator-framework/operator-lifecycle-manager/pkg/lib/queueinformer"
	"github.com/sirupsen/logrus"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// definitions are those of OLM's own kinds.
func definitions() []*apiextensions.CustomResourceDefinition {
	return []*apiextensions.CustomResourceDefinition{
		crds.CatalogSource(), crds.ClusterServiceVersion(), crds.InstallPlan(), crds.OLMConfig(),
		crds.Operator(), crds.OperatorCondition(), crds.OperatorGroup(), crds.Subscription(),
	}
}

// runOLMOperator does what OLM's cmd/olm does, without the servers for metrics and health, whose ports
// are fixed, and without OpenShift.
func runOLMOperator(kubeconfig string) error {
	ctx := context.Background()
	logrus.SetOutput(os.Stderr)
	ctrl.SetLogger(klog.Background())
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	// Else it would wait between requests.
	config.QPS, config.Burst = 200, 200
	scheme := runtime.NewScheme()
	if err := operators.AddToScheme(scheme); err != nil {
		return err
	}
	notCopied, err := labels.NewRequirement(v1alpha1.CopiedLabelKey, selection.DoesNotExist, nil)
	if err != nil {
		return err
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  scheme,
		Metrics: metricsserver.Options{BindAddress: "0"},
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&v1alpha1.ClusterServiceVersion{}: {Label: labels.NewSelector().Add(*notCopied)},
		}},
	})
	if err != nil {
		return err
	}
	if err := addControllers(manager); err != nil {
		return err
	}

	// OLM's own check that all objects are created with its labels.
	validating := validatingroundtripper.Wrap(config, scheme)
	configClient, err := configclientset.NewForConfig(config)
	if err != nil {
		return err
	}
	operatorClient, err := operatorclient.NewClientFromRestConfig(validating)
	if err != nil {
		return err
	}
	olmClient, err := versioned.NewForConfig(config)
	if err != nil {
		return err
	}
	metadataClient, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	operator, err := olm.NewOperator(ctx,
		olm.WithLogger(logrus.StandardLogger()),
		olm.WithWatchedNamespaces(""),
		olm.WithResyncPeriod(queueinformer.ResyncWithJitter(5*time.Minute, 0.2)),
		olm.WithExternalClient(olmClient),
		olm.WithMetadataClient(metadataClient),
		olm.WithOperatorClient(operatorClient),
		olm.WithRestConfig(validating),
		olm.WithConfigClient(configClient),
	)
	if err != nil {
		return err
	}
	operator.Run(ctx)
	<-operator.Ready()
	return manager.Start(ctx)
}

// addControllers adds those of OperatorConditions and Operators.
func addControllers(manager ctrl.Manager) error {
	reader, log, scheme := manager.GetClient(), ctrl.Log, manager.GetScheme()
	conditions, err := operators.NewOperatorConditionReconciler(reader, log, scheme)
	if err != nil {
		return err
	}
	if err := conditions.SetupWithManager(manager); err != nil {
		return err
	}
	generator, err := operators.NewOperatorConditionGeneratorReconciler(reader, log, scheme)
	if err != nil {
		return err
	}
	if err := generator.SetupWithManager(manager); err != nil {
		return err
	}
	operator, err := operators.NewOperatorReconciler(reader, log, scheme)
	if err != nil {
		return err
	}
	if err := operator.SetupWithManager(manager); err != nil {
		return err
	}
	adoption, err := operators.NewAdoptionReconciler(reader, log, scheme)
	if err != nil {
		return err
	}
	return adoption.SetupWithManager(manager)
}

// runCatalogOperator does what OLM's cmd/catalog does, with its defaults, and without servers.
// Catalogs in the namespace are for all namespaces.
func runCatalogOperator(kubeconfig, namespace string) error {
	ctx := context.Background()
	logrus.SetOutput(os.Stderr)
	// For OLM's check of the labels of what it creates.
	if err := apiextensions.AddToScheme(scheme.Scheme); err != nil {
		return err
	}
	if err := apiregistration.AddToScheme(scheme.Scheme); err != nil {
		return err
	}
	const userID = -1
	operator, err := catalog.NewOperator(ctx, kubeconfig, clock.RealClock{}, logrus.StandardLogger(),
		15*time.Minute,
		"quay.io/operator-framework/configmap-operator-registry:latest",
		"quay.io/operator-framework/opm:latest",
		"quay.io/operator-framework/olm:latest",
		namespace, scheme.Scheme, time.Minute, 10*time.Minute, userID)
	if err != nil {
		return err
	}
	operator.Run(ctx)
	<-operator.Done()
	return nil
}
