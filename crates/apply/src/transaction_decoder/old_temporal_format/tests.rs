use super::*;
use crate::target_table::TargetColumn;
use crate::writeset::IndexId;
use tailwater_wire::row_event::BinlogValue;
use tailwater_wire::row_event::temporal_value::{Date, DateTime, Time, Timestamp};

/// The maximum number of fractional digits of a second.
const DIGITS_MAX: u8 = 6;

const TYPES: [(&str, ColumnType); 3] = [
    ("time", ColumnType::TimeOld { fraction: 0 }),
    ("datetime", ColumnType::DateTimeOld { fraction: 0 }),
    ("timestamp", ColumnType::TimestampOld { fraction: 0 }),
];

/// Returns test values of a type, with microseconds.
fn values(name: &str) -> Vec<BinlogValue<'static>> {
    let mut values = Vec::new();
    for micros in [0, 1, 10, 99, 100, 5_000, 123_456, 500_000, 999_999] {
        for (hours, negative) in [(0, false), (0, true), (12, false), (838, true), (838, false)] {
            let (minutes, seconds) = if hours == 838 { (59, 59) } else { (34, 56) };
            let date = Date { year: 2024, month: 2, day: 29 };
            values.push(match name {
                "time" => BinlogValue::Time(Time { negative, hours, minutes, seconds, micros }),
                "datetime" => {
                    let hour = (hours % 24) as u8;
                    BinlogValue::DateTime(DateTime { date, hour, minute: minutes, second: seconds, micros })
                }
                _ => BinlogValue::Timestamp(Timestamp { seconds: u32::from(hours) * 3_456_789, micros }),
            });
        }
    }
    if name == "datetime" {
        let last = Date { year: 9999, month: 12, day: 31 };
        values.push(BinlogValue::DateTime(DateTime {
            date: last,
            hour: 23,
            minute: 59,
            second: 59,
            micros: 999_999,
        }));
        values.push(BinlogValue::DateTime(DateTime::default()));
    }
    values
}

/// Returns a value cut to `digits` fractional digits, and its bytes in the log. The fractions are stored as
/// in MariaDB's `Field_time_hires`, `Field_datetime_hires` and `Field_timestamp_hires` (`sql/field.cc`).
/// `crates/apply/tests/old_temporal_format.rs` shows the same with real servers.
fn logged(value: &BinlogValue<'_>, digits: u8) -> (BinlogValue<'static>, Vec<u8>) {
    let unit = 10_u32.pow(u32::from(DIGITS_MAX - digits));
    let cut = |micros: u32| micros / unit * unit;
    let units = 10_u64.pow(u32::from(digits));
    let big_endian = |number: u64, bytes: usize| number.to_be_bytes()[8 - bytes..].to_vec();
    match *value {
        BinlogValue::Time(time) => {
            let (hours, minutes, seconds) =
                (u64::from(time.hours), u64::from(time.minutes), u64::from(time.seconds));
            let micros = cut(time.micros);
            // A negative zero does not exist.
            let negative = time.negative && (hours, minutes, seconds, micros) != (0, 0, 0, 0);
            let cut = BinlogValue::Time(Time { negative, micros, ..time });
            if digits == 0 {
                let number = (hours * 10_000 + minutes * 100 + seconds) as i32;
                return (cut, (if negative { -number } else { number }).to_le_bytes()[..3].to_vec());
            }
            let count = (hours * 3600 + minutes * 60 + seconds) * units + u64::from(micros / unit);
            let zero = (838 * 3600 + 59 * 60 + 59 + 1) * units;
            let bytes = [3, 4, 4, 5, 5, 5, 6][usize::from(digits)];
            (cut, big_endian(if negative { zero - count } else { zero + count }, bytes))
        }
        BinlogValue::DateTime(DateTime { date: Date { year, month, day }, hour, minute, second, micros }) => {
            let (year, month, day) = (u64::from(year), u64::from(month), u64::from(day));
            let (hour, minute, second, micros) =
                (u64::from(hour), u64::from(minute), u64::from(second), cut(micros));
            let BinlogValue::DateTime(whole) = *value else { unreachable!() };
            let cut = BinlogValue::DateTime(DateTime { micros, ..whole });
            if digits == 0 {
                let number =
                    ((year * 100 + month) * 100 + day) * 1_000_000 + hour * 10_000 + minute * 100 + second;
                return (cut, number.to_le_bytes().to_vec());
            }
            let seconds = ((((year * 13 + month) * 32 + day) * 24 + hour) * 60 + minute) * 60 + second;
            let bytes = [8, 6, 6, 7, 7, 7, 8][usize::from(digits)];
            (cut, big_endian(seconds * units + u64::from(micros / unit), bytes))
        }
        BinlogValue::Timestamp(Timestamp { seconds, micros }) => {
            let micros = cut(micros);
            let cut = BinlogValue::Timestamp(Timestamp { seconds, micros });
            if digits == 0 {
                return (cut, seconds.to_le_bytes().to_vec());
            }
            let mut bytes = seconds.to_be_bytes().to_vec();
            bytes.extend(big_endian(u64::from(micros / unit), usize::from(digits.div_ceil(2))));
            (cut, bytes)
        }
        _ => unreachable!("the test value is not a temporal value"),
    }
}

fn map(column_type: ColumnType) -> TableMap {
    TableMap {
        flavour: Flavour::MariaDb,
        table_id: 1,
        flags: 1,
        schema: "s".to_owned(),
        table: "t".to_owned(),
        columns: vec![BinlogColumn::new(column_type, 0, 0, true)],
        metadata: Default::default(),
    }
}

fn target(column_type: &str) -> TargetTable {
    let column = TargetColumn {
        name: "a".to_owned(),
        column_type: column_type.to_owned(),
        collation: None,
        nullable: true,
        generated: false,
        auto_increment: false,
        stored: false,
        period: None,
    };
    TargetTable {
        transactional: true,
        engine: "INNODB".to_owned(),
        partitioned: false,
        flavour: Flavour::MariaDb,
        schema: "s".to_owned(),
        table: "t".to_owned(),
        columns: vec![column],
        rows: IndexId(0),
        unique: Vec::new(),
        has_primary_key: false,
        parents: Vec::new(),
        children: Vec::new(),
        cascades: Vec::new(),
    }
}

fn spelled(name: &str, digits: u8, layout: &str) -> String {
    let digits = if digits == 0 { String::new() } else { format!("({digits})") };
    format!("{name}{digits}{layout}")
}

fn declared(name: &str, digits: u8, was_rebuilt: bool) -> DeclaredColumns {
    let column = SourceColumn {
        name: "a".to_owned(),
        type_name: name.to_owned(),
        digits,
        old_layout: Some(!was_rebuilt),
    };
    DeclaredColumns { columns: vec![column], was_rebuilt }
}

/// For all numbers of digits that source and target can declare, and in both layouts, a value is either
/// decoded exactly or rejected.
#[test]
fn every_value_is_exact_or_rejected() {
    let (mut equal, mut refused) = (0, 0);
    for (name, column_type) in TYPES {
        for source in 0..=DIGITS_MAX {
            for own in 0..=DIGITS_MAX {
                for (layout, was_rebuilt) in [("", false), (" /* mariadb-5.3 */", false), ("", true)] {
                    let mut map = map(column_type);
                    let digits = OldTimeDigits::Source(Arc::new(declared(name, source, was_rebuilt)));
                    let set = set_digits(&mut map, &target(&spelled(name, own, layout)), &digits);
                    if let Err(mismatch) = set {
                        assert_ne!(
                            source, own,
                            "equal numbers of fractional digits of {name} were rejected: {mismatch}"
                        );
                        let both = [format!("{name}({source})"), format!("{name}({own})")];
                        assert!(
                            both.iter().all(|text| mismatch.reason.contains(text)),
                            "wrong reason of the mismatch: {mismatch}"
                        );
                        refused += 1;
                        continue;
                    }
                    for value in values(name) {
                        let (expected, bytes) = logged(&value, source);
                        let decoded = BinlogValue::decode(&bytes, &map.columns[0], false);
                        assert_eq!(
                            decoded.as_ref().ok(),
                            Some(&expected),
                            "{name}({source}), {name}({own}){layout}"
                        );
                        equal += 1;
                    }
                }
            }
        }
    }
    assert!(
        equal > 2000 && refused == 3 * 3 * 42,
        "wrong number of decoded values ({equal}) or rejected tables ({refused})"
    );
}

/// Rows are rejected if the source's table definition shows that the table was changed after the rows were
/// logged.
#[test]
fn a_changed_table_is_rejected() {
    let old = ColumnType::TimeOld { fraction: 0 };
    let refuse = |declared: DeclaredColumns, reason: &str| {
        let digits = OldTimeDigits::Source(Arc::new(declared));
        let mismatch = set_digits(&mut map(old), &target("time(3)"), &digits).expect_err(reason);
        assert!(mismatch.reason.contains(reason), "wrong reason of the mismatch: {mismatch}");
        assert!(
            mismatch.reason.contains("changed after these rows were logged"),
            "wrong reason of the mismatch: {mismatch}"
        );
    };
    let column = || declared("time", 3, false).columns.remove(0);
    refuse(DeclaredColumns { columns: Vec::new(), was_rebuilt: true }, "1 columns and the source declares 0");
    refuse(DeclaredColumns { columns: vec![column(), column()], was_rebuilt: true }, "the source declares 2");
    refuse(
        declared("datetime", 3, false),
        "the log has a column of type time here and the source declares a datetime",
    );
    refuse(DeclaredColumns { was_rebuilt: false, ..declared("time", 3, true) }, "column has it no longer");
    let mut renamed = map(old);
    renamed.columns[0].name = Some("b".to_owned());
    let target = TargetTable {
        columns: vec![TargetColumn { name: "b".to_owned(), ..target("time(3)").columns.remove(0) }],
        ..target("")
    };
    let digits = OldTimeDigits::Source(Arc::new(declared("time", 3, false)));
    assert!(
        set_digits(&mut renamed, &target, &digits).is_err(),
        "rows must be rejected if the source's column has another name"
    );
}

/// If the target's column has another type, the target declares no digits, so the source's digits are used.
/// Hidden columns are compared without their layout, because `information_schema` does not show it. Without
/// verification, the target's digits are used.
#[test]
fn the_source_determines_the_digits_if_the_target_declares_none() {
    let set = |own: &str, digits: &OldTimeDigits| {
        let mut map = map(ColumnType::TimestampOld { fraction: 0 });
        set_digits(&mut map, &target(own), digits).map(|()| map.columns[0].column_type)
    };
    let source = OldTimeDigits::Source(Arc::new(declared("timestamp", 2, false)));
    assert_eq!(set("varchar(30)", &source), Ok(ColumnType::TimestampOld { fraction: 2 }));
    let mut hidden = declared("timestamp", 6, false);
    hidden.columns[0].old_layout = None;
    let hidden = OldTimeDigits::Source(Arc::new(hidden));
    assert_eq!(set("timestamp(6)", &hidden), Ok(ColumnType::TimestampOld { fraction: 6 }));
    assert_eq!(set("timestamp(4)", &OldTimeDigits::Target), Ok(ColumnType::TimestampOld { fraction: 4 }));
    assert_eq!(set("datetime(4)", &OldTimeDigits::Target), Ok(ColumnType::TimestampOld { fraction: 0 }));
}

/// MySQL's old layout has no fractional digits, and MySQL logs columns with the new layout as other types.
#[test]
fn only_old_columns_of_mariadb_need_their_digits_from_elsewhere() {
    assert!(lacks_digits(&map(ColumnType::DateTimeOld { fraction: 0 })));
    assert!(!lacks_digits(&map(ColumnType::DateTime { fraction: 3 })));
    let mysql = TableMap { flavour: Flavour::MySql, ..map(ColumnType::DateTimeOld { fraction: 0 }) };
    assert!(!lacks_digits(&mysql));
}
