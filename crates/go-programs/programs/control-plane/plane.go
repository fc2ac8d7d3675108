package main

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	parentPipe = "CONTROL_PLANE_PARENT_PIPE"
	pipeFd     = 3  // the first of exec.Cmd's ExtraFiles
	logTail    = 20 // lines of a dead program's log that are shown
)

// plane holds the five child processes and what connects them.
type plane struct {
	dir, binary, name    string
	server, port         string
	etcdURL, etcdPeerURL string
	auditLog             string
	admin                user
	authority            *x509.CertPool
	// The children inherit `childEnd`; only this process holds `parentEnd`, so they notice when it
	// exits, for any reason.
	childEnd, parentEnd *os.File
	died                chan error
	mu                  sync.Mutex
	stopping            bool
	children            []*child
}

type child struct {
	name string
	cmd  *exec.Cmd
	done chan struct{}
}

func newPlane(dir string, options upOptions) (*plane, error) {
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
		name:        "registry-" + randomHex(4),
		server:      "https://127.0.0.1:" + ports[0],
		port:        ports[0],
		etcdURL:     "http://127.0.0.1:" + ports[1],
		etcdPeerURL: "http://127.0.0.1:" + ports[2],
		died:        make(chan error, 5),
	}
	if p.childEnd, p.parentEnd, err = os.Pipe(); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(p.path("etcd")); err != nil {
		return nil, err
	}
	return p, p.writeFiles(options)
}

// freePorts asks the kernel for n different free ports. A program that finds its port taken in the
// meantime exits and logs the reason.
func freePorts(n int) ([]string, error) {
	ports := make([]string, 0, n)
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			return nil, err
		}
		ports = append(ports, port)
	}
	return ports, nil
}

// spawn starts one of the programs of this binary as a child.
func (p *plane) spawn(name string, args ...string) error {
	log, err := os.Create(p.path(name + ".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(p.binary, append([]string{name}, args...)...)
	cmd.Dir = p.dir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", parentPipe, pipeFd))
	cmd.ExtraFiles = []*os.File{p.childEnd}
	// A process group of its own: ctrl-c at a terminal signals only `up`, which then stops the others.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot start %s: %w", name, err)
	}
	c := &child{name: name, cmd: cmd, done: make(chan struct{})}
	p.mu.Lock()
	p.children = append(p.children, c)
	p.mu.Unlock()
	go func() {
		err := cmd.Wait()
		close(c.done)
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.stopping {
			p.died <- fmt.Errorf("%s ended (%v); the end of %s:\n%s", name, err, log.Name(), tail(log.Name()))
		}
	}()
	return nil
}

// programs returns the process ids by program name.
func (p *plane) programs() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	ids := make(map[string]int, len(p.children))
	for _, c := range p.children {
		ids[c.name] = c.cmd.Process.Pid
	}
	return ids
}

// exitWithParent makes a child exit as soon as the `up` process that started it is gone.
func exitWithParent() {
	if os.Getenv(parentPipe) == "" {
		return
	}
	os.Unsetenv(parentPipe)
	go func() {
		// Nothing is ever written: Read returns when the last process that holds the other end is gone.
		_, _ = os.NewFile(pipeFd, "parent").Read(make([]byte, 1))
		os.Exit(1)
	}()
}

// until asks again and again until the answer is no error, a child dies, or time is up.
func (p *plane) until(ctx context.Context, what string, ask func() error) error {
	tick := time.NewTicker(10 * time.Millisecond)
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
			return fmt.Errorf("%s is not ready: %w; last answer: %w; logs are in %s", what, ctx.Err(), err, p.dir)
		case <-tick.C:
		}
	}
}

// accepts says whether something listens at the URL.
func (p *plane) accepts(ctx context.Context, url string) error {
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		return err
	}
	return connection.Close()
}

// stop ends the children and returns when all are gone. Nothing of theirs is kept, so they are
// given no time to tidy up.
func (p *plane) stop() {
	p.mu.Lock()
	p.stopping = true
	children := p.children
	p.mu.Unlock()
	for _, c := range children {
		_ = c.cmd.Process.Kill()
	}
	for _, c := range children {
		<-c.done
	}
	_ = p.parentEnd.Close()
	_ = p.childEnd.Close()
	_ = os.RemoveAll(p.path("etcd")) // 64 MB and more; logs and kubeconfigs stay
}

func (p *plane) path(name string) string {
	return filepath.Join(p.dir, name)
}

// tail returns the last lines of a file, or why it cannot be read.
func tail(file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-logTail):], "\n")
}
