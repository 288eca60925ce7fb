package oracle

import (
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// seen is one version of an object as a book may be told of it.
type seen struct {
	object metav1.Object
	gone   bool
}

// history returns versions of objects that end with the objects as they are, in a random order but for those of one object,
// with some that were there and are not any more. Whatever came before, the accounts are to be those of what is.
func history(r *rand.Rand, objects []metav1.Object) []seen {
	var early, late []seen
	for _, o := range objects {
		late = append(late, seen{object: o})
		if r.IntN(3) == 0 {
			early = append(early, seen{object: before(o)})
		}
		if p, ok := o.(*corev1.Pod); ok && r.IntN(2) == 0 {
			ghost := p.DeepCopy()
			ghost.Name, ghost.UID = "ghost-"+p.Name, "ghost-"+p.UID
			early, late = append(early, seen{object: ghost}), append(late, seen{object: ghost, gone: true})
		}
		if c, ok := o.(*resourcev1.ResourceClaim); ok && r.IntN(3) == 0 {
			ghost := c.DeepCopy()
			ghost.Name, ghost.UID = "ghost-"+c.Name, "ghost-"+c.UID
			early, late = append(early, seen{object: ghost}), append(late, seen{object: ghost, gone: true})
		}
	}
	for _, list := range [][]seen{early, late} {
		r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	}
	return append(early, late...)
}

// before returns an object as it may have been.
func before(o metav1.Object) metav1.Object {
	was := o.(runtime.Object).DeepCopyObject().(metav1.Object)
	was.SetResourceVersion("1")
	switch x := was.(type) {
	case *corev1.Node:
		x.Spec.Unschedulable = !x.Spec.Unschedulable
		x.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("1")
	case *corev1.Pod:
		x.Spec.NodeName, x.Status = "", corev1.PodStatus{}
	case *resourcev1.ResourceClaim:
		x.Status = resourcev1.ResourceClaimStatus{}
	case *resourcev1.ResourceSlice:
		x.Spec.Devices = nil
	case *resourcev1.DeviceClass:
		x.Spec.ExtendedResourceName = nil
	}
	return was
}
