// Command control-plane is a whole Kubernetes control plane in one binary, for tests: etcd,
// kube-apiserver, kube-controller-manager, kube-scheduler and kwok, which simulates the node.
// `control-plane up --dir DIR` starts all five and stops them when it exits. See README.md.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

const usage = `control-plane: a Kubernetes control plane for tests, in one binary

Usage:
  control-plane up --dir DIR [--audit-log FILE] [--user NAME[:GROUP,...]]...
  control-plane etcd|kube-apiserver|kube-controller-manager|kube-scheduler|kwok [FLAG...]

"up" starts all five in DIR, on free ports of 127.0.0.1, and prints one line of JSON when they are
ready. It ends them when its standard input closes, or on SIGINT or SIGTERM. The other subcommands
are the upstream programs with their own flags.
`

// program runs a program with os.Args and returns the exit code.
type program func() int

func main() {
	exitWithParent()
	programs := map[string]program{
		"up":                      runUp,
		"etcd":                    func() int { etcdmain.Main(os.Args); return 0 },
		"kube-apiserver":          func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
		"kube-controller-manager": func() int { return cli.Run(controllers.NewControllerManagerCommand()) },
		"kube-scheduler":          func() int { return cli.Run(scheduler.NewSchedulerCommand()) },
		"kwok":                    runKwok,
	}
	// When called through a link with the name of a program, run that program.
	if run, ok := programs[filepath.Base(os.Args[0])]; ok {
		os.Exit(run())
	}
	if len(os.Args) < 2 || slices.Contains([]string{"help", "-h", "--help"}, os.Args[1]) {
		fmt.Print(usage)
		os.Exit(0)
	}
	run, ok := programs[os.Args[1]]
	if !ok {
		fmt.Fprintf(os.Stderr, "control-plane: unknown subcommand %q\n\n%s", os.Args[1], usage)
		os.Exit(2)
	}
	os.Args = os.Args[1:]
	os.Exit(run())
}
