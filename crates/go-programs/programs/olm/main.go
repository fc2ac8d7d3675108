// Package main is the Operator Lifecycle Manager, for tests: it answers questions about bundles and
// catalogs with the packages that `operator-sdk bundle validate` and `opm` consist of, serves a catalog,
// and is the two operators that install bundles.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"text/template"

	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/validation"
	"github.com/operator-framework/api/pkg/validation/errors"
	validator "github.com/operator-framework/api/pkg/validation/interfaces"
	"github.com/operator-framework/operator-registry/alpha/action"
	"github.com/operator-framework/operator-registry/alpha/action/migrations"
	"github.com/operator-framework/operator-registry/alpha/declcfg"
	opm "github.com/operator-framework/operator-registry/cmd/opm/alpha/bundle"
	"github.com/operator-framework/operator-registry/pkg/lib/bundle"
	"github.com/sirupsen/logrus"
)

const usage = `usage:
  olm validate OPTIONAL DIR...   findings as JSON, one line for each bundle; OPTIONAL is a name, "all" or "none"
  olm render LEVEL IMAGE DIR     the bundle as opm renders it, after the migrations up to LEVEL
  olm init PACKAGE CHANNEL       the package as opm makes it
  olm load DIR                   checks a catalog and writes it as opm does
  olm definitions                the definitions of OLM's own kinds, as a list in JSON
  olm bundle extract FLAG...     what "opm alpha bundle extract" does
  olm serve DIR CACHE            serves a catalog on loopback and prints the address
  olm olm-operator KUBECONFIG    installs what ClusterServiceVersions say
  olm catalog-operator KUBECONFIG NAMESPACE
                                 makes ClusterServiceVersions of Subscriptions; catalogs in the namespace are for all
`

// parentPipe names the file descriptor that the parent holds open, if it wants this to end with it.
const parentPipe = "CONTROL_PLANE_PARENT_PIPE"

func main() {
	exitWithParent()
	logrus.SetOutput(io.Discard)
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// exitWithParent makes this process exit as soon as its parent is gone, as a control plane's programs do.
func exitWithParent() {
	fd, err := strconv.Atoi(os.Getenv(parentPipe))
	if err != nil {
		return
	}
	go func() {
		// Nothing is ever written: Read returns when the last process that holds the other end is gone.
		_, _ = os.NewFile(uintptr(fd), "parent").Read(make([]byte, 1))
		os.Exit(1)
	}()
}

func run(args []string) error {
	switch {
	case len(args) >= 3 && args[0] == "validate":
		encoder := json.NewEncoder(os.Stdout)
		for _, dir := range args[2:] {
			if err := encoder.Encode(findings(dir, args[1])); err != nil {
				return err
			}
		}
		return nil
	case len(args) == 4 && args[0] == "render":
		return render(args[1], args[2], args[3])
	case len(args) == 3 && args[0] == "init":
		pkg, err := action.Init{Package: args[1], DefaultChannel: args[2]}.Run()
		if err != nil {
			return err
		}
		return write(declcfg.DeclarativeConfig{Packages: []declcfg.Package{*pkg}})
	case len(args) == 2 && args[0] == "load":
		config, err := declcfg.LoadFS(context.Background(), os.DirFS(args[1]))
		if err != nil {
			return err
		}
		if _, err := declcfg.ConvertToModel(*config); err != nil {
			return err
		}
		return write(*config)
	case len(args) == 1 && args[0] == "definitions":
		return json.NewEncoder(os.Stdout).Encode(definitions())
	case len(args) > 1 && args[0] == "bundle":
		command := opm.NewCmd()
		command.SetArgs(args[1:])
		return command.Execute()
	case len(args) == 3 && args[0] == "serve":
		return serve(args[1], args[2])
	case len(args) == 2 && args[0] == "olm-operator":
		return runOLMOperator(args[1])
	case len(args) == 3 && args[0] == "catalog-operator":
		return runCatalogOperator(args[1], args[2])
	}
	return fmt.Errorf("%s", usage)
}

func write(config declcfg.DeclarativeConfig) error {
	return declcfg.WriteYAML(config, os.Stdout)
}

func render(level, image, dir string) error {
	chosen, err := migrations.NewMigrations(level)
	if err != nil {
		return err
	}
	reference, err := template.New("image").Parse(image)
	if err != nil {
		return err
	}
	config, err := action.Render{
		Refs:             []string{dir},
		AllowedRefMask:   action.RefBundleDir,
		ImageRefTemplate: reference,
		Migrations:       chosen,
	}.Run(context.Background())
	if err != nil {
		return err
	}
	return write(*config)
}

type finding struct {
	Level  string `json:"level"`
	Detail string `json:"detail"`
}

// optional are the validators that operator-sdk runs when they are selected.
var optional = map[string]validator.Validator{
	"operatorhub":          validation.OperatorHubV2Validator,
	"standardcapabilities": validation.StandardCapabilitiesValidator,
	"standardcategories":   validation.StandardCategoriesValidator,
	"good-practices":       validation.GoodPracticesValidator,
	"alpha-deprecated":     validation.AlphaDeprecatedAPIsValidator,
}

// findings does what operator-sdk does: the format of the directory, its content, and chosen
// validators.
func findings(dir, chosen string) []finding {
	found := []finding{}
	add := func(level, detail string) {
		found = append(found, finding{level, detail})
	}
	if err := bundle.NewImageValidator(nil, logrus.NewEntry(logrus.StandardLogger())).ValidateBundleFormat(dir); err != nil {
		if list, ok := err.(bundle.ValidationError); ok {
			for _, one := range list.Errors {
				add("error", one.Error())
			}
		} else {
			add("error", err.Error())
		}
	}
	// With the metadata, which name the channels.
	loaded, err := manifests.GetBundleFromDir(dir)
	if err != nil {
		add("error", err.Error())
		return found
	}
	if err := bundle.NewImageValidator(nil, logrus.NewEntry(logrus.StandardLogger())).ValidateBundleContent(filepath.Join(dir, "manifests")); err != nil {
		if list, ok := err.(bundle.ValidationError); ok {
			for _, one := range list.Errors {
				if _, isShared := one.(errors.Error); !isShared {
					add("error", one.Error())
				}
			}
		}
	}
	objects := loaded.ObjectsToValidate()
	results := validation.DefaultBundleValidators.Validate(objects...)
	for _, object := range loaded.Objects {
		objects = append(objects, object)
	}
	for name, check := range optional {
		if chosen == name || chosen == "all" {
			results = append(results, check.Validate(objects...)...)
		}
	}
	for _, result := range results {
		for _, one := range result.Errors {
			add("error", one.Error())
		}
		for _, one := range result.Warnings {
			add("warning", one.Error())
		}
	}
	return found
}
