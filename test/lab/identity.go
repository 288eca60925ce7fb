package lab

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/plimsoll-dev/plimsoll/test/lab/internal/pki"
)

// identity is who somebody is to the API server.
type identity struct {
	name   string
	groups []string
}

// serviceAccount is the identity of a service account: as a user name in a client certificate it has the same rights as
// with a token.
func serviceAccount(namespace, name string) identity {
	return identity{
		name:   "system:serviceaccount:" + namespace + ":" + name,
		groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace},
	}
}

// identities makes client configurations for the lab's API server.
type identities struct {
	authority *pki.Authority
	server    string
	admin     *rest.Config
	manager   *rest.Config
}

func (i *identities) open(authority *pki.Authority, server string) error {
	i.authority, i.server = authority, server
	var err error
	if i.admin, err = i.config(identity{name: userAdmin, groups: []string{groupMasters}}); err != nil {
		return err
	}
	i.manager, err = i.config(serviceAccount(managerNamespace, managerServiceAccount))
	return err
}

func (i *identities) config(who identity) (*rest.Config, error) {
	pair, err := i.authority.Client(who.name, who.groups...)
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host: i.server,
		TLSClientConfig: rest.TLSClientConfig{
			CAData:   i.authority.Cert,
			CertData: pair.Cert,
			KeyData:  pair.Key,
		},
		QPS: -1, // the API server's own limits are the only ones
	}, nil
}

// Admin returns the configuration of a cluster administrator.
func (l *Lab) Admin() *rest.Config { return rest.CopyConfig(l.identities.admin) }

// Manager returns the configuration of the identity that Plimsoll's manager has. Nothing but its RBAC gives it rights.
func (l *Lab) Manager() *rest.Config { return rest.CopyConfig(l.identities.manager) }

// User returns the configuration of a user of that name and groups, who has the rights that RBAC gives them.
func (l *Lab) User(name string, groups ...string) (*rest.Config, error) {
	return l.identities.config(identity{name: name, groups: groups})
}

// WriteKubeconfig writes a configuration that Admin, Manager or User returned as a kubeconfig file.
func (l *Lab) WriteKubeconfig(path string, config *rest.Config) error {
	const name = "lab"
	file := clientcmdapi.NewConfig()
	file.Clusters[name] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	file.AuthInfos[name] = &clientcmdapi.AuthInfo{
		ClientCertificateData: config.CertData,
		ClientKeyData:         config.KeyData,
	}
	file.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	file.CurrentContext = name
	if err := clientcmd.WriteToFile(*file, path); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}
