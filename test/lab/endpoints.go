package lab

import "fmt"

// endpoints are the ports of 127.0.0.1 on which a lab's processes listen.
type endpoints struct {
	etcd, etcdPeer                                int
	apiServer, controllerManager, scheduler, kwok int
	kueueHealth, kueueMetrics, kueueWebhook       int
	managerHealth, managerMetrics, managerWebhook int
}

func (l *Lab) reservePorts() error {
	e := &l.endpoints
	for _, port := range []*int{
		&e.etcd, &e.etcdPeer,
		&e.apiServer, &e.controllerManager, &e.scheduler, &e.kwok,
		&e.kueueHealth, &e.kueueMetrics, &e.kueueWebhook,
		&e.managerHealth, &e.managerMetrics, &e.managerWebhook,
	} {
		var err error
		if *port, err = l.ports.reserve(); err != nil {
			return err
		}
	}
	l.components = l.processes()
	return nil
}

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

func httpURL(port int, path string) string  { return "http://" + loopback(port) + path }
func httpsURL(port int, path string) string { return "https://" + loopback(port) + path }
