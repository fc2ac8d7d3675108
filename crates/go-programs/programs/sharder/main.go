// Runs the sharder of kubernetes-controller-sharding in the cluster of a kubeconfig, for tests: its controllers, and its
// webhook on a free port of the loopback interface. It ends when its standard input is closed.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	webhooks "sigs.k8s.io/controller-runtime/pkg/webhook"

	configv1alpha1 "github.com/timebertt/kubernetes-controller-sharding/pkg/apis/config/v1alpha1"
	"github.com/timebertt/kubernetes-controller-sharding/pkg/controller"
	"github.com/timebertt/kubernetes-controller-sharding/pkg/utils/client"
	"github.com/timebertt/kubernetes-controller-sharding/pkg/webhook"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(kubeconfig string) error {
	ctrl.SetLogger(zap.New())
	restConfig, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	directory, err := os.MkdirTemp("", "sharder")
	if err != nil {
		return err
	}
	defer os.RemoveAll(directory)
	certificate, err := certify(directory)
	if err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	config := &configv1alpha1.SharderConfig{}
	client.SharderScheme.Default(config)
	// Objects that the webhook has missed are assigned by the next sync.
	config.Controller.Sharder.SyncPeriod = &metav1.Duration{Duration: 5 * time.Second}
	url := fmt.Sprintf("https://127.0.0.1:%d", port)
	config.Webhook.Config.ClientConfig = &admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: certificate}
	mgr, err := ctrl.NewManager(restConfig, manager.Options{
		Scheme:                 client.SharderScheme,
		Metrics:                server.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		WebhookServer: webhooks.NewServer(webhooks.Options{
			Host: "127.0.0.1", Port: port, CertDir: directory,
		}),
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	if err := controller.AddToManager(ctx, mgr, config); err != nil {
		return err
	}
	if err := webhook.AddToManager(ctx, mgr, config); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// Writes a certificate for the loopback interface, and returns it.
func certify(directory string) ([]byte, error) {
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(directory, "tls.crt"), certificate, 0o600); err != nil {
		return nil, err
	}
	return certificate, os.WriteFile(filepath.Join(directory, "tls.key"), key, 0o600)
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}
