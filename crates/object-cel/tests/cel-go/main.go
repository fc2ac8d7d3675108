// Command cel-go checks and evaluates CEL expressions as kube-apiserver does.
//
// The first line of the input is {"schema": ..., "self": ..., "free": ...}: the schema and the value of the variable
// self, and the value of the variable free, whose type is dyn. Each other line is an expression as JSON, and is
// answered with {"type": ..., "value": ...}, or with an error of the checker or of the evaluation.
package main

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log"
	"math"
	"os"
	"strings"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/version"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/openapi"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

type answer struct {
	Type    string `json:"type,omitempty"`
	Value   any    `json:"value"`
	Refused string `json:"refused,omitempty"`
	Failed  string `json:"failed,omitempty"`
}

func main() {
	log.SetFlags(0)
	input := bufio.NewScanner(os.Stdin)
	input.Buffer(nil, 1<<20)
	output := bufio.NewWriter(os.Stdout)
	defer output.Flush()
	if !input.Scan() {
		log.Fatal("no input")
	}
	var declared struct {
		Schema     spec.Schema `json:"schema"`
		Self, Free json.RawMessage
	}
	check(json.Unmarshal(input.Bytes(), &declared))
	schema := &openapi.Schema{Schema: &declared.Schema}
	var self, free any
	check(utiljson.Unmarshal(declared.Self, &self))
	check(utiljson.Unmarshal(declared.Free, &free))
	variables := map[string]any{"self": common.UnstructuredToVal(self, schema), "free": free}

	declaration := common.SchemaDeclType(schema, false).MaybeAssignTypeName("selfType")
	base := environment.MustBaseEnvSet(version.MajorMinor(1, 36))
	set, err := base.Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions: []cel.EnvOption{
			cel.Variable("self", declaration.CelType()),
			cel.Variable("free", cel.DynType),
		},
		DeclTypes: []*apiservercel.DeclType{declaration},
	})
	check(err)
	env := set.NewExpressionsEnv()
	encoder := json.NewEncoder(output)
	for input.Scan() {
		var expression string
		check(json.Unmarshal(input.Bytes(), &expression))
		check(encoder.Encode(evaluate(env, expression, variables)))
	}
	check(input.Err())
}

func evaluate(env *cel.Env, expression string, variables map[string]any) answer {
	checked, issues := env.Compile(expression)
	if issues.Err() != nil {
		return answer{Refused: issues.Err().Error()}
	}
	result := answer{Type: strings.ReplaceAll(cel.FormatCELType(checked.OutputType()), "google.protobuf.", "")}
	program, err := env.Program(checked)
	if err != nil {
		result.Failed = err.Error()
		return result
	}
	value, _, err := program.Eval(variables)
	if err == nil {
		result.Value, err = toJSON(value)
	}
	if err != nil {
		result.Failed = err.Error()
	}
	return result
}

func toJSON(value ref.Val) (any, error) {
	switch value := value.(type) {
	case types.Null:
		return nil, nil
	case types.Bool, types.Int, types.Uint, types.String:
		return value.Value(), nil
	case types.Double:
		if math.IsNaN(float64(value)) || math.IsInf(float64(value), 0) {
			return nil, fmt.Errorf("%v is no value of JSON", value)
		}
		return float64(value), nil
	case types.Bytes:
		return base64.StdEncoding.EncodeToString(value), nil
	case types.Duration:
		return value.Duration.String(), nil
	case types.Timestamp:
		return value.UTC().Format(time.RFC3339Nano), nil
	case traits.Mapper:
		fields := map[string]any{}
		for keys := value.Iterator(); keys.HasNext() == types.True; {
			key := keys.Next()
			field, err := toJSON(value.Get(key))
			if err != nil {
				return nil, err
			}
			fields[fmt.Sprint(key.Value())] = field
		}
		return fields, nil
	case traits.Lister:
		elements := []any{}
		for items := value.Iterator(); items.HasNext() == types.True; {
			element, err := toJSON(items.Next())
			if err != nil {
				return nil, err
			}
			elements = append(elements, element)
		}
		return elements, nil
	default:
		return nil, fmt.Errorf("%s is no value of JSON", value.Type().TypeName())
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
