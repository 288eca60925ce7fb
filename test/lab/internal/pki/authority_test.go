package pki

import (
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func parse(t *testing.T, pair Pair) *x509.Certificate {
	t.Helper()
	loaded, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	return loaded.Leaf
}

func TestAuthority(t *testing.T) {
	makers := map[string]func(string) (*Authority, error){
		"elliptic curve": NewAuthority,
		"RSA":            NewRSAAuthority,
	}
	for name, newAuthority := range makers {
		t.Run(name, func(t *testing.T) {
			authority, err := newAuthority("test-ca")
			if err != nil {
				t.Fatal(err)
			}
			roots := x509.NewCertPool()
			if !roots.AppendCertsFromPEM(authority.Cert) {
				t.Fatal("the authority's certificate does not parse")
			}
			// As Kueue's rotator looks at it: the authority stands for its own name, 90 days ahead.
			later := time.Now().Add(90 * 24 * time.Hour)
			own := x509.VerifyOptions{Roots: roots, DNSName: "test-ca", CurrentTime: later}
			if _, err := parse(t, authority.Pair).Verify(own); err != nil {
				t.Errorf("authority: %v", err)
			}

			serving, err := authority.Server("webhook.ns.svc", "127.0.0.1")
			if err != nil {
				t.Fatal(err)
			}
			for _, host := range []string{"webhook.ns.svc", "127.0.0.1"} {
				if _, err := parse(t, serving).Verify(x509.VerifyOptions{Roots: roots, DNSName: host}); err != nil {
					t.Errorf("serving certificate for %s: %v", host, err)
				}
			}

			client, err := authority.Client("jane", "a", "b")
			if err != nil {
				t.Fatal(err)
			}
			cert := parse(t, client)
			usage := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
			if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: usage}); err != nil {
				t.Errorf("client certificate: %v", err)
			}
			if cert.Subject.CommonName != "jane" {
				t.Errorf("client certificate is for %q, want jane", cert.Subject.CommonName)
			}
			if diff := cmp.Diff([]string{"a", "b"}, cert.Subject.Organization); diff != "" {
				t.Errorf("groups (-want +got):\n%s", diff)
			}
		})
	}
}
