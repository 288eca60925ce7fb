// Command plimsoll is the manager: it proves, reserves and releases what Kueue admits.
package main

import (
	"flag"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/plimsoll-dev/plimsoll/internal/manager"
)

func main() {
	var o manager.Options
	o.Bind(flag.CommandLine)
	var logging zap.Options
	logging.BindFlags(flag.CommandLine)
	flag.Parse()
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&logging)))
	logger := ctrl.Log.WithName("plimsoll")
	cfg, err := ctrl.GetConfig()
	if err == nil {
		err = manager.Run(ctrl.SetupSignalHandler(), cfg, o)
	}
	if err != nil {
		logger.Error(err, "Stopped")
		os.Exit(1)
	}
}
