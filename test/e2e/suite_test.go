package e2e

import (
	"context"
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/plimsoll-dev/plimsoll/test/lab"
)

// The bounds of Eventually and Consistently. Nothing is asserted on time alone: a spec that runs into soon or late has
// failed for another reason.
const (
	soon  = 30 * time.Second
	late  = 2 * time.Minute
	while = 3 * time.Second
	often = 100 * time.Millisecond
)

// released, as an environment variable, is the release of Kubernetes that labs run: `make next-release`.
const released = "PLIMSOLL_RELEASE"

func release() lab.Release { return lab.Release(os.Getenv(released)) }

func TestEndToEnd(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(soon)
	SetDefaultEventuallyPollingInterval(often)
	SetDefaultConsistentlyDuration(while)
	SetDefaultConsistentlyPollingInterval(often)
	RunSpecs(t, "End to end")
}

var _ = BeforeSuite(func(ctx context.Context) {
	Expect(build(ctx, "")).To(Succeed())
}, NodeTimeout(2*time.Hour))

// build builds the lab of a repository, unless who runs these tests has just done that for all parts of them.
func build(ctx context.Context, root string) error {
	if os.Getenv("PLIMSOLL_LAB_BUILT") == "yes" {
		return nil
	}
	return lab.BuildRelease(ctx, root, release(), os.Stderr)
}
