package alerts

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/storage"
)

// healthy is a fleet of two hubs, and a controller of two replicas, with nothing to
// tell. Times are of the test, which begins at 0; certificates are good for a year.
const healthy = `
load 1m
  up{job="edgehub",instance="n1"} 1x600
  up{job="edgehub",instance="n2"} 1x600
  process_start_time_seconds{job="edgehub",instance="n1"} 0x600
  edgehub_upstream_up{instance="n1",apiserver="a"} 1x600
  edgehub_upstream_up{instance="n1",apiserver="b"} 0x600
  edgehub_upstream_up{instance="n2",apiserver="a"} 1x600
  edgehub_upstream_last_change_timestamp_seconds{instance="n1",apiserver="a"} 0x600
  edgehub_upstream_last_change_timestamp_seconds{instance="n1",apiserver="b"} 0x600
  edgehub_upstream_last_change_timestamp_seconds{instance="n2",apiserver="a"} 0x600
  edgehub_upstream_credentials_refused{instance="n1",apiserver="a"} 0x600
  edgehub_client_certificate_expiration_timestamp_seconds{instance="n1"} 31536000x600
  edgehub_client_certificate_expiration_timestamp_seconds{instance="n2"} 0x600
  edgehub_client_certificate_renewal_failures_total{instance="n1"} 0x600
  edgehub_node_cloned{instance="n1"} 0x600
  edgehub_cache_store_up{instance="n1"} 1x600
  edgehub_cache_evictions_total{instance="n1"} 4x600
  edgehub_cache_damaged_files_total{instance="n1"} 0x600
  edgehub_cache_watches_expired_total{instance="n1"} 0+1x600
  edgehub_cache_commits_total{instance="n1",result="ok"} 0+30x600
  edgehub_cache_commits_total{instance="n1",result="error"} 0x600
  edgehub_event_spool_events{instance="n1"} 3x600
  edgehub_event_spool_dropped_total{instance="n1",reason="restart"} 0+1x600
  edgehub_proxy_requests_total{instance="n1",verb="get",code="200"} 0+100x600
  edgehub_proxy_requests_total{instance="n1",verb="get",code="503"} 0+1x600
  edgehub_proxy_callers_refused_total{instance="n1",reason="container"} 0x600
  edgehub_proxy_caller_check{instance="n1"} 1x600
  edgehub_connections_refused_total{instance="n1",port="proxy-port"} 3x600
  edgehub_imagepull_pulls_total{instance="n1",result="Ready"} 0+1x600
  edgehub_imagepull_images{instance="n1",state="Failed"} 0x600
  edgehub_ota_upgrades_total{instance="n1",code="503"} 0+1x600
  edgehub_ota_upgrades_total{instance="n1",code="501"} 0+1x600
  edgehub_offline_upgrades{instance="n1",state="Confirmed"} 1x600
  edgehub_offline_upgrades{instance="n1",state="Offered"} 0x600
  edgehub_controller_leader{instance="c1"} 1x600
  edgehub_controller_leader{instance="c2"} 0x600
  edgehub_controller_reconciles_total{instance="c1",result="success"} 0+100x600
  edgehub_controller_reconciles_total{instance="c1",result="error"} 0+1x600
  edgehub_controller_pod_patches_total{instance="c1",result="error"} 0x600
  edgehub_controller_pod_deletions_total{instance="c1",result="error"} 0x600
  edgehub_controller_rollout_nodes{instance="c1",namespace="a",daemonset="d",state="updated"} 0+1x600
  edgehub_controller_rollout_nodes{instance="c1",namespace="a",daemonset="d",state="pending"} 900-1x600
  edgehub_controller_rollout_nodes{instance="c1",namespace="a",daemonset="d",state="unavailable"} 0x600
  edgehub_controller_rollout_nodes{instance="c1",namespace="a",daemonset="d",state="held_by_breaker"} 0x600
  edgehub_controller_autonomy_nodes{instance="c1",state="applied"} 7x600
  edgehub_controller_autonomy_nodes{instance="c1",state="pending"} 0x600
  edgehub_controller_autonomy_longest_outage_seconds{instance="c1"} 0+60x600
  workqueue_depth{instance="c1",name="edgehub-controller"} 0x600
  workqueue_longest_running_processor_seconds{instance="c1",name="edgehub-controller"} 1x600
`

func TestAlertsFireWhenTheyShouldAndAtNoOtherTime(t *testing.T) {
	rules := allRules(t)
	for name, tt := range map[string]struct {
		// series take the place of those in healthy that begin the same.
		series []string
		want   []string
	}{
		"all is well":                          {nil, nil},
		"a hub that is down":                   {[]string{`up{job="edgehub",instance="n1"} 0x600`}, []string{"EdgehubHubDown"}},
		"another job that is down":             {[]string{`up{job="other",instance="n1"} 0x600`}, nil},
		"a hub that crashes in a loop":         {[]string{`process_start_time_seconds{job="edgehub",instance="n1"} 0+60x600`}, []string{"EdgehubHubRestarts"}},
		"a hub without the cloud":              {[]string{`edgehub_upstream_up{instance="n2",apiserver="a"} 0x600`}, []string{"EdgehubHubOffline"}},
		"one of a hub's two apiservers":        {[]string{`edgehub_upstream_up{instance="n1",apiserver="a"} 0x600`, `edgehub_upstream_up{instance="n1",apiserver="b"} 1x600`}, nil},
		"a link that comes and goes":           {[]string{`edgehub_upstream_up{instance="n2",apiserver="a"} ` + strings.Repeat("0 1 ", 300)}, []string{"EdgehubHubFlapping"}},
		"everybody lists":                      {[]string{`edgehub_cache_watches_expired_total{instance="n1"} 0+1500x600`}, []string{"EdgehubReconnectStorm"}},
		"a certificate with three days":        {[]string{`edgehub_client_certificate_expiration_timestamp_seconds{instance="n1"} 300000x600`}, []string{"EdgehubNodeCertificateExpiring"}},
		"a certificate that has expired":       {[]string{`edgehub_client_certificate_expiration_timestamp_seconds{instance="n1"} 60x600`}, []string{"EdgehubNodeCertificateExpired", "EdgehubNodeCertificateExpiring"}},
		"credentials that are refused":         {[]string{`edgehub_upstream_credentials_refused{instance="n1",apiserver="a"} 1x600`}, []string{"EdgehubNodeCredentialsRefused"}},
		"a node that is two machines":          {[]string{`edgehub_node_cloned{instance="n1"} 1x600`}, []string{"EdgehubNodeCloned"}},
		"no new certificate":                   {[]string{`edgehub_client_certificate_renewal_failures_total{instance="n1"} 0+1x600`}, []string{"EdgehubCertificateRenewalFails"}},
		"a cache that cannot be opened":        {[]string{`edgehub_cache_store_up{instance="n1"} 0x600`}, []string{"EdgehubCacheStoreDown"}},
		"a disk that is full":                  {[]string{`edgehub_cache_commits_total{instance="n1",result="error"} 0+1x600`}, []string{"EdgehubCacheWritesFail"}},
		"a cache that is full":                 {[]string{`edgehub_cache_evictions_total{instance="n1"} 0+1x600`}, []string{"EdgehubCacheFull"}},
		"a cache file that was damaged":        {[]string{`edgehub_cache_damaged_files_total{instance="n1"} 1x600`}, []string{"EdgehubCacheDamaged"}},
		"what is not in the cache":             {[]string{`edgehub_cache_requests_total{instance="n1",resource="secrets",result="miss"} 0+10x600`}, []string{"EdgehubCacheMisses"}},
		"events that are dropped":              {[]string{`edgehub_event_spool_dropped_total{instance="n1",reason="full"} 0+1x600`}, []string{"EdgehubEventsDropped"}},
		"events that pile up":                  {[]string{`edgehub_event_spool_events{instance="n1"} 950x600`}, []string{"EdgehubEventSpoolFilling"}},
		"requests that fail":                   {[]string{`edgehub_proxy_requests_total{instance="n1",verb="get",code="503"} 0+50x600`}, []string{"EdgehubRequestsFail"}},
		"a pod that wants the node's identity": {[]string{`edgehub_proxy_callers_refused_total{instance="n1",reason="container"} 0+5x600`}, []string{"EdgehubCallersRefused"}},
		"callers that nobody looks at":         {[]string{`edgehub_proxy_caller_check{instance="n1"} 0x600`}, []string{"EdgehubCallersNotChecked"}},
		"too many connections":                 {[]string{`edgehub_connections_refused_total{instance="n1",port="proxy-port"} 0+1x600`}, []string{"EdgehubConnectionsRefused"}},
		"a registry that refuses":              {[]string{`edgehub_imagepull_pulls_total{instance="n1",result="Unauthorized"} 0+1x600`, `edgehub_imagepull_images{instance="n1",state="Failed"} 1x600`}, []string{"EdgehubImagePullsFail", "EdgehubImagesStayFailed"}},
		"upgrades that fail":                   {[]string{`edgehub_ota_upgrades_total{instance="n1",code="500"} 0+1x600`}, []string{"EdgehubUpgradesFail"}},
		"no controller that leads":             {[]string{`edgehub_controller_leader{instance="c1"} 0x600`}, []string{"EdgehubControllerWithoutLeader"}},
		"two that lead":                        {[]string{`edgehub_controller_leader{instance="c2"} 1x600`}, []string{"EdgehubControllerTwoLeaders"}},
		"reconciles that fail":                 {[]string{`edgehub_controller_reconciles_total{instance="c1",result="error"} 0+50x600`}, []string{"EdgehubControllerReconcilesFail"}},
		"pods that cannot be marked":           {[]string{`edgehub_controller_pod_patches_total{instance="c1",result="error"} 0+2x600`}, []string{"EdgehubPodWritesFail"}},
		"a worker that hangs":                  {[]string{`workqueue_longest_running_processor_seconds{instance="c1",name="edgehub-controller"} 700x600`}, []string{"EdgehubControllerQueueStuck"}},
		"a queue that is long":                 {[]string{`workqueue_depth{instance="c1",name="edgehub-controller"} 60x600`}, []string{"EdgehubControllerQueueLong"}},
		"a circuit breaker that is open":       {[]string{`edgehub_controller_rollout_nodes{instance="c1",namespace="a",daemonset="d",state="held_by_breaker"} 7x600`}, []string{"EdgehubRolloutHalted"}},
		"nodes that are stuck":                 {[]string{`edgehub_controller_rollout_nodes{instance="c1",namespace="a",daemonset="d",state="unavailable"} 2x600`}, []string{"EdgehubRolloutNodesStuck"}},
		"a rollout that stands still":          {[]string{`edgehub_controller_rollout_nodes{instance="c1",namespace="a",daemonset="d",state="updated"} 5x600`}, []string{"EdgehubRolloutNoProgress"}},
		"a pod that the cloud cannot follow":   {[]string{`edgehub_controller_unreconciled_pods{instance="c1",namespace="a",kind="DaemonSet",name="d"} 1x600`}, []string{"EdgehubOfflineUpgradeNotReconciled"}},
		"one that it follows late":             {[]string{`edgehub_controller_unreconciled_pods{instance="c1",namespace="a",kind="DaemonSet",name="d"} 1x10 stale`}, nil},
		"an upgrade that the cloud ignores":    {[]string{`edgehub_offline_upgrades{instance="n1",state="Offered"} 1x600`}, []string{"EdgehubOfflineUpgradeNotFollowed"}},
		"a damaged record of an upgrade":       {[]string{`edgehub_offline_upgrades{instance="n1",state="Damaged"} 1x600`}, []string{"EdgehubOfflineUpgradeNotFollowed"}},
		"pods that would be evicted":           {[]string{`edgehub_controller_autonomy_nodes{instance="c1",state="pending"} 1x600`}, []string{"EdgehubAutonomyNotApplied"}},
		"an annotation that cannot be read":    {[]string{`edgehub_controller_autonomy_nodes{instance="c1",state="invalid"} 1x600`}, []string{"EdgehubAutonomyNotApplied"}},
		"a node that does not come back":       {[]string{`edgehub_controller_autonomy_longest_outage_seconds{instance="c1"} 600000+60x600`}, []string{"EdgehubAutonomousNodeAway"}},
		"a rollout of another's standing":      {[]string{`edgehub_controller_rollout_nodes{instance="c1",namespace="b",daemonset="d",state="updated"} 5x600`}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			store := promqltest.LoadedStorage(t, with(t, tt.series))
			t.Cleanup(func() { _ = store.Close() })
			var got []string
			for i := range rules {
				if fires(t, store, &rules[i]) {
					got = append(got, rules[i].Alert)
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, tt.want) {
				t.Errorf("after ten hours there are %v, want %v", got, tt.want)
			}
		})
	}
}

// with replaces series of healthy, and adds others.
func with(t *testing.T, series []string) string {
	t.Helper()
	lines := strings.Split(strings.TrimRight(healthy, "\n"), "\n")
	for _, s := range series {
		name := s[:strings.LastIndexByte(s, '}')+1]
		i := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "  "+name+" ") })
		if i < 0 {
			lines = append(lines, "  "+s)
			continue
		}
		lines[i] = "  " + s
	}
	return strings.Join(lines, "\n")
}

// fires reports whether the alert fires ten hours after the beginning: whether there was
// a result at each minute of its "for". One that waits for longer than that is asked
// for the ten hours that are left after the first, so that it is tried, too.
func fires(t *testing.T, store storage.Storage, rule *rulefmt.Rule) bool {
	t.Helper()
	end := time.Unix(0, 0).Add(10 * time.Hour)
	wait := min(time.Duration(rule.For), 8*time.Hour)
	engine := promqltest.NewTestEngine(t, false, 5*time.Minute, 1e6)
	query, err := engine.NewRangeQuery(t.Context(), store, nil, rule.Expr, end.Add(-wait), end, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer query.Close()
	result := query.Exec(t.Context())
	if result.Err != nil {
		t.Fatalf("%s: %v", rule.Alert, result.Err)
	}
	matrix, ok := result.Value.(promql.Matrix)
	if !ok {
		t.Fatalf("%s: the result is %T", rule.Alert, result.Value)
	}
	steps := int(wait/time.Minute) + 1
	return slices.ContainsFunc(matrix, func(s promql.Series) bool { return len(s.Floats) == steps })
}
