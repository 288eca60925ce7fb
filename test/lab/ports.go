package lab

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports are taken from below the range that Linux hands out to outgoing connections by default: a port that a component
// is about to listen on must not become the near end of somebody's connection first.
const (
	firstPort = 20000
	lastPort  = 32767
	portTries = 1000
)

// portPool hands out free ports of 127.0.0.1 and keeps each occupied until the component that gets it starts.
type portPool struct {
	mu   sync.Mutex
	held map[int]net.Listener
}

func (p *portPool) reserve() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	for range portTries {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		var listener net.Listener
		listener, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		if p.held == nil {
			p.held = map[int]net.Listener{}
		}
		p.held[port] = listener
		return port, nil
	}
	return 0, fmt.Errorf("no free port found: %w", err)
}

// release frees ports for the component that listens on them; a port that is not held is left alone.
func (p *portPool) release(ports ...int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, port := range ports {
		if listener := p.held[port]; listener != nil {
			listener.Close()
			delete(p.held, port)
		}
	}
}

func (p *portPool) releaseAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for port, listener := range p.held {
		listener.Close()
		delete(p.held, port)
	}
}
