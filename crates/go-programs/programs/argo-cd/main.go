// Judges objects as Argo CD does: the health checks of its ConfigMap, then the built-in ones.
//
// Standard input is a JSON object with the ConfigMap, as YAML, and the objects. Standard output has a
// line for each object: its health and the message.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/argoproj/argo-cd/v3/common"
	"github.com/argoproj/argo-cd/v3/util/lua"
	"github.com/argoproj/argo-cd/v3/util/settings"
	"github.com/argoproj/gitops-engine/pkg/health"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/yaml"
)

const namespace = "argocd"

type input struct {
	ConfigMap string                      `json:"configMap"`
	Objects   []unstructured.Unstructured `json:"objects"`
}

func main() {
	logrus.SetOutput(io.Discard)
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	var in input
	if err := json.NewDecoder(os.Stdin).Decode(&in); err != nil {
		return fmt.Errorf("input: %w", err)
	}
	overrides, err := overrides(in.ConfigMap)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	for _, object := range in.Objects {
		judged, err := health.GetResourceHealth(&object, overrides)
		if err != nil {
			return fmt.Errorf("%s: %w", object.GetName(), err)
		}
		// Without a check there is no health, which counts as healthy.
		if judged == nil {
			judged = &health.HealthStatus{Status: "None"}
		}
		if err := out.Encode(judged); err != nil {
			return err
		}
	}
	return nil
}

// overrides reads the health checks of a ConfigMap as Argo CD reads its settings.
func overrides(text string) (lua.ResourceHealthOverrides, error) {
	var config corev1.ConfigMap
	if err := yaml.UnmarshalStrict([]byte(text), &config); err != nil {
		return nil, fmt.Errorf("ConfigMap: %w", err)
	}
	if config.Kind != "ConfigMap" || config.Name != common.ArgoCDConfigMapName {
		return nil, fmt.Errorf("%s %q is not the ConfigMap of Argo CD", config.Kind, config.Name)
	}
	config.Namespace = namespace
	config.Labels = map[string]string{"app.kubernetes.io/part-of": "argocd"}
	secret := corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Name: common.ArgoCDSecretName, Namespace: namespace, Labels: config.Labels,
	}}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	manager := settings.NewSettingsManager(ctx, fake.NewSimpleClientset(&config, &secret), namespace)
	return manager.GetResourceOverrides()
}
