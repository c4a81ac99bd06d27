use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tailwater_wire::Flavour;
use tailwater_wire::event::{ChecksumAlgorithm, EVENT_HEADER_BYTES, FormatDescription};
use tailwater_wire::event::{EventBuilder, Rotate, verify_checksum};
use tailwater_wire::gtid::{MysqlGtid, MysqlGtidSet};
use tailwater_wire::{ServerId, gtid};

use super::*;
use crate::serve::start::{From, SkipDomain};

fn request(from: From) -> DumpRequest {
    DumpRequest {
        server_id: 7,
        replica_uuid: None,
        from,
        wait_for_more: true,
        heartbeat_period: None,
        heartbeat_v2: false,
        checksum: None,
        annotate_rows: false,
        skip_marked: false,
        semi_sync: false,
    }
}

fn gtid(text: &str) -> MariadbGtid {
    MariadbGtid::parse(text).unwrap()
}

fn mariadb_filter(position: &[&str], strict: bool, until: Option<&[&str]>) -> Filter {
    let domains = position.iter().map(|text| {
        let gtid = gtid(text);
        (gtid.domain, SkipDomain { gtid, was_empty: false })
    });
    let until = until.map(|until| until.iter().map(|text| (gtid(text).domain, gtid(text))).collect());
    let skip = MariadbSkip {
        domains: domains.collect(),
        strict,
        until,
        until_before: false,
        state: MariadbBinlogState::new(),
    };
    Filter::new(
        &request(From::FilePosition { file: String::new(), position: 4 }),
        Skip::Mariadb(Box::new(skip)),
    )
}

/// What becomes of these transactions: `+` sent, `-` left out, `l` a list behind it, `.` the last.
fn fates(filter: &mut Filter, transactions: &[&str]) -> String {
    let mut fates = String::new();
    for text in transactions {
        match filter.transaction(Some(&Gtid::MariaDb(gtid(text))), || None) {
            Err(refusal) => fates += &format!("!{}", refusal.code),
            Ok(verdict) => {
                fates.push(if verdict.send { '+' } else { '-' });
                fates += if verdict.list_after { "l" } else { "" };
                fates += if verdict.last { "." } else { "" };
            }
        }
    }
    fates
}

#[test]
fn a_domain_is_skipped_up_to_the_clients_gtid() {
    let binlog = ["0-1-1", "1-1-1", "0-1-2", "0-2-3", "1-1-2", "0-1-4"];
    let check = |position: &[&str], expected: &str| {
        assert_eq!(fates(&mut mariadb_filter(position, false, None), &binlog), expected, "{position:?}");
    };
    check(&[], "++++++");
    check(&["0-1-2"], "-+-l+++");
    check(&["0-1-2", "1-1-2"], "---l+-l+");
    // The GTID of another server than the one before it.
    check(&["0-2-3"], "-+--l++");
}

#[test]
fn a_hole_at_the_clients_gtid_is_an_error_in_strict_mode_only() {
    let binlog = ["0-1-1", "0-1-3"];
    assert_eq!(fates(&mut mariadb_filter(&["0-1-2"], false, None), &binlog), "-+l");
    assert_eq!(fates(&mut mariadb_filter(&["0-1-2"], true, None), &binlog), "-!1951");
}

#[test]
fn a_client_that_wants_an_end_gets_nothing_behind_it() {
    let binlog = ["0-1-1", "1-1-1", "0-1-2", "1-1-2", "0-1-3"];
    let check = |until: &[&str], expected: &str| {
        assert_eq!(fates(&mut mariadb_filter(&[], false, Some(until)), &binlog), expected, "{until:?}");
    };
    check(&["0-1-1", "1-1-2"], "++-+.-");
    check(&["1-1-1"], "-+.---");
    assert!(mariadb_filter(&[], false, Some(&[])).is_at_its_end());
}

#[test]
fn a_client_ahead_in_a_domain_that_the_log_did_not_have_is_found_out() {
    let mut filter = mariadb_filter(&["3-1-9"], false, None);
    if let Skip::Mariadb(skip) = &mut filter.skip {
        skip.domains.get_mut(&3).unwrap().was_empty = true;
    }
    let state = MariadbBinlogState::from_gtids([gtid("3-1-1")]);
    let verdict = filter.transaction(Some(&Gtid::MariaDb(gtid("3-1-1"))), || Some(state));
    assert_eq!(verdict.unwrap_err().code, Refusal::FATAL_ERROR_READING_BINLOG);
}

proptest! {
    /// Of each domain the client gets exactly what stands behind its GTID.
    #[test]
    fn what_is_sent_of_a_mariadb_log_is_what_the_client_lacks(
        // Domain and server of each transaction; the sequence numbers of a domain rise.
        binlog in prop::collection::vec((0u32..3, 1u32..3), 1..40),
        has in prop::collection::vec(0usize..40, 3),
    ) {
        let mut sequences = BTreeMap::new();
        let binlog: Vec<MariadbGtid> = binlog.into_iter().map(|(domain, server_id)| {
            let sequence = sequences.entry(domain).or_insert(0u64);
            *sequence += 1;
            MariadbGtid { domain, server_id, sequence: *sequence }
        }).collect();
        let mut position = BTreeMap::new();
        for (domain, index) in has.iter().enumerate() {
            let of_domain: Vec<_> = binlog.iter().filter(|gtid| gtid.domain == domain as u32).collect();
            if let Some(gtid) = of_domain.get(*index) {
                position.insert(domain as u32, **gtid);
            }
        }
        let texts: Vec<String> = position.values().map(ToString::to_string).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let mut filter = mariadb_filter(&texts, true, None);
        for gtid in binlog {
            let verdict = filter.transaction(Some(&Gtid::MariaDb(gtid)), || None).unwrap();
            let lacks = position.get(&gtid.domain).is_none_or(|has| gtid.sequence > has.sequence);
            prop_assert_eq!(verdict.send, lacks, "{}", gtid);
            prop_assert_eq!(verdict.list_after, position.get(&gtid.domain) == Some(&gtid));
        }
    }

    #[test]
    fn what_is_sent_of_a_mysql_log_is_what_the_client_lacks(has in prop::collection::btree_set(1u64..60, 0..40)) {
        let uuid = [7; 16];
        let mysql = |number| MysqlGtid { uuid, tag: String::new(), number };
        let mut set = MysqlGtidSet::new();
        for number in &has {
            set.insert(&mysql(*number)).unwrap();
        }
        let from = From::Mysql { has: set.clone(), file: String::new(), position: 4 };
        let mut filter = Filter::new(&request(from), Skip::Mysql { has: set, resumes: false });
        let sent: BTreeSet<u64> = (1..60)
            .filter(|number| filter.transaction(Some(&Gtid::MySql(mysql(*number))), || None).unwrap().send)
            .collect();
        prop_assert_eq!(sent, (1..60).filter(|number| !has.contains(number)).collect::<BTreeSet<_>>());
        // Without GTIDs nothing can be left out.
        prop_assert!(filter.transaction(None, || None).unwrap().send);
    }
}

#[test]
fn annotations_go_to_those_who_ask() {
    let header = |event_type, flags| EventHeader {
        timestamp: 0,
        event_type,
        server_id: ServerId(1),
        event_length: 30,
        end_log_pos: 0,
        flags,
    };
    let mut asked = request(From::FilePosition { file: String::new(), position: 4 });
    let sends =
        |request: &DumpRequest, header: EventHeader| Filter::new(request, Skip::Nothing).sends(&header);
    let annotation = header(EventType::MARIADB_ANNOTATE_ROWS, 0);
    assert!(!sends(&asked, annotation));
    asked.annotate_rows = true;
    assert!(sends(&asked, annotation));
    let marked = header(EventType::XID, EventHeader::FLAG_SKIP_REPLICATION);
    assert!(sends(&asked, marked));
    asked.skip_marked = true;
    assert!(!sends(&asked, marked) && sends(&asked, header(EventType::XID, 0)));
}

#[test]
fn changed_events_have_sound_checksums() {
    for flavour in [Flavour::MySql, Flavour::MariaDb] {
        let mut format = FormatDescription::assumed(flavour, ChecksumAlgorithm::Crc32);
        format.created = 77;
        let mut builder = EventBuilder::new(ServerId(1), ChecksumAlgorithm::Crc32);
        let original = builder.format_description(&format, 0).unwrap();
        let check = |in_mid_file, resumes, end_log_pos, created| {
            let mut event = original.clone();
            head(&mut event, &format, in_mid_file, resumes);
            verify_checksum(&event).unwrap();
            assert_eq!(EventHeader::parse(&event).unwrap().end_log_pos, end_log_pos);
            assert_eq!(FormatDescription::parse(&event[EVENT_HEADER_BYTES..]).unwrap().created, created);
        };
        let end = original.len() as u32 + 4;
        check(false, false, end, 77);
        check(false, true, end, 0);
        check(true, false, 0, 0);

        let rotate = builder.rotate(Rotate { position: 4, file_name: b"binlog.000008" }).unwrap();
        let renamed = renamed_rotate(&rotate, &format, |name| format!("{name}.other")).unwrap();
        verify_checksum(&renamed).unwrap();
        let header = EventHeader::parse(&renamed).unwrap();
        assert_eq!(header.event_length as usize, renamed.len());
        assert_eq!(header.end_log_pos, EventHeader::parse(&rotate).unwrap().end_log_pos);
        let body = &renamed[EVENT_HEADER_BYTES..renamed.len() - 4];
        assert_eq!(Rotate::parse(body, &format).unwrap().file_name, b"binlog.000008.other");
    }
    let state = MariadbBinlogState::from_gtids([gtid("0-1-5")]);
    let list = gtid_list(9, ChecksumAlgorithm::Crc32, &state, true, 400).unwrap();
    verify_checksum(&list).unwrap();
    let header = EventHeader::parse(&list).unwrap();
    assert!(header.is_artificial() && header.end_log_pos == 400);
    let body = &list[EVENT_HEADER_BYTES..list.len() - 4];
    let list = gtid::MariadbGtidList::decode(body).unwrap();
    assert_eq!((list.gtids, list.flags), (vec![gtid("0-1-5")], gtid::MariadbGtidList::FLAG_UNTIL_REACHED));
}
