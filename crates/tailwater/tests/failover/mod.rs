//! Clusters under the manager: failover, switchover, rejoin.

mod automatic_failover;
mod channel_target_failover;
mod fencing_race;
mod former_primary_rejoin;
mod haproxy_routing;
mod manager_and_primary_on_dead_host;
mod manager_killed_mid_failover;
mod out_of_connections;
mod prometheus_alerts;
mod random_faults;
mod recreated_etcd;
mod relay_down_during_failover;
mod rolling_upgrade;
mod sandbox_cluster;
mod switchover;
mod two_relays_and_managers;
mod unusual_settings;
