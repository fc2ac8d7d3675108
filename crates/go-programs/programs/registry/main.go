// Serves an OCI registry on a free port of the loopback interface, for tests, and prints its address.
// It ends when its standard input is closed.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"

	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry/handlers"
	"github.com/sirupsen/logrus"

	_ "github.com/distribution/distribution/v3/registry/auth/htpasswd"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/inmemory"
)

func main() {
	htpasswd := flag.String("htpasswd", "", "file with users and bcrypt hashes; without it, nobody logs in")
	flag.Parse()
	log.SetFlags(0)
	logrus.SetOutput(io.Discard)

	config := &configuration.Configuration{
		Storage: configuration.Storage{"inmemory": configuration.Parameters{}},
	}
	config.HTTP.Secret = "for tests"
	if *htpasswd != "" {
		config.Auth = configuration.Auth{
			"htpasswd": configuration.Parameters{"realm": "tests", "path": *htpasswd},
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	app := handlers.NewApp(context.Background(), config)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	fmt.Println(listener.Addr())
	log.Fatal(http.Serve(listener, app))
}
