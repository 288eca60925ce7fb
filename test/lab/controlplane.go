package lab

import (
	_ "embed"
	"fmt"
)

//go:embed files/stages.yaml
var kwokStages []byte

//go:embed files/audit-policy.yaml
var auditPolicy []byte

// processes says how each component is run.
func (l *Lab) processes() map[string]process {
	return map[string]process{
		Etcd:              l.etcdProcess(),
		APIServer:         l.apiServerProcess(),
		ControllerManager: l.controllerManagerProcess(),
		Scheduler:         l.schedulerProcess(),
		KWOK:              l.kwokProcess(),
		Kueue:             l.kueueProcess(),
		Manager:           l.managerProcess(),
	}
}

func (l *Lab) etcdProcess() process {
	client, peer := httpURL(l.endpoints.etcd, ""), httpURL(l.endpoints.etcdPeer, "")
	return process{
		args: []string{
			"--name=lab",
			"--data-dir=" + l.state.path("etcd"),
			"--listen-client-urls=" + client,
			"--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer,
			"--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=lab=" + peer,
			"--unsafe-no-fsync",
			"--log-level=warn",
		},
		ports: []int{l.endpoints.etcd, l.endpoints.etcdPeer},
		ready: httpURL(l.endpoints.etcd, "/health"),
		tier:  tierStore,
	}
}

func (l *Lab) apiServerProcess() process {
	port := l.endpoints.apiServer
	return process{
		args: append(l.servingFlags(APIServer, port),
			"--etcd-servers="+httpURL(l.endpoints.etcd, ""),
			"--advertise-address=127.0.0.1",
			"--endpoint-reconciler-type=none",
			"--service-cluster-ip-range=10.0.0.0/24",
			"--client-ca-file="+l.state.pki("ca.crt"),
			"--service-account-issuer=https://kubernetes.default.svc",
			"--service-account-key-file="+l.state.pki("token.pub"),
			"--service-account-signing-key-file="+l.state.pki("token.key"),
			// Nobody proxies; without these the controller-manager and the scheduler complain about missing authorities.
			"--requestheader-client-ca-file="+l.state.pki("front-proxy-ca.crt"),
			"--requestheader-allowed-names=front-proxy-client",
			"--requestheader-username-headers=X-Remote-User",
			"--requestheader-group-headers=X-Remote-Group",
			"--requestheader-extra-headers-prefix=X-Remote-Extra-",
			"--authorization-mode=RBAC",
			"--allow-privileged=true",
			"--profiling=false",
			// Nobody has to be kept from taking more than a share of a lab's requests, and the queues for that are work.
			"--enable-priority-and-fairness=false",
			"--audit-policy-file="+l.state.conf("audit-policy.yaml"),
			"--audit-log-path="+l.state.audit(),
			"--audit-log-maxsize=4096", // megabytes; 0 would rotate at 100
			"--runtime-config=resource.k8s.io/v1=true,resource.k8s.io/v1beta1=true,"+
				"resource.k8s.io/v1beta2=true,resource.k8s.io/v1alpha3=true",
		),
		ports: []int{port},
		ready: httpsURL(port, "/readyz"),
		tier:  tierAPI,
	}
}

func (l *Lab) controllerManagerProcess() process {
	port := l.endpoints.controllerManager
	return process{
		args: append(append(l.servingFlags(ControllerManager, port), l.clientFlags(ControllerManager)...),
			"--use-service-account-credentials=true",
			"--service-account-private-key-file="+l.state.pki("token.key"),
			"--root-ca-file="+l.state.pki("ca.crt"),
			"--controllers="+l.options.Release.controllers(),
			// Claims from templates come at the rate of this client: by default 20 a second.
			"--kube-api-qps=200",
			"--kube-api-burst=400",
		),
		ports: []int{port},
		ready: httpsURL(port, "/healthz"),
		tier:  tierClient,
	}
}

func (l *Lab) schedulerProcess() process {
	port := l.endpoints.scheduler
	return process{
		args:  append(l.servingFlags(Scheduler, port), l.clientFlags(Scheduler)...),
		ports: []int{port},
		ready: httpsURL(port, "/healthz"),
		tier:  tierClient,
	}
}

func (l *Lab) kwokProcess() process {
	port := l.endpoints.kwok
	return process{
		args: []string{
			"--kubeconfig=" + l.state.conf(KWOK),
			"--config=" + l.state.conf("kwok-stages.yaml"),
			"--manage-all-nodes=true",
			"--server-address=" + loopback(port),
			"--node-ip=127.0.0.1",
			"--cidr=10.244.0.0/16",
			"--node-lease-duration-seconds=40",
		},
		ports: []int{port},
		ready: httpURL(port, "/healthz"),
		tier:  tierClient,
	}
}

// servingFlags are common to the components of Kubernetes: where they listen, with which certificate, and the gates.
func (l *Lab) servingFlags(component string, port int) []string {
	return []string{
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + l.state.pki("serving.crt"),
		"--tls-private-key-file=" + l.state.pki("serving.key"),
		"--feature-gates=" + formatGates(l.options.Release.gates(component)),
	}
}

// clientFlags are common to the components that work against the API server; it also tells them who may read their
// metrics.
func (l *Lab) clientFlags(component string) []string {
	kubeconfig := l.state.conf(component)
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--leader-elect=false",
	}
}
