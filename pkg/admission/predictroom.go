package admission

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// room is what the plugin NodeResourcesFit says. Extended resources that a DeviceClass serves on the node are the allocator's
// to judge.
func (f *foresight) room(context.Context) *refusal {
	if f.n.Free[corev1.ResourcePods] < 1 {
		return refuse(v1alpha1.ReasonNodeResources, "node %s: too many pods", f.n.Name)
	}
	asked := ofNode(f.requests, func(name corev1.ResourceName) bool {
		return f.n.Allocatable[name] <= 0 && f.classes[name] != nil
	})
	if k, scarce := f.n.Free.Times(asked, 1); k < 1 {
		return f.insufficient(scarce, asked[scarce])
	}
	return nil
}

func (f *foresight) insufficient(name corev1.ResourceName, asked int64) *refusal {
	return refuse(v1alpha1.ReasonNodeResources, "node %s: insufficient %s: %d asked for, %d free", f.n.Name, name, asked, f.n.Free[name])
}

// byClaim says whether kube-scheduler may serve a resource by a claim that it makes itself.
func byClaim(name corev1.ResourceName) bool {
	if strings.HasPrefix(string(name), resourcev1.ResourceDeviceClassPrefix) {
		return true
	}
	return strings.Contains(string(name), "/") && !strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix) &&
		!strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
}
