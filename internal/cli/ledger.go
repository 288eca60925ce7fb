package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/inspect"
	"github.com/plimsoll-dev/plimsoll/internal/observe"
	"github.com/plimsoll-dev/plimsoll/internal/parts"
	"github.com/plimsoll-dev/plimsoll/internal/policies"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
	"github.com/plimsoll-dev/plimsoll/pkg/report"
)

const ledgerLong = `Look at the ledger: what is there, who holds it, and whether the manager's book is what the cluster says.

The live book comes from the manager by way of the API server (Service plimsoll-metrics in plimsoll-system), or from
--manager. For that you need Role plimsoll-ledger-reader in plimsoll-system. Without it, or without a manager, status and
export are computed from what the API server has, with your own rights, and say so. Nothing is changed.`

// ledgerFlags say where the ledger comes from.
type ledgerFlags struct {
	cluster *cluster
	now     func() time.Time
	manager inspect.Manager
	cold    bool
	open    func() (*source, error)
	// tries and pause are those of the Verifier.
	tries int
	pause time.Duration
}

func newLedger(c *cluster, now func() time.Time) *cobra.Command {
	f := &ledgerFlags{cluster: c, now: now}
	f.open = f.connect
	return f.command()
}

func (f *ledgerFlags) command() *cobra.Command {
	cmd := &cobra.Command{Use: "ledger", Short: "Look at the ledger: what is free, who holds the rest, and whether the manager's book is right", Long: ledgerLong}
	f.addFlags(cmd.PersistentFlags())
	cmd.AddCommand(f.newStatus(), f.newExport(), f.newVerify())
	return cmd
}

func (f *ledgerFlags) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&f.manager.URL, "manager", "", "the manager's metrics server, as https://host:port; empty for the way through the API server")
	flags.StringVar(&f.manager.CAFile, "manager-ca", "", "file with the certificates that sign the one of --manager")
	flags.BoolVar(&f.manager.Insecure, "insecure-skip-tls-verify", false, "take any certificate from --manager")
}

// addCold adds the flag of the commands that can do without a manager.
func (f *ledgerFlags) addCold(flags *pflag.FlagSet) {
	flags.BoolVar(&f.cold, "cold", false, "compute from the API server rather than ask the manager")
}

// source reads the ledger in both ways, and the policies with what is odd about them.
type source struct {
	live, cold func(ctx context.Context) (*ledger.Export, error)
	policies   func(ctx context.Context) ([]*flavors.Policy, []string, error)
}

// connect returns the source that the flags say, with the caller's rights.
func (f *ledgerFlags) connect() (*source, error) {
	config, err := f.cluster.config()
	if err != nil {
		return nil, err
	}
	config.WarningHandler = rest.NoWarnings{} // they are about API versions, which nobody who asks can change
	api, err := observe.NewCold(config, parts.Scheme())
	if err != nil {
		return nil, err
	}
	manager, err := inspect.NewClient(config, f.manager)
	if err != nil {
		return nil, err
	}
	return &source{
		live:     manager.Fetch,
		cold:     func(ctx context.Context) (*ledger.Export, error) { return inspect.Cold(ctx, api, f.now) },
		policies: func(ctx context.Context) ([]*flavors.Policy, []string, error) { return policiesOf(ctx, api.Client) },
	}, nil
}

// read returns the live book, or the cold one where that was asked for or there is no other. Whoever named a manager wants
// that one's.
func (f *ledgerFlags) read(ctx context.Context, s *source, stderr io.Writer) (*ledger.Export, error) {
	if f.cold {
		return s.cold(ctx)
	}
	e, err := s.live(ctx)
	if err == nil || f.manager.URL != "" || ctx.Err() != nil {
		return e, err
	}
	fmt.Fprintf(stderr, "Note: computed from the API server, since the manager's own ledger could not be read: %s\n", report.Printable(err.Error()))
	return s.cold(ctx)
}

func (f *ledgerFlags) newExport() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Print the whole ledger as JSON lines",
		Long: `Print the whole ledger as JSON lines.

The first line is a header with the format, the ledger's version and digest, and how many lines of each kind follow. Equal
accounts are equal lines in the same order; the digest covers them. Lines of what was, such as "lost" and "departed", come
last and are not covered. docs/tasks/ledger.md describes them.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := f.open()
			if err != nil {
				return err
			}
			e, err := f.read(cmd.Context(), s, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			return e.Write(cmd.OutOrStdout())
		},
	}
	f.addCold(cmd.Flags())
	return cmd
}

func (f *ledgerFlags) newStatus() *cobra.Command {
	var format, node string
	var nodes bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Count the devices of each flavor: free, held, reserved, unhealthy, stale, not served",
		Long: `Count the devices of each flavor of each DevicePolicy. Each device is in one column:

  FREE         a pod could be given it
  HELD         a claim has it
  RESERVED     it is promised to a Workload, or to a pod that was released
  UNHEALTHY    tainted, not to be lent as it is, part of a card that is in use, on a cordoned node, or held by what
               should have ended
  STALE        its pool is not complete, or its node is not Ready
  NOT-SERVING  a pod could be given it, but no pod of its driver is Ready on the node; for drivers that the policy names`,
		Example: "  kubectl plimsoll ledger status --nodes\n  kubectl plimsoll ledger status --node gpu-17 -o yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(formats, format) {
				return fmt.Errorf("-o %s is not known: use one of %s", format, strings.Join(formats, ", "))
			}
			s, err := f.open()
			if err != nil {
				return err
			}
			e, err := f.read(cmd.Context(), s, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			list, notes, err := s.policies(cmd.Context())
			if err != nil {
				return err
			}
			status, err := inspect.Of(e, list)
			if err != nil {
				return err
			}
			status.Notes = notes
			if err := status.Only(node, nodes); err != nil {
				return err
			}
			if format == "words" {
				_, err := io.WriteString(cmd.OutOrStdout(), status.Words(f.now()))
				return err
			}
			return printValue(cmd.OutOrStdout(), status, format)
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", formats[0], "how to print the answer: "+strings.Join(formats, ", "))
	cmd.Flags().BoolVar(&nodes, "nodes", false, "count by node as well, and say why devices are unhealthy, stale or not served")
	cmd.Flags().StringVar(&node, "node", "", "the same for one node alone")
	f.addCold(cmd.Flags())
	return cmd
}

// policiesOf returns the cluster's policies in order of their names. What of one cannot be resolved is left out, with a note.
func policiesOf(ctx context.Context, c client.Reader) ([]*flavors.Policy, []string, error) {
	list := &v1alpha1.DevicePolicyList{}
	if err := c.List(ctx, list); err != nil {
		return nil, nil, fmt.Errorf("list DevicePolicies: %w", err)
	}
	resolver := &policies.Resolver{Client: c}
	var out []*flavors.Policy
	var notes []string
	for i := range list.Items {
		p, problems, err := resolver.Resolve(ctx, &list.Items[i])
		if err != nil {
			return nil, nil, err
		}
		for _, problem := range problems {
			notes = append(notes, fmt.Sprintf("DevicePolicy %s: %s", p.Name, problem.Message))
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b *flavors.Policy) int { return strings.Compare(a.Name, b.Name) })
	return out, notes, nil
}

// cannotTell is why verify found out neither way.
type cannotTell struct{ error }

func (e cannotTell) Unwrap() error { return e.error }

// errDiffers says that the ledger is not what the cluster says; what differs has been printed.
var errDiffers = errors.New("the live ledger differs from the cluster")

func (f *ledgerFlags) newVerify() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Hold the manager's ledger against one computed from the API server",
		Long: `Compute the ledger from the API server and hold it against the manager's own, line by line.

A cluster moves: a difference counts once neither side of it has changed for several looks. Exit status 0: equal, the
digest is printed. 1: they differ, and each differing line is printed as both have it. 2: could not be found out, as
without a manager, without the rights, or because everything moves.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := f.open()
			if err != nil {
				return cannotTell{err}
			}
			verifier := &inspect.Verifier{Live: s.live, Cold: s.cold, Tries: f.tries, Pause: f.pause}
			verdict, err := verifier.Verify(cmd.Context())
			if err != nil {
				return cannotTell{err}
			}
			if err := verdict.Print(cmd.OutOrStdout()); err != nil {
				return cannotTell{err}
			}
			if !verdict.Equal {
				return fmt.Errorf("%w in %s", errDiffers, report.Plural(len(verdict.Lasting), "line"))
			}
			return nil
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return cannotTell{err} })
	return cmd
}
