package main

import (
	"context"
	"fmt"
	"net"
	"os"

	"github.com/operator-framework/operator-registry/pkg/api"
	"github.com/operator-framework/operator-registry/pkg/cache"
	"github.com/operator-framework/operator-registry/pkg/server"
	"google.golang.org/grpc"
	health "google.golang.org/grpc/health/grpc_health_v1"
)

// serve does what `opm serve` does, on a free port of the loopback interface, and prints the address.
func serve(dir, cacheDir string) error {
	store, err := cache.New(cacheDir)
	if err != nil {
		return err
	}
	defer store.Close()
	if err := cache.LoadOrRebuild(context.Background(), store, os.DirFS(dir)); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	registry := grpc.NewServer()
	api.RegisterRegistryServer(registry, server.NewRegistryServer(store))
	health.RegisterHealthServer(registry, server.NewHealthServer())
	fmt.Println(listener.Addr())
	return registry.Serve(listener)
}
