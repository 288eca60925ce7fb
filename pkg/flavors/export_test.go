package flavors

import (
	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// UserAffinity returns the required node affinity that a Workload's podsets had before steering, by podset; a nil
// value is none, an absent key one that was never steered.
func UserAffinity(wl *kueue.Workload) (map[string]*corev1.NodeSelector, error) {
	known, err := keptOf(wl)
	if err != nil {
		return nil, err
	}
	user := map[string]*corev1.NodeSelector{}
	for name, k := range known {
		user[name] = k.Own
	}
	return user, nil
}
