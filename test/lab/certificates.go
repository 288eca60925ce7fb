package lab

import (
	"github.com/plimsoll-dev/plimsoll/test/lab/internal/pki"
)

// Users that the components are to the API server.
const (
	userAdmin             = "lab-admin"
	userControllerManager = "system:kube-controller-manager"
	userScheduler         = "system:kube-scheduler"
	userKWOK              = "lab-kwok"
	groupMasters          = "system:masters"
)

// certify makes the authority, the certificates and kubeconfigs of the control plane, and its configuration files.
func (l *Lab) certify() error {
	authority, err := pki.NewAuthority("plimsoll-lab")
	if err != nil {
		return err
	}
	frontProxy, err := pki.NewAuthority("plimsoll-lab-front-proxy")
	if err != nil {
		return err
	}
	serving, err := authority.Server("127.0.0.1", "localhost", "10.0.0.1", "kubernetes", "kubernetes.default",
		"kubernetes.default.svc")
	if err != nil {
		return err
	}
	tokenKey, tokenPublic, err := pki.SigningKey()
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{
		l.state.pki("ca.crt"):             authority.Cert,
		l.state.pki("ca.key"):             authority.Key,
		l.state.pki("front-proxy-ca.crt"): frontProxy.Cert,
		l.state.pki("serving.crt"):        serving.Cert,
		l.state.pki("serving.key"):        serving.Key,
		l.state.pki("token.key"):          tokenKey,
		l.state.pki("token.pub"):          tokenPublic,
		l.state.conf("audit-policy.yaml"): auditPolicy,
		l.state.conf("kwok-stages.yaml"):  kwokStages,
		l.state.pki("manager/tls.crt"):    serving.Cert,
		l.state.pki("manager/tls.key"):    serving.Key,
	} {
		if err := l.state.write(name, data); err != nil {
			return err
		}
	}
	if err := l.identities.open(authority, httpsURL(l.endpoints.apiServer, "")); err != nil {
		return err
	}
	if l.applier, err = newApplier(l.identities.admin); err != nil {
		return err
	}
	for file, user := range map[string]identity{
		l.state.kubeconfig():            {name: userAdmin, groups: []string{groupMasters}},
		l.state.conf(ControllerManager): {name: userControllerManager},
		l.state.conf(Scheduler):         {name: userScheduler},
		l.state.conf(KWOK):              {name: userKWOK, groups: []string{groupMasters}},
		l.state.conf(Kueue):             serviceAccount(kueueNamespace, kueueServiceAccount),
		l.state.conf(Manager):           serviceAccount(managerNamespace, managerServiceAccount),
	} {
		config, err := l.User(user.name, user.groups...)
		if err != nil {
			return err
		}
		if err := l.WriteKubeconfig(file, config); err != nil {
			return err
		}
	}
	l.timeline.step("certificates made")
	return nil
}
