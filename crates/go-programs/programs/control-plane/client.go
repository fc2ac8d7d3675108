package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// node is the node on which every Pod runs; kwok makes it ready.
const node = `{"apiVersion":"v1","kind":"Node","metadata":{"name":"node-1","labels":{"kubernetes.io/hostname":"node-1","kubernetes.io/os":"linux"}},` +
	`"status":{"allocatable":{"cpu":"1k","memory":"1Ti","ephemeral-storage":"100Ti","pods":"1M"},"capacity":{"cpu":"1k","memory":"1Ti","ephemeral-storage":"100Ti","pods":"1M"}}}`

// client sends the few requests that starting the control plane needs.
type client struct {
	server, token string
	http          *http.Client
}

func newClient(server, token string, authority *x509.CertPool) *client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority, MinVersion: tls.VersionTLS12}}
	return &client{server: server, token: token, http: &http.Client{Transport: transport}}
}

func (c *client) get(ctx context.Context, path string) error {
	_, err := c.do(ctx, http.MethodGet, path, "")
	return err
}

func (c *client) post(ctx context.Context, path, body string) error {
	_, err := c.do(ctx, http.MethodPost, path, body)
	return err
}

func (c *client) nodeReady(ctx context.Context) error {
	data, err := c.do(ctx, http.MethodGet, "/api/v1/nodes/node-1", "")
	if err != nil {
		return err
	}
	var n struct {
		Status struct {
			Conditions []struct{ Type, Status string }
		}
	}
	if err := json.Unmarshal(data, &n); err != nil {
		return err
	}
	for _, condition := range n.Status.Conditions {
		if condition.Type == "Ready" && condition.Status == "True" {
			return nil
		}
	}
	return errors.New("node-1 has no condition Ready=True")
}

func (c *client) do(ctx context.Context, method, path, body string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.server+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	request.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode >= http.StatusBadRequest {
		return nil, fmt.Errorf("%s %s: %s: %.200s", method, path, response.Status, data)
	}
	return data, nil
}
