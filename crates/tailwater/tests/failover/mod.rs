//! Clusters under the manager: failover, switchover, rejoin.

mod absent_relay;
mod automatic_failover;
mod channel_target_failover;
mod dead_host;
mod etcd_recreated;
mod fencing_race;
mod haproxy;
mod manager_killed_mid_run;
mod nemesis;
mod odd_settings;
mod rejoin;
mod rolling_upgrade;
mod sandbox_cluster;
mod switchover;
mod two_relays;
