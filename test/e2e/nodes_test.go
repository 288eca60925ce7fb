package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/test/lab"
)

// The ways in which a node is taken away and comes back.
const (
	cordoned    = "cordoned"
	tainted     = "tainted"
	deleted     = "deleted"
	lostForLong = "lost for longer than the grace"
)

// nodeEntries is one entry of a table for each way.
func nodeEntries() []any {
	var out []any
	for _, way := range []string{cordoned, tainted, deleted, lostForLong} {
		out = append(out, Entry(way, way))
	}
	return out
}

func (c *cluster) patchNode(ctx context.Context, name, patch string) {
	GinkgoHelper()
	Expect(mergePatch(ctx, c.Client, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, patch)).To(Succeed())
}

// takeNode takes a node away.
func (c *cluster) takeNode(ctx context.Context, way, name string) {
	GinkgoHelper()
	switch way {
	case cordoned:
		c.patchNode(ctx, name, `{"spec":{"unschedulable":true}}`)
	case tainted:
		c.patchNode(ctx, name, `{"spec":{"taints":[{"key":"example.com/repair","effect":"NoSchedule"}]}}`)
	case deleted:
		Expect(c.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
	case lostForLong:
		c.setPolicy(ctx, func(s *v1alpha1.DevicePolicySpec) { s.Freshness.LossGraceSeconds = ptr.To[int32](2) })
		c.patchNode(ctx, name, `{"metadata":{"annotations":{"`+lab.LostAnnotation+`":"true"}}}`)
	}
}

// bringNode brings back a node that was taken away.
func (c *cluster) bringNode(ctx context.Context, way, name string) {
	GinkgoHelper()
	switch way {
	case cordoned:
		c.patchNode(ctx, name, `{"spec":{"unschedulable":null}}`)
	case tainted:
		c.patchNode(ctx, name, `{"spec":{"taints":null}}`)
	case deleted:
		Expect(c.Lab.Apply(ctx, "../../examples/cluster")).To(Succeed())
	case lostForLong:
		c.setPolicy(ctx, func(s *v1alpha1.DevicePolicySpec) { s.Freshness.LossGraceSeconds = ptr.To[int32](60) })
		c.patchNode(ctx, name, `{"metadata":{"annotations":{"`+lab.LostAnnotation+`":null}}}`)
	}
}
