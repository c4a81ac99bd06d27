//! The schema of a film rental shop: tables with foreign keys, triggers that maintain some of the tables, and
//! queries.

/// The tables. Parent tables come first.
pub const TABLES: &[&str] = &[
    "CREATE TABLE language (id TINYINT UNSIGNED NOT NULL PRIMARY KEY, name CHAR(20) NOT NULL, \
       changed TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP)",
    "CREATE TABLE film (id SMALLINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, title VARCHAR(128) NOT NULL, \
       description TEXT, released YEAR, language TINYINT UNSIGNED NOT NULL, price DECIMAL(4,2) NOT NULL DEFAULT 4.99, \
       rating ENUM('G','PG','R','NC-17') DEFAULT 'G', extras SET('Trailers','Commentaries','Deleted Scenes') DEFAULT NULL, \
       changed TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3), \
       KEY (title), FULLTEXT KEY words (title, description), \
       FOREIGN KEY (language) REFERENCES language (id) ON UPDATE CASCADE ON DELETE RESTRICT)",
    "CREATE TABLE actor (id SMALLINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, first_name VARCHAR(45) NOT NULL, \
       last_name VARCHAR(45) NOT NULL, KEY (last_name))",
    "CREATE TABLE film_actor (actor SMALLINT UNSIGNED NOT NULL, film SMALLINT UNSIGNED NOT NULL, \
       PRIMARY KEY (actor, film), KEY (film), FOREIGN KEY (actor) REFERENCES actor (id) ON DELETE CASCADE, \
       FOREIGN KEY (film) REFERENCES film (id) ON DELETE CASCADE ON UPDATE CASCADE)",
    "CREATE TABLE address (id SMALLINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, street VARCHAR(50) NOT NULL, \
       place POINT NOT NULL, changed TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, \
       SPATIAL KEY (place))",
    "CREATE TABLE customer (id SMALLINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, name VARCHAR(90) NOT NULL, \
       email VARCHAR(50) UNIQUE, address SMALLINT UNSIGNED, active BOOLEAN NOT NULL DEFAULT TRUE, \
       joined DATETIME NOT NULL, initial CHAR(1) AS (LEFT(name, 1)) STORED, \
       changed TIMESTAMP NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, KEY (name), \
       FOREIGN KEY (address) REFERENCES address (id) ON DELETE SET NULL)",
    "CREATE TABLE copy (id MEDIUMINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, film SMALLINT UNSIGNED NOT NULL, \
       shop TINYINT NOT NULL, KEY (shop, film), \
       FOREIGN KEY (film) REFERENCES film (id) ON DELETE CASCADE ON UPDATE CASCADE)",
    "CREATE TABLE rental (id INT AUTO_INCREMENT PRIMARY KEY, rented DATETIME(6) NOT NULL, \
       copy MEDIUMINT UNSIGNED NOT NULL, customer SMALLINT UNSIGNED NOT NULL, returned DATETIME, \
       UNIQUE KEY (rented, copy, customer), FOREIGN KEY (copy) REFERENCES copy (id) ON DELETE CASCADE, \
       FOREIGN KEY (customer) REFERENCES customer (id) ON DELETE CASCADE)",
    "CREATE TABLE payment (id INT AUTO_INCREMENT PRIMARY KEY, customer SMALLINT UNSIGNED NOT NULL, rental INT, \
       amount DECIMAL(5,2) NOT NULL, paid TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6), \
       FOREIGN KEY (customer) REFERENCES customer (id) ON DELETE CASCADE, \
       FOREIGN KEY (rental) REFERENCES rental (id) ON DELETE SET NULL)",
    // Triggers maintain this table.
    "CREATE TABLE film_text (film SMALLINT UNSIGNED PRIMARY KEY, title VARCHAR(128) NOT NULL, description TEXT, \
       FULLTEXT KEY (title, description))",
    "CREATE TABLE balance (customer SMALLINT UNSIGNED PRIMARY KEY, paid DECIMAL(9,2) NOT NULL, times INT NOT NULL)",
    // This table has no key.
    "CREATE TABLE journal (at DATETIME NOT NULL, what VARCHAR(20) NOT NULL, id INT, detail TEXT)",
];

/// Triggers, functions, procedures and views.
pub const PROGRAMS: &[&str] = &[
    "CREATE TRIGGER film_made AFTER INSERT ON film FOR EACH ROW \
       INSERT INTO film_text VALUES (NEW.id, NEW.title, NEW.description)",
    "CREATE TRIGGER film_changed AFTER UPDATE ON film FOR EACH ROW BEGIN \
       IF OLD.title <> NEW.title OR NOT (OLD.description <=> NEW.description) OR OLD.id <> NEW.id THEN \
         UPDATE film_text SET title=NEW.title, description=NEW.description, film=NEW.id WHERE film=OLD.id; \
       END IF; END",
    "CREATE TRIGGER film_gone AFTER DELETE ON film FOR EACH ROW DELETE FROM film_text WHERE film=OLD.id",
    "CREATE TRIGGER customer_joins BEFORE INSERT ON customer FOR EACH ROW \
       SET NEW.joined = NOW(), NEW.email = LOWER(NEW.email)",
    "CREATE TRIGGER customer_gone BEFORE DELETE ON customer FOR EACH ROW BEGIN \
       INSERT INTO journal VALUES (NOW(), 'customer', OLD.id, CONCAT(OLD.name, ' owed ', owed(OLD.id))); \
       DELETE FROM balance WHERE customer=OLD.id; END",
    "CREATE TRIGGER payment_made AFTER INSERT ON payment FOR EACH ROW \
       INSERT INTO balance VALUES (NEW.customer, NEW.amount, 1) \
       ON DUPLICATE KEY UPDATE paid=paid+NEW.amount, times=times+1",
    "CREATE TRIGGER payment_mended AFTER UPDATE ON payment FOR EACH ROW \
       UPDATE balance SET paid=paid+NEW.amount-OLD.amount WHERE customer=NEW.customer",
    "CREATE FUNCTION owed(who INT) RETURNS DECIMAL(9,2) READS SQL DATA BEGIN \
       DECLARE due DECIMAL(9,2); \
       SELECT COALESCE(SUM(film.price), 0) INTO due FROM rental JOIN copy ON copy.id=rental.copy \
         JOIN film ON film.id=copy.film WHERE rental.customer=who; \
       RETURN due - (SELECT COALESCE(SUM(amount), 0) FROM payment WHERE customer=who); END",
    "CREATE FUNCTION is_free(which INT) RETURNS BOOLEAN READS SQL DATA \
       RETURN NOT EXISTS (SELECT 1 FROM rental WHERE copy=which AND returned IS NULL)",
    "CREATE PROCEDURE lend(IN who INT, IN what INT, OUT number INT) BEGIN \
       DECLARE which INT DEFAULT NULL; DECLARE CONTINUE HANDLER FOR NOT FOUND SET which = NULL; \
       SELECT id INTO which FROM copy WHERE film=what AND is_free(id) ORDER BY id LIMIT 1; \
       IF which IS NULL THEN \
         INSERT INTO journal VALUES (NOW(), 'missed', what, UUID()); \
       ELSE \
         INSERT INTO rental (rented, copy, customer) VALUES (NOW(6), which, who); \
         SET number = LAST_INSERT_ID(); \
         INSERT INTO payment (customer, rental, amount) \
           SELECT who, number, price FROM film WHERE id=what; \
       END IF; END",
    "CREATE PROCEDURE take_back(IN number INT) \
       UPDATE rental SET returned = NOW() + INTERVAL FLOOR(RAND()*9) DAY WHERE id=number AND returned IS NULL",
    "CREATE PROCEDURE reward(IN times_min INT) BEGIN \
       DECLARE done BOOLEAN DEFAULT FALSE; DECLARE who INT; \
       DECLARE best CURSOR FOR SELECT customer FROM balance WHERE times >= times_min ORDER BY customer; \
       DECLARE CONTINUE HANDLER FOR NOT FOUND SET done = TRUE; \
       OPEN best; \
       each_one: LOOP \
         FETCH best INTO who; IF done THEN LEAVE each_one; END IF; \
         UPDATE payment SET amount=amount-0.5 WHERE customer=who AND amount > 1 ORDER BY id LIMIT 1; \
       END LOOP; CLOSE best; END",
    "CREATE VIEW film_list AS SELECT film.id, film.title, film.rating, language.name AS language, \
       GROUP_CONCAT(CONCAT(first_name, ' ', last_name) ORDER BY actor.id SEPARATOR ', ') AS actors \
       FROM film JOIN language ON language.id=film.language LEFT JOIN film_actor ON film_actor.film=film.id \
       LEFT JOIN actor ON actor.id=film_actor.actor GROUP BY film.id, film.title, film.rating, language.name",
    "CREATE SQL SECURITY INVOKER VIEW regulars AS SELECT id, name, address, active FROM customer WHERE active \
       WITH CHECK OPTION",
    "CREATE VIEW takings AS SELECT shop, rating, COUNT(*) AS rentals, SUM(amount) AS amount FROM payment \
       JOIN rental ON rental.id=payment.rental JOIN copy ON copy.id=rental.copy JOIN film ON film.id=copy.film \
       GROUP BY shop, rating",
];

/// Queries to which both servers must give the same answer.
pub const QUESTIONS: &[&str] = &[
    "SELECT * FROM film_list ORDER BY id",
    "SELECT * FROM regulars ORDER BY id",
    "SELECT * FROM takings ORDER BY shop, rating",
    "SELECT id, owed(id) FROM customer ORDER BY id",
    "SELECT COUNT(*) FROM copy WHERE is_free(id)",
    "SELECT id FROM film WHERE MATCH (title, description) AGAINST ('+astronaut' IN BOOLEAN MODE) ORDER BY id",
    "SELECT film FROM film_text WHERE MATCH (title, description) AGAINST ('butler') ORDER BY film",
    "SELECT id FROM address WHERE MBRContains(ST_GeomFromText('POLYGON((0 0, 0 40, 40 40, 40 0, 0 0))'), place) ORDER BY id",
    "SELECT table_name, view_definition, security_type, check_option FROM information_schema.views WHERE \
       table_schema='rentals' ORDER BY 1",
    "SELECT routine_name, routine_definition, sql_data_access, security_type, sql_mode FROM \
       information_schema.routines WHERE routine_schema='rentals' ORDER BY 1",
    "SELECT trigger_name, action_timing, event_manipulation, action_statement FROM information_schema.triggers \
       WHERE trigger_schema='rentals' ORDER BY 1",
    "SELECT constraint_name, table_name, referenced_table_name, update_rule, delete_rule FROM \
       information_schema.referential_constraints WHERE constraint_schema='rentals' ORDER BY 2, 1",
];
