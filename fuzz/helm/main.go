// Command fuzzhelm renders what `make fuzz-helm` sends it with Helm's own engine. It reads JSON lines, each a
// chart with values, and answers each with a JSON line: the rendered files, or the error.
package main

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"slices"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
)

// question is a chart: the path of an archive or a directory, or the texts of its files.
type question struct {
	Path   string            `json:"path"`
	Files  map[string]string `json:"files"`
	Values map[string]any    `json:"values"`
}

// answer holds the rendered files, in base64 because a template may print any bytes, or an error.
type answer struct {
	Files map[string]string `json:"files,omitempty"`
	Error string            `json:"error,omitempty"`
}

func main() {
	log.SetOutput(io.Discard)
	slog.SetDefault(slog.New(slog.DiscardHandler))
	reader := bufio.NewReader(os.Stdin)
	encoder := json.NewEncoder(os.Stdout)
	for {
		line, err := reader.ReadBytes('\n')
		if err != nil {
			return
		}
		var asked question
		if err := json.Unmarshal(line, &asked); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if err := encoder.Encode(answerTo(asked)); err != nil {
			return
		}
	}
}

func answerTo(asked question) (found answer) {
	defer func() {
		if cause := recover(); cause != nil {
			found = answer{Error: fmt.Sprintf("panic: %v", cause)}
		}
	}()
	files, err := render(asked)
	if err != nil {
		return answer{Error: err.Error()}
	}
	encoded := map[string]string{}
	for path, text := range files {
		encoded[path] = base64.StdEncoding.EncodeToString([]byte(text))
	}
	return answer{Files: encoded}
}

func render(asked question) (map[string]string, error) {
	chart, err := load(asked)
	if err != nil {
		return nil, err
	}
	values := asked.Values
	if values == nil {
		values = map[string]any{}
	}
	if err := chartutil.ProcessDependencies(chart, values); err != nil {
		return nil, err
	}
	release := common.ReleaseOptions{Name: "demo", Namespace: "default", Revision: 1, IsInstall: true}
	top, err := util.ToRenderValues(chart, values, release, common.DefaultCapabilities.Copy())
	if err != nil {
		return nil, err
	}
	return engine.Render(chart, top)
}

func load(asked question) (*chart.Chart, error) {
	if asked.Path != "" {
		return loader.Load(asked.Path)
	}
	var files []*archive.BufferedFile
	for name, text := range asked.Files {
		files = append(files, &archive.BufferedFile{Name: name, Data: []byte(text)})
	}
	slices.SortFunc(files, func(a, b *archive.BufferedFile) int {
		switch {
		case a.Name < b.Name:
			return -1
		case a.Name > b.Name:
			return 1
		}
		return 0
	})
	return loader.LoadFiles(files)
}
