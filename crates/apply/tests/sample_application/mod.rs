//! A film rental shop under the load of several clients, applied in both commit orders. It combines what
//! application schemas use: views, triggers, routines, cascades, full text, geometry. Other tests cover each
//! of these features alone.

mod schema;

use anyhow::{Context, Result, ensure};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use tailwater_apply::channel::ChannelStart;
use tailwater_apply::scheduler::CommitOrder;
use tailwater_sandbox::{Server, ServerKind};
use tailwater_session::{ConnectOptions, Connection, SessionError};

use self::schema::{PROGRAMS, QUESTIONS, TABLES};
use crate::binlog_statements::compare;
use crate::channel_test_servers::Rig;
use crate::faults::seeded;

const FILMS: u32 = 400;
const ACTORS: u32 = 60;
const CUSTOMERS: u32 = 120;
const COPIES: u32 = 1500;
const LANGUAGES: u32 = 6;
const CLIENTS: u64 = 4;
const TRANSACTIONS: u32 = 120;

const WORDS: [&str; 12] = [
    "astronaut",
    "butler",
    "crocodile",
    "dentist",
    "explorer",
    "forensic",
    "girl",
    "husband",
    "madness",
    "na\u{ef}ve",
    "\u{d6}lf\u{f6}rderung",
    "wrestler",
];

fn words(random: &mut StdRng, count: usize) -> String {
    let words: Vec<&str> = (0..count).map(|_| WORDS.choose(random).copied().unwrap_or_default()).collect();
    words.join(" ")
}

/// Returns one statement that inserts `count` rows.
fn insert(random: &mut StdRng, table: &str, count: u32, row: impl Fn(&mut StdRng, u32) -> String) -> String {
    let rows: Vec<String> = (1..=count).map(|number| format!("({})", row(random, number))).collect();
    format!("INSERT INTO {table} VALUES {}", rows.join(","))
}

fn film(random: &mut StdRng) -> String {
    let (title, description) = (words(random, 3), words(random, 12));
    let (released, language) = (random.random_range(1901..2156), random.random_range(1..=LANGUAGES));
    let (cents, rating) = (random.random_range(99..999), random.random_range(1..=4));
    let extras = random.random_range(0..8);
    format!("'{title}', '{description}', {released}, {language}, {cents}/100, {rating}, {extras}")
}

/// Returns the statements that insert the initial rows.
fn stock(random: &mut StdRng) -> Vec<String> {
    let point = |random: &mut StdRng| {
        format!("ST_GeomFromText('POINT({} {})')", random.random_range(0..90), random.random_range(0..90))
    };
    vec![
        insert(random, "language (id, name)", LANGUAGES, |_, id| format!("{id}, 'language {id}'")),
        insert(
            random,
            "film (title, description, released, language, price, rating, extras)",
            FILMS,
            |random, _| film(random),
        ),
        insert(random, "actor (first_name, last_name)", ACTORS, |random, id| {
            format!("'{}', 'of {id}'", words(random, 1))
        }),
        insert(random, "address (street, place)", CUSTOMERS, |random, id| {
            format!("'{id} {} street', {}", words(random, 1), point(random))
        }),
        insert(random, "customer (name, email, address, joined)", CUSTOMERS, |random, id| {
            format!("'{}', 'CUSTOMER{id}@example.org', {id}, '2000-01-01'", words(random, 2))
        }),
        insert(random, "copy (film, shop)", COPIES, |random, _| {
            format!("{}, {}", random.random_range(1..=FILMS), random.random_range(1..3))
        }),
        format!(
            "INSERT IGNORE INTO film_actor SELECT actor.id, film.id FROM actor JOIN film ON (actor.id * film.id) % {} = 0",
            random.random_range(7..12)
        ),
    ]
}

/// Returns the statements of one transaction of a client.
fn business(random: &mut StdRng) -> Vec<String> {
    let customer = random.random_range(1..=CUSTOMERS);
    let film_id = random.random_range(1..=FILMS);
    let word = words(random, 1);
    match random.random_range(0..16) {
        0..=4 => vec![
            format!("CALL lend({customer}, {film_id}, @number)"),
            format!("CALL lend({customer}, {}, @other)", random.random_range(1..=FILMS)),
        ],
        5 | 6 => vec!["CALL take_back(@number)".into(), "CALL take_back(@other)".into()],
        7 => vec![format!("CALL reward({})", random.random_range(1..4))],
        8 => vec![
            format!(
                "UPDATE film SET title='{}', price=price+0.01, extras='Trailers' WHERE id={film_id}",
                words(random, 2)
            ),
            format!("UPDATE film SET rating='R' WHERE MATCH (title, description) AGAINST ('{word}') LIMIT 3"),
        ],
        9 => vec![format!("DELETE FROM customer WHERE id={customer}")],
        10 => vec![format!("DELETE FROM film WHERE id={film_id}")],
        11 => vec![format!(
            "UPDATE language SET id=id+{LANGUAGES}, name='{word}' WHERE id={} OR id={}",
            random.random_range(1..=LANGUAGES),
            random.random_range(1..=LANGUAGES * 4)
        )],
        12 => vec![format!(
            "INSERT INTO film (title, description, released, language, price, rating, extras) SELECT {} FROM DUAL",
            film(random)
        )],
        13 => vec![
            format!("UPDATE regulars SET name='{}' WHERE id={customer}", words(random, 2)),
            format!("UPDATE address SET place=ST_GeomFromText('POINT(1.5 {customer})') WHERE id={customer}"),
            format!("DELETE FROM address WHERE id={}", random.random_range(1..=CUSTOMERS)),
        ],
        14 => vec![
            format!("REPLACE INTO film_actor VALUES ({}, {film_id})", random.random_range(1..=ACTORS)),
            format!("DELETE FROM actor WHERE id={}", random.random_range(1..=ACTORS * 4)),
            format!(
                "INSERT INTO journal SELECT NOW(), 'free', COUNT(*), '{word}' FROM copy WHERE is_free(id)"
            ),
        ],
        _ => vec![
            format!("UPDATE payment SET amount=amount+1, paid=paid WHERE customer={customer}"),
            "SAVEPOINT before".into(),
            "DELETE FROM journal LIMIT 2".into(),
            "UPDATE journal SET detail=CONCAT(detail, '!')".into(),
            "ROLLBACK TO before".into(),
            format!("UPDATE customer SET active=NOT active WHERE id={customer}"),
        ],
    }
}

/// Runs one client. Returns how many of its statements succeeded. The other statements fail, as intended,
/// because of deadlocks, foreign keys and checks.
async fn client(options: ConnectOptions, seed: u64) -> Result<u32> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut connection = Connection::connect(&options).await?;
    connection.execute("SET NAMES utf8mb4, SESSION innodb_lock_wait_timeout=2").await?;
    connection.execute("USE rentals").await?;
    let mut ran = 0;
    for _ in 0..TRANSACTIONS {
        connection.execute("BEGIN").await?;
        for statement in business(&mut random) {
            match connection.execute(&statement).await {
                Ok(_) => ran += 1,
                Err(SessionError::Server { .. }) => {}
                Err(error) => return Err(error).context(statement),
            }
        }
        connection.execute(if random.random_bool(0.05) { "ROLLBACK" } else { "COMMIT" }).await?;
    }
    Ok(ran)
}

/// Creates the shop on the source and runs clients on it.
async fn trade(source: &Server, random: &mut StdRng) -> Result<()> {
    let mut connection = Connection::connect(&source.connect_options()).await?;
    let begin = ["SET NAMES utf8mb4", "CREATE DATABASE rentals CHARACTER SET utf8mb4", "USE rentals"];
    let stock = stock(random);
    let rows = stock.iter().map(String::as_str);
    for statement in begin.iter().chain(TABLES).chain(PROGRAMS).copied().chain(rows) {
        connection
            .execute(statement)
            .await
            .with_context(|| statement.chars().take(300).collect::<String>())?;
    }
    let clients: Vec<_> =
        (0..CLIENTS).map(|_| tokio::spawn(client(source.connect_options(), random.random()))).collect();
    for client in clients {
        let ran = client.await??;
        ensure!(ran > TRANSACTIONS / 2, "a client ran only {ran} statements");
    }
    // Alter the schema while the clients run.
    for statement in [
        "ALTER TABLE rental ADD COLUMN note VARCHAR(40) DEFAULT 'n', ADD KEY (returned)",
        "UPDATE rental SET note=CONCAT('r', id) WHERE id % 3 = 0",
        "CREATE OR REPLACE VIEW takings AS SELECT shop, rating, COUNT(note) AS rentals, SUM(amount) AS amount FROM payment \
           JOIN rental ON rental.id=payment.rental JOIN copy ON copy.id=rental.copy JOIN film ON film.id=copy.film \
           GROUP BY shop, rating",
        "DROP TRIGGER customer_joins",
        "INSERT INTO customer (name, email, joined) VALUES ('Last', 'LAST@EXAMPLE.ORG', '2001-02-03 04:05:06')",
        "DELETE FROM film ORDER BY id LIMIT 5",
    ] {
        connection.execute(statement).await.context(statement)?;
    }
    Ok(())
}

async fn sample_application_is_applied(kind: ServerKind) -> Result<()> {
    let options = ["--binlog-format=ROW"];
    let Some(rig) = Rig::start(kind, &options, &options).await? else { return Ok(()) };
    let mut random = seeded(&format!("rentals, {kind}"));
    trade(&rig.source, &mut random).await?;
    let rentals = rig.source.sql("SELECT COUNT(*) FROM rentals.rental").await?.concat();
    ensure!(
        rentals.parse::<u32>()? > 10,
        "the clients made only {rentals} rentals, which are too few to compare"
    );
    let gone = rig.source.sql("SELECT COUNT(*) FROM rentals.journal WHERE what='customer'").await?.concat();
    eprintln!("{kind}: the clients made {rentals} rentals and deleted {gone} customers");
    for (name, order, batch) in
        [("independent", CommitOrder::Independent, 50), ("ordered", CommitOrder::Source, 2000)]
    {
        rig.target.sql("SET sql_log_bin=0; DROP DATABASE IF EXISTS rentals").await?;
        let mut options = rig.options(name);
        options.start = ChannelStart::Oldest;
        options.commit_order = order;
        options.batch_transactions_max = batch;
        let channel = rig.channel(options);
        rig.wait_applied(&channel).await.context(name)?;
        channel.shut_down().await;
        compare(&rig.source, "rentals", &rig.target, "rentals", name).await?;
        for question in QUESTIONS {
            let question = format!("USE rentals; {question}");
            let (ours, theirs) = (rig.source.sql(&question).await?, rig.target.sql(&question).await?);
            ensure!(
                ours == theirs,
                "channel {name}: the answers to {question} differ\nsource: {ours:#?}\ntarget: {theirs:#?}"
            );
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sample_application_is_applied_on_mysql() -> Result<()> {
    sample_application_is_applied(ServerKind::Mysql97).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sample_application_is_applied_on_mariadb() -> Result<()> {
    sample_application_is_applied(ServerKind::Mariadb1011).await
}
