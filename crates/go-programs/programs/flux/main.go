// Judges objects as Flux does: with health check expressions, and without them by kstatus.
//
// Standard input is a JSON object with the field healthCheckExprs, as YAML, and the objects. Standard
// output has a line for each object.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/fluxcd/pkg/apis/kustomize"
	"github.com/fluxcd/pkg/runtime/cel"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

type input struct {
	Expressions string                      `json:"expressions"`
	Objects     []unstructured.Unstructured `json:"objects"`
}

type judged struct {
	Flux    string `json:"flux"`
	Error   string `json:"error"`
	Default string `json:"default"`
}

func main() {
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
	var spec struct {
		Checks []kustomize.CustomHealthCheck `json:"healthCheckExprs"`
	}
	if err := yaml.UnmarshalStrict([]byte(in.Expressions), &spec); err != nil {
		return fmt.Errorf("expressions: %w", err)
	}
	reader, err := cel.NewStatusReader(spec.Checks)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	for _, object := range in.Objects {
		read, err := reader(nil).ReadStatusForObject(context.Background(), nil, &object)
		if err != nil {
			return fmt.Errorf("%s: %w", object.GetName(), err)
		}
		byDefault, err := status.Compute(&object)
		if err != nil {
			return fmt.Errorf("%s: %w", object.GetName(), err)
		}
		line := judged{Flux: read.Status.String(), Default: byDefault.Status.String()}
		if read.Error != nil {
			line.Error = read.Error.Error()
		}
		if err := out.Encode(line); err != nil {
			return err
		}
	}
	return nil
}
