package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

const (
	readyLimit = 90 * time.Second // generous for slow machines; a healthy start takes seconds
	attempts   = 5                // to find ports that no other process takes in the meantime
)

type upOptions struct {
	dir      string
	auditLog string
	users    []string
}

// readyLine is what `up` prints when everything is running.
type readyLine struct {
	Kubeconfig         string `json:"kubeconfig"`
	OperatorKubeconfig string `json:"operatorKubeconfig"`
	Server             string `json:"server"`
	Pid                int    `json:"pid"`
	// Programs maps the names of the five programs to their process ids.
	Programs map[string]int `json:"programs"`
}

// runUp parses the flags of `up` and supervises the programs until it is told to stop.
func runUp() int {
	options := upOptions{}
	flags := pflag.NewFlagSet("up", pflag.ContinueOnError)
	flags.StringVar(&options.dir, "dir", "", "directory of all state, logs and credentials; created when absent")
	flags.StringVar(&options.auditLog, "audit-log", "", "file for the API server's audit log (metadata of every request)")
	flags.StringArrayVar(&options.users, "user", nil, "NAME[:GROUP,...]: one more user, who gets NAME.kubeconfig")
	err := flags.Parse(os.Args[1:])
	if errors.Is(err, pflag.ErrHelp) {
		return 0
	}
	if err == nil && (options.dir == "" || flags.NArg() > 0) {
		err = errors.New("usage: control-plane up --dir DIR [--audit-log FILE] [--user NAME[:GROUP,...]]")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "control-plane:", err)
		return 2
	}
	if err := up(options); err != nil {
		fmt.Fprintln(os.Stderr, "control-plane:", err)
		return 1
	}
	return 0
}

// up starts the five programs, waits until they are ready, and stops them when it returns.
func up(options upOptions) error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	go func() {
		// The caller holds the other end; the pipe closes when the caller dies.
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	dir, err := openDir(options.dir)
	if err != nil {
		return err
	}
	plane, err := startOnFreePorts(ctx, dir, options)
	if err != nil {
		if errors.Is(err, context.Canceled) {
			return nil // told to stop while starting
		}
		return err
	}
	defer plane.stop()
	line, err := json.Marshal(readyLine{
		Kubeconfig:         plane.path("kubeconfig"),
		OperatorKubeconfig: plane.path("operator.kubeconfig"),
		Server:             plane.server,
		Pid:                os.Getpid(),
		Programs:           plane.programs(),
	})
	if err != nil {
		return err
	}
	fmt.Println(string(line))
	select {
	case <-ctx.Done():
		return nil
	case dead := <-plane.died:
		return dead
	}
}

// openDir creates the directory, locks it for this process, and removes what an earlier run left,
// because every run is a new cluster.
func openDir(name string) (string, error) {
	dir, err := filepath.Abs(name)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	// Held until this process ends, however it ends.
	lock, err := syscall.Open(filepath.Join(dir, "lock"), syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return "", fmt.Errorf("%s: %w", dir, err)
	}
	if err := syscall.Flock(lock, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return "", fmt.Errorf("another control plane runs in %s", dir)
	}
	return dir, nil
}

// startOnFreePorts starts the programs, and tries other ports if another process took one.
func startOnFreePorts(ctx context.Context, dir string, options upOptions) (*plane, error) {
	var err error
	for range attempts {
		var p *plane
		p, err = newPlane(dir, options)
		if err != nil {
			return nil, err
		}
		if err = p.start(ctx); err == nil {
			return p, nil
		}
		p.stop()
		if !strings.Contains(err.Error(), "address already in use") {
			break
		}
	}
	return nil, err
}

// start runs the programs in dependency order. No program has to retry until another one is up:
// their own retry intervals are longer than these waits.
func (p *plane) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	if err := p.spawn("etcd", p.etcdFlags()...); err != nil {
		return err
	}
	if err := p.until(ctx, "etcd", func() error { return p.accepts(ctx, p.etcdURL) }); err != nil {
		return err
	}
	if err := p.spawn("kube-apiserver", p.apiserverFlags()...); err != nil {
		return err
	}
	api := newClient(p.server, p.admin.token, p.authority)
	// The API server serves requests about a second before it reports ready; use that second.
	if err := p.until(ctx, "kube-apiserver (serving)", func() error {
		return api.get(ctx, "/api/v1/namespaces/default")
	}); err != nil {
		return err
	}
	kubeconfig := "--kubeconfig=" + p.path("components.kubeconfig")
	if err := errors.Join(
		// Without an address kwok serves nothing: nobody asks it, and at its start the metrics of its server
		// and its stages write one map without a lock (kwok 0.8.0).
		p.spawn("kwok", kubeconfig, "--manage-all-nodes=true", "--config="+p.path("stages.yaml")),
		p.spawn("kube-scheduler", kubeconfig, "--leader-elect=false", "--secure-port=0",
			"--kube-api-qps=500", "--kube-api-burst=500"),
		api.post(ctx, "/api/v1/nodes", node),
	); err != nil {
		return err
	}
	if err := p.until(ctx, "kube-apiserver (ready)", func() error { return api.get(ctx, "/readyz") }); err != nil {
		return err
	}
	if err := p.spawn("kube-controller-manager", append(p.controllerFlags(), kubeconfig)...); err != nil {
		return err
	}
	if err := p.until(ctx, "the node", func() error { return api.nodeReady(ctx) }); err != nil {
		return err
	}
	return p.until(ctx, "the default service account", func() error {
		return api.get(ctx, "/api/v1/namespaces/default/serviceaccounts/default")
	})
}

func (p *plane) etcdFlags() []string {
	return []string{
		"--name", "etcd", "--data-dir", p.path("etcd"),
		"--listen-client-urls", p.etcdURL, "--advertise-client-urls", p.etcdURL,
		"--listen-peer-urls", p.etcdPeerURL, "--initial-advertise-peer-urls", p.etcdPeerURL,
		"--initial-cluster", "etcd=" + p.etcdPeerURL,
		"--unsafe-no-fsync", "--log-level", "warn",
	}
}

func (p *plane) apiserverFlags() []string {
	flags := []string{
		"--etcd-servers=" + p.etcdURL,
		// Keeps this cluster apart even if etcd at that port belongs to somebody else.
		"--etcd-prefix=/" + p.name,
		"--tls-cert-file=" + p.path("server.crt"), "--tls-private-key-file=" + p.path("server.key"),
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port=" + p.port,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + p.path("service-account.pub"),
		"--service-account-signing-key-file=" + p.path("service-account.key"),
		"--token-auth-file=" + p.path("tokens.csv"),
		"--authorization-mode=RBAC",
		"--service-cluster-ip-range=10.96.0.0/16",
		"--allow-privileged",
		"--endpoint-reconciler-type=none",
		// Watches of one of several replicas select its objects.
		"--feature-gates=ShardedListAndWatch=true",
	}
	if p.auditLog != "" {
		flags = append(flags,
			"--audit-policy-file="+p.path("audit-policy.yaml"),
			"--audit-log-path="+p.auditLog,
			"--audit-log-mode=blocking", "--audit-log-maxsize=4096")
	}
	return flags
}

func (p *plane) controllerFlags() []string {
	return []string{
		"--service-account-private-key-file=" + p.path("service-account.key"),
		"--root-ca-file=" + p.path("ca.crt"),
		"--leader-elect=false", "--secure-port=0",
		"--concurrent-deployment-syncs=10", "--concurrent-replicaset-syncs=10",
		"--kube-api-qps=500", "--kube-api-burst=500",
		"--horizontal-pod-autoscaler-sync-period=2s",
		// Nothing sends heartbeats for this node. Without them it would be marked unreachable after 50 s,
		// again and again, and its Pods would stay not ready.
		"--node-monitor-grace-period=24h", "--node-startup-grace-period=24h",
	}
}
