package flavors

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// templateEnd is how many bytes of an owned template's name are not the user's.
const templateEnd = len(v1alpha1.TemplateInfix) + v1alpha1.TemplateRandomLength

// UserTemplates returns the template names that a pod's user wrote, by pod claim, as the pod webhook kept them; it is
// empty for a pod without the annotation. The annotation selects, it proves nothing: hold what it says against the
// podset of the pod's Workload.
func UserTemplates(pod *corev1.Pod) (map[string]string, error) {
	templates := map[string]string{}
	v, ok := pod.Annotations[v1alpha1.ClaimTemplatesAnnotation]
	if !ok {
		return templates, nil
	}
	if err := json.Unmarshal([]byte(v), &templates); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", v1alpha1.ClaimTemplatesAnnotation, err)
	}
	if templates == nil { // the annotation says null
		templates = map[string]string{}
	}
	return templates, nil
}

// FreshTemplateName returns the name of a pod's own template: the user's template, cut so that the whole is at most as
// long as a name may be, then the infix, then random, which has TemplateRandomLength lower-case letters and digits.
// The result is a valid name where user is one.
func FreshTemplateName(user, random string) string {
	if most := validation.DNS1123SubdomainMaxLength - templateEnd; len(user) > most {
		user = user[:most]
	}
	return strings.TrimRight(user, "-.") + v1alpha1.TemplateInfix + random
}

// IsOwnedTemplateName says whether a name has the form of those that FreshTemplateName returns.
func IsOwnedTemplateName(name string) bool {
	_, ok := randomEnd(name)
	return ok
}

// IsFreshTemplateName says whether name is one that FreshTemplateName returns for a user's template.
func IsFreshTemplateName(name, user string) bool {
	random, ok := randomEnd(name)
	return ok && user != "" && FreshTemplateName(user, random) == name
}

// randomEnd returns the random end of an owned template's name.
func randomEnd(name string) (string, bool) {
	if len(name) <= templateEnd {
		return "", false
	}
	end := name[len(name)-templateEnd:]
	random, ok := strings.CutPrefix(end, v1alpha1.TemplateInfix)
	if !ok || strings.Trim(random, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		return "", false
	}
	return random, true
}
