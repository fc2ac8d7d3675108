package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	readyLimit = 90 * time.Second // slow machines are slow, a healthy start takes seconds
	stopLimit  = 3 * time.Second  // nothing here is kept, so what does not end is killed
	logTail    = 20               // lines of a dead component's log that are shown
)

type upOptions struct {
	dir      string
	auditLog string
}

// readyLine is what `up` prints when everything runs.
type readyLine struct {
	Kubeconfig         string `json:"kubeconfig"`
	OperatorKubeconfig string `json:"operatorKubeconfig"`
	Server             string `json:"server"`
	Pid                int    `json:"pid"`
}

// up starts the five programs, waits until they work together, and ends them with itself.
func up(ctx context.Context, options upOptions) error {
	if options.dir == "" {
		return errors.New("--dir is needed: the directory of all state, logs and credentials")
	}
	dir, err := filepath.Abs(options.dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	go func() {
		// The caller holds the other end; when it dies, the pipe closes.
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()

	plane, err := newPlane(dir, options.auditLog)
	if err != nil {
		return err
	}
	defer plane.stop()
	if err := plane.start(ctx); err != nil {
		return err
	}
	line, err := json.Marshal(readyLine{
		Kubeconfig:         plane.admin.kubeconfig,
		OperatorKubeconfig: plane.operator.kubeconfig,
		Server:             plane.server,
		Pid:                os.Getpid(),
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

// plane is the five children and what connects them.
type plane struct {
	dir, binary     string
	server          string
	auditLog        string
	admin, operator user
	serviceKey      string
	servicePub      string
	etcdURL         string
	etcdPeerURL     string
	port            int
	died            chan error
	mu              sync.Mutex
	stopping        bool
	children        []*child
}

type child struct {
	cmd  *exec.Cmd
	done chan struct{}
}

func newPlane(dir, auditLog string) (*plane, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	p := &plane{
		dir:         dir,
		binary:      binary,
		server:      fmt.Sprintf("https://127.0.0.1:%d", ports[0]),
		port:        ports[0],
		etcdURL:     fmt.Sprintf("http://127.0.0.1:%d", ports[1]),
		etcdPeerURL: fmt.Sprintf("http://127.0.0.1:%d", ports[2]),
		auditLog:    auditLog,
		died:        make(chan error, 5),
	}
	return p, p.writeFiles()
}

// freePorts asks for n different ports. They are free when this returns; the API server says so in
// its log when another process was faster.
func freePorts(n int) ([]int, error) {
	ports := make([]int, 0, n)
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

func (p *plane) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	if err := p.spawn("etcd",
		"--data-dir", p.path("etcd"),
		"--listen-client-urls", p.etcdURL, "--advertise-client-urls", p.etcdURL,
		"--listen-peer-urls", p.etcdPeerURL, "--initial-advertise-peer-urls", p.etcdPeerURL,
		"--initial-cluster", "default="+p.etcdPeerURL,
		"--unsafe-no-fsync", "--log-level", "warn"); err != nil {
		return err
	}
	if err := p.spawn("kube-apiserver", p.apiserverFlags()...); err != nil {
		return err
	}
	api := newClient(p.server, p.admin.token)
	if err := p.until(ctx, "the API server", func() error { return api.get(ctx, "/readyz") }); err != nil {
		return err
	}
	kubeconfig := "--kubeconfig=" + p.admin.kubeconfig
	if err := errors.Join(
		p.spawn("kube-controller-manager", kubeconfig,
			"--service-account-private-key-file="+p.serviceKey,
			"--root-ca-file="+p.path("certs", "apiserver.crt"),
			"--use-service-account-credentials", "--leader-elect=false", "--secure-port=0",
			"--concurrent-deployment-syncs=10", "--concurrent-replicaset-syncs=10",
			"--kube-api-qps=500", "--kube-api-burst=500",
			"--horizontal-pod-autoscaler-sync-period=2s"),
		p.spawn("kube-scheduler", kubeconfig, "--leader-elect=false", "--secure-port=0",
			"--kube-api-qps=500", "--kube-api-burst=500"),
		p.spawn("kwok", kubeconfig, "--manage-all-nodes=true", "--config="+p.path("stages.yaml"),
			"--server-address=127.0.0.1:0"),
		api.post(ctx, "/api/v1/nodes", node),
	); err != nil {
		return err
	}
	return errors.Join(
		p.until(ctx, "the node", func() error { return api.nodeReady(ctx) }),
		p.until(ctx, "the default service account", func() error {
			return api.get(ctx, "/api/v1/namespaces/default/serviceaccounts/default")
		}),
	)
}

func (p *plane) apiserverFlags() []string {
	flags := []string{
		"--etcd-servers=" + p.etcdURL,
		"--cert-dir=" + p.path("certs"),
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", p.port),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + p.servicePub,
		"--service-account-signing-key-file=" + p.serviceKey,
		"--token-auth-file=" + p.path("tokens.csv"),
		"--authorization-mode=RBAC",
		"--service-cluster-ip-range=10.96.0.0/16",
		"--allow-privileged",
		"--endpoint-reconciler-type=none",
	}
	if p.auditLog != "" {
		flags = append(flags,
			"--audit-policy-file="+p.path("audit-policy.yaml"),
			"--audit-log-path="+p.auditLog,
			"--audit-log-mode=blocking", "--audit-log-maxsize=4096")
	}
	return flags
}

// spawn starts a program as a child that the kernel ends when this process dies, however it dies.
func (p *plane) spawn(name string, args ...string) error {
	log, err := os.Create(p.path(name + ".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(p.binary, append([]string{name}, args...)...)
	cmd.Dir = p.dir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	c := &child{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// The death signal is tied to the thread that starts the child, so this one is kept.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		err = cmd.Wait()
		close(c.done)
		p.mu.Lock()
		stopping := p.stopping
		p.mu.Unlock()
		if !stopping {
			p.died <- fmt.Errorf("%s ended (%v); the end of %s:\n%s", name, err, log.Name(), tail(log.Name()))
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("cannot start %s: %w", name, err)
	}
	p.mu.Lock()
	p.children = append(p.children, c)
	p.mu.Unlock()
	return nil
}

// until asks again and again until the answer is no error, a child dies, or time is up.
func (p *plane) until(ctx context.Context, what string, ask func() error) error {
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case dead := <-p.died:
			return dead
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w; last answer: %w; logs are in %s", what, context.Cause(ctx), err, p.dir)
		case <-tick.C:
		}
	}
}

// stop ends the children, the youngest first, and returns when all are gone.
func (p *plane) stop() {
	p.mu.Lock()
	p.stopping = true
	children := p.children
	p.mu.Unlock()
	for _, c := range children {
		_ = c.cmd.Process.Signal(syscall.SIGTERM)
	}
	deadline := time.After(stopLimit)
	for _, c := range children {
		select {
		case <-c.done:
		case <-deadline:
			deadline = closedTime
			_ = c.cmd.Process.Kill()
			<-c.done
		}
	}
}

// closedTime is a deadline that has passed.
var closedTime = func() <-chan time.Time { c := make(chan time.Time); close(c); return c }()

func (p *plane) path(parts ...string) string {
	return filepath.Join(append([]string{p.dir}, parts...)...)
}

func tail(file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	var lines []string
	scanner := bufio.NewScanner(bytes.NewReader(data))
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		lines = append(lines, scanner.Text())
	}
	return strings.Join(lines[max(0, len(lines)-logTail):], "\n")
}
