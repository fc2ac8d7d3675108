// Command benchmark renders a folder of chart cases with Helm's engine and times it in-process. It
// prints one JSON object: the time of every case, and the peak memory of the process.
//
// A round of a case does what an operator does: load the chart, process its dependencies, coalesce
// the values, render, sort the manifests. Loading is timed separately from the rest.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	"sigs.k8s.io/yaml"
)

// passes is how often all cases are measured one after the other, so that a machine that is slow for a few
// seconds does not slow down all rounds of a case. minTime is the minimum time spent on one case in a pass,
// maxTime the maximum: slow cases get fewer rounds.
const (
	passes  = 3
	minTime = 200 * time.Millisecond
	maxTime = 1500 * time.Millisecond
)

// chartCase is the content of a case.yaml.
type chartCase struct {
	Chart       string   `json:"chart"`
	Name        string   `json:"name"`
	Namespace   string   `json:"namespace"`
	IsUpgrade   bool     `json:"isUpgrade"`
	KubeVersion string   `json:"kubeVersion"`
	APIVersions []string `json:"apiVersions"`
}

// timing is the time of a case, in nanoseconds: the median of the passes, each with the time of its median round.
type timing struct {
	Chart  string `json:"chart"`
	Case   string `json:"case"`
	Whole  int64  `json:"whole"`
	Render int64  `json:"render"`
}

func main() {
	if len(os.Args) != 3 {
		fail("usage: benchmark FOLDER ROUNDS")
	}
	// Writing Helm's warnings would cost time as well.
	log.SetOutput(io.Discard)
	slog.SetDefault(slog.New(slog.DiscardHandler))
	folder := os.Args[1]
	rounds, err := strconv.Atoi(os.Args[2])
	if err != nil || rounds < 1 {
		fail("invalid number of rounds %q", os.Args[2])
	}
	paths, err := filepath.Glob(filepath.Join(folder, "cases", "*", "*", "case.yaml"))
	if err != nil {
		fail("%v", err)
	}
	var directories []string
	for _, path := range paths {
		directory := filepath.Dir(path)
		if _, err := os.Stat(filepath.Join(directory, "error.txt")); err != nil {
			directories = append(directories, directory)
		}
	}
	times := make([]passTimes, len(directories))
	for range passes {
		for i, directory := range directories {
			if err := times[i].measure(folder, directory, (rounds+passes-1)/passes); err != nil {
				fail("%s: %v", directory, err)
			}
		}
	}
	var timings []timing
	for i, directory := range directories {
		timings = append(timings, timing{
			Chart:  filepath.Base(filepath.Dir(directory)),
			Case:   filepath.Base(directory),
			Whole:  median(times[i].wholes),
			Render: median(times[i].renders),
		})
	}
	result := map[string]any{"cases": timings, "peakMemory": peakMemory()}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		fail("%v", err)
	}
}

func fail(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", arguments...)
	os.Exit(1)
}

// passTimes are the times of the median round of each pass, in nanoseconds. Those of all rounds would add to the
// peak memory.
type passTimes struct {
	wholes, renders []int64
}

// measure adds the times of a pass.
func (times *passTimes) measure(folder, directory string, rounds int) error {
	var about chartCase
	text, err := os.ReadFile(filepath.Join(directory, "case.yaml"))
	if err != nil {
		return err
	}
	if err := yaml.Unmarshal(text, &about); err != nil {
		return err
	}
	packed, err := os.ReadFile(filepath.Join(folder, about.Chart))
	if err != nil {
		return err
	}
	values, err := os.ReadFile(filepath.Join(directory, "values.yaml"))
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	capabilities := common.DefaultCapabilities.Copy()
	version, err := common.ParseKubeVersion(about.KubeVersion)
	if err != nil {
		return err
	}
	capabilities.KubeVersion = *version
	capabilities.APIVersions = slices.Concat(capabilities.APIVersions, about.APIVersions)
	var wholes, renders []int64
	began := time.Now()
	for len(wholes) < rounds || time.Since(began) < minTime {
		user := map[string]any{}
		if err := yaml.Unmarshal(values, &user); err != nil {
			return err
		}
		load, render, err := round(packed, user, about, capabilities)
		if err != nil {
			return err
		}
		wholes = append(wholes, (load + render).Nanoseconds())
		renders = append(renders, render.Nanoseconds())
		if time.Since(began) > maxTime {
			break
		}
	}
	times.wholes = append(times.wholes, median(wholes))
	times.renders = append(times.renders, median(renders))
	return nil
}

func median(times []int64) int64 {
	slices.Sort(times)
	return times[len(times)/2]
}

func round(packed []byte, user map[string]any, about chartCase, capabilities *common.Capabilities) (load, render time.Duration, err error) {
	start := time.Now()
	files, err := archive.LoadArchiveFiles(bytes.NewReader(packed))
	if err != nil {
		return 0, 0, err
	}
	chart, err := loader.LoadFiles(files)
	if err != nil {
		return 0, 0, err
	}
	loaded := time.Now()
	if err := chartutil.ProcessDependencies(chart, user); err != nil {
		return 0, 0, err
	}
	release := common.ReleaseOptions{
		Name:      about.Name,
		Namespace: about.Namespace,
		Revision:  1,
		IsInstall: !about.IsUpgrade,
		IsUpgrade: about.IsUpgrade,
	}
	values, err := util.ToRenderValues(chart, user, release, capabilities)
	if err != nil {
		return 0, 0, err
	}
	rendered, err := engine.Render(chart, values)
	if err != nil {
		return 0, 0, err
	}
	for path := range rendered {
		if strings.HasSuffix(path, "NOTES.txt") {
			delete(rendered, path)
		}
	}
	if _, _, err := releaseutil.SortManifests(rendered, nil, releaseutil.InstallOrder); err != nil {
		return 0, 0, err
	}
	return loaded.Sub(start), time.Since(loaded), nil
}

// peakMemory returns the peak memory of the process, in bytes.
func peakMemory() int64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		var kilobytes int64
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kilobytes); err == nil {
			return kilobytes << 10
		}
	}
	return 0
}
