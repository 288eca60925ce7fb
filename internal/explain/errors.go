package explain

import (
	"errors"
	"fmt"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
)

// wrap makes one sentence of why a target cannot be explained.
func wrap(t Target, err error) error {
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%s does not exist in namespace %s", t, t.Namespace)
	}
	return errors.New(sentence("read "+t.String(), err))
}

// sentence says in one sentence why something could not be done.
func sentence(what string, err error) string {
	var unreachable *url.Error
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("you may not %s: %v", what, err)
	case apierrors.IsUnauthorized(err):
		return fmt.Sprintf("cannot %s: the cluster does not accept your credentials", what)
	case meta.IsNoMatchError(err):
		var none *meta.NoKindMatchError
		if errors.As(err, &none) {
			return fmt.Sprintf("cannot %s: the cluster has no kind %s; is %s installed?", what, none.GroupKind, installs(none.GroupKind.Group))
		}
		return fmt.Sprintf("cannot %s: the cluster does not know the kind: %v", what, err)
	case errors.As(err, &unreachable):
		return fmt.Sprintf("cannot reach the cluster at %s: %v", unreachable.URL, unreachable.Err)
	}
	return fmt.Sprintf("cannot %s: %v", what, err)
}

func installs(group string) string {
	switch group {
	case "kueue.x-k8s.io":
		return "Kueue"
	case "plimsoll.dev":
		return "Plimsoll"
	}
	return "what serves group " + group
}
