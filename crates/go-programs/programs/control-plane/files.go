package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// user is a user whom the API server authenticates by a token.
type user struct {
	name, token, file string
	groups            []string
}

// auditPolicy logs the metadata of every request when it is complete, and the start of watches.
const auditPolicy = `{"apiVersion":"audit.k8s.io/v1","kind":"Policy","omitStages":["RequestReceived"],"rules":[{"level":"Metadata"}]}`

// writeFiles writes what the programs and their users read: keys, tokens, kubeconfigs and stages.
func (p *plane) writeFiles(options upOptions) error {
	if err := p.writeCertificates(); err != nil {
		return err
	}
	if err := p.writeServiceAccountKeys(); err != nil {
		return err
	}
	p.admin = newUser("admin", "kubeconfig", "system:masters")
	users := []user{
		p.admin,
		newUser("operator", "operator.kubeconfig"), // has only the rights that RBAC grants it
		newUser("system:control-plane", "components.kubeconfig", "system:masters"),
	}
	for _, flag := range options.users {
		u, err := parseUser(flag)
		if err != nil {
			return err
		}
		users = append(users, u)
	}
	var tokens strings.Builder
	for _, u := range users {
		fmt.Fprintf(&tokens, "%s,%s,%s,%q\n", u.token, u.name, u.name, strings.Join(u.groups, ","))
		if err := p.writeKubeconfig(u); err != nil {
			return err
		}
	}
	if err := writePrivate(p.path("tokens.csv"), []byte(tokens.String())); err != nil {
		return err
	}
	if err := writePrivate(p.path("stages.yaml"), []byte(stages)); err != nil {
		return err
	}
	if options.auditLog != "" {
		// The API server runs in a different directory from the caller.
		abs, err := filepath.Abs(options.auditLog)
		if err != nil {
			return err
		}
		p.auditLog = abs
	}
	return writePrivate(p.path("audit-policy.yaml"), []byte(auditPolicy))
}

func newUser(name, file string, groups ...string) user {
	return user{name: name, token: randomHex(16), file: file, groups: groups}
}

// userName allows only names that are safe in a file name and in the token file.
var userName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// parseUser reads NAME[:GROUP,...]; groups may contain colons.
func parseUser(flag string) (user, error) {
	name, list, _ := strings.Cut(flag, ":")
	taken := slices.Contains([]string{"admin", "operator", "components"}, name)
	if taken || !userName.MatchString(name) || strings.ContainsAny(list, "\"\n") {
		return user{}, fmt.Errorf("--user %q: want NAME[:GROUP,...]; NAME consists of a-z, 0-9 and - and is not admin, operator or components", flag)
	}
	var groups []string
	if list != "" {
		groups = strings.Split(list, ",")
	}
	return newUser(name, name+".kubeconfig", groups...), nil
}

// writeKubeconfig writes JSON, which is YAML too.
func (p *plane) writeKubeconfig(u user) error {
	authority, err := os.ReadFile(p.path("ca.crt"))
	if err != nil {
		return err
	}
	type m = map[string]any
	config, err := json.MarshalIndent(m{
		"apiVersion":      "v1",
		"kind":            "Config",
		"current-context": "control-plane",
		"clusters":        []m{{"name": "control-plane", "cluster": m{"server": p.server, "certificate-authority-data": authority}}},
		"users":           []m{{"name": u.name, "user": m{"token": u.token}}},
		"contexts":        []m{{"name": "control-plane", "context": m{"cluster": "control-plane", "user": u.name, "namespace": "default"}}},
	}, "", "  ")
	if err != nil {
		return err
	}
	return writePrivate(p.path(u.file), append(config, '\n'))
}
