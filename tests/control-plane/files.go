package main

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
)

// user is somebody whom the API server knows by a token.
type user struct {
	name, token, kubeconfig string
}

// auditPolicy logs the metadata of every request once it is answered, and the start of watches.
const auditPolicy = `{"apiVersion":"audit.k8s.io/v1","kind":"Policy","omitStages":["RequestReceived"],"rules":[{"level":"Metadata"}]}`

// writeFiles lays out what the programs read: keys, tokens, kubeconfigs, stages.
func (p *plane) writeFiles() error {
	p.serviceKey, p.servicePub = p.path("service-account.key"), p.path("service-account.pub")
	if err := writeKeyPair(p.serviceKey, p.servicePub); err != nil {
		return err
	}
	// The operator's user has the rights that RBAC gives it and no others.
	p.admin = user{name: "admin", token: newToken(), kubeconfig: p.path("kubeconfig")}
	p.operator = user{name: "operator", token: newToken(), kubeconfig: p.path("operator.kubeconfig")}
	tokens := fmt.Sprintf("%s,admin,admin,\"system:masters\"\n%s,operator,operator\n", p.admin.token, p.operator.token)
	if err := writePrivate(p.path("tokens.csv"), []byte(tokens)); err != nil {
		return err
	}
	for _, u := range []user{p.admin, p.operator} {
		if err := writeKubeconfig(p.server, u); err != nil {
			return err
		}
	}
	if err := writePrivate(p.path("stages.yaml"), []byte(stages)); err != nil {
		return err
	}
	if p.auditLog != "" {
		abs, err := filepath.Abs(p.auditLog)
		if err != nil {
			return err
		}
		p.auditLog = abs
	}
	return writePrivate(p.path("audit-policy.yaml"), []byte(auditPolicy))
}

func newToken() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails: crypto/rand ends the program instead
	return hex.EncodeToString(b)
}

func writeKeyPair(private, public string) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	pub, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	block := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	if err := writePrivate(private, pem.EncodeToMemory(block)); err != nil {
		return err
	}
	return writePrivate(public, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: pub}))
}

// writeKubeconfig writes JSON, which is YAML too. The API server signs its own certificate when it
// starts, on loopback, for this run only: it is not verified.
func writeKubeconfig(server string, u user) error {
	type m = map[string]any
	config, err := json.MarshalIndent(m{
		"apiVersion":      "v1",
		"kind":            "Config",
		"current-context": "control-plane",
		"clusters":        []m{{"name": "control-plane", "cluster": m{"server": server, "insecure-skip-tls-verify": true}}},
		"users":           []m{{"name": u.name, "user": m{"token": u.token}}},
		"contexts":        []m{{"name": "control-plane", "context": m{"cluster": "control-plane", "user": u.name, "namespace": "default"}}},
	}, "", "  ")
	if err != nil {
		return err
	}
	return writePrivate(u.kubeconfig, append(config, '\n'))
}

func writePrivate(path string, data []byte) error {
	return os.WriteFile(path, data, 0o600)
}
