package policies

import (
	"k8s.io/client-go/rest"

	plimsoll "github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// user is somebody whom the API server knows.
type user struct {
	name   string
	groups []string
}

const groupTenants = "tenants"

var (
	manager = serviceAccount(plimsoll.SystemNamespace, plimsoll.ManagerServiceAccount)

	claimController     = controller("resource-claim-controller")
	garbageCollector    = controller("generic-garbage-collector")
	jobController       = controller("job-controller")
	namespaceController = controller("namespace-controller")
	// controllerManager is what all controllers are where they have no accounts of their own.
	controllerManager = user{name: "system:kube-controller-manager", groups: authenticated}
	scheduler         = user{name: "system:kube-scheduler", groups: authenticated}

	// tenant may edit in the namespaces of the tests, and use Kueue there.
	tenant = user{name: "tenant@example.com", groups: []string{groupTenants, "system:authenticated"}}
	// administrator has every right by RBAC, but is none of the system's masters.
	administrator = user{name: "administrator@example.com", groups: authenticated}
	master        = user{name: "master@example.com", groups: []string{"system:masters", "system:authenticated"}}
	nobody        = serviceAccount("default", "nobody")
)

var authenticated = []string{"system:authenticated"}

func controller(name string) user { return serviceAccount("kube-system", name) }

func serviceAccount(namespace, name string) user {
	return user{
		name:   "system:serviceaccount:" + namespace + ":" + name,
		groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}
}

// configFor is how a user talks to the API server.
func (c *controlPlane) configFor(who user) *rest.Config {
	config := rest.CopyConfig(c.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: who.name, Groups: who.groups}
	return config
}
