-- Column types that only MySQL has.
SET SESSION sql_mode = '';
SET SESSION time_zone = '+00:00';
CREATE TABLE docs (id INT NOT NULL PRIMARY KEY, a JSON, b JSON NOT NULL, c INT, d JSON);
INSERT INTO docs VALUES
  (1, '{}', '[]', 1, NULL), (2, 'null', 'true', 2, 'false'), (3, '0', '-1', 3, '18446744073709551615'),
  (4, '1.0', '-0.0', 4, '1e100'), (5, '"text"', '"quote \\" back \\\\ slash \\/ tab \\t nul \\u0000 é 😀 it''s"', 5, '""'),
  (6, '[1, -32768, 32767, 32768, 65535, 65536, -2147483648, 4294967295, -2147483649, 4294967296, 9223372036854775807]', '[[], {}, [[]], {"a": {}}]', 6, '{"b": 1, "aa": 2, "a": 3, "": 4, "c": [true, false, null]}'),
  (7, CAST('{"a": {"b": {"c": {"d": [1, 2, {"e": "f"}]}}}}' AS JSON), JSON_OBJECT('date', DATE '2015-01-15', 'time', TIME '-23:24:25.12', 'datetime', TIMESTAMP '2015-01-15 23:24:25.123456', 'decimal', CAST(-123.450 AS DECIMAL(6,3)), 'blob', CAST(X'00ff' AS BINARY), 'bit', b'101', 'year', CAST(2020 AS YEAR)), 7, JSON_ARRAY(REPEAT('a', 127), REPEAT('b', 128), REPEAT('c', 20000))),
  (8, JSON_ARRAY(CAST(REPEAT('x', 200) AS BINARY)), JSON_ARRAY(0.1e0, 1e15, 1e16, 123456789012345.6e0, 1e-5, 1e-16, 2e0/3, 5e-324, 1.7976931348623157e308), 8, CAST(1.5 AS JSON)),
  (9, CAST(ST_GeomFromText('POINT(1 2)') AS JSON), CAST(CAST('2020-01-01' AS DATE) AS JSON), 9, CAST(CAST(0 AS DECIMAL(1,0)) AS JSON));
-- JSON documents larger than 64 KiB use the large storage format.
INSERT INTO docs SELECT 20, JSON_OBJECT('long', REPEAT('x', 70000), 'n', JSON_ARRAY(1, 70000, -70000, 5000000000)), JSON_ARRAY(JSON_OBJECT('k', REPEAT('y', 66000)), 3), 20, NULL;
-- Partial updates of JSON documents, if the session settings enable them.
CREATE TABLE partial (id INT NOT NULL PRIMARY KEY, j JSON, k JSON, n INT, l JSON);
INSERT INTO partial VALUES (1, '{"a": 1, "b": [1, 2, 3], "c": {"d": "text", "e": null}, "key with space": 5, "é": 1}', '[1, {"x": 2}]', 1, '{}'),
  (2, JSON_OBJECT('pad', REPEAT('p', 1000), 'a', 1, 'b', JSON_ARRAY(1, 2, 3), 'c', JSON_OBJECT('d', 'long enough to replace', 'e', 2)), JSON_ARRAY(REPEAT('q', 500), 1), 2, JSON_ARRAY(REPEAT('r', 100)));
UPDATE partial SET j = JSON_SET(j, '$.a', 2) WHERE id = 2;
UPDATE partial SET j = JSON_REPLACE(j, '$.c.d', 'short', '$.b[1]', '\'') WHERE id = 2;
UPDATE partial SET j = JSON_REMOVE(j, '$.c.e') WHERE id = 2;
UPDATE partial SET j = JSON_SET(j, '$.new', JSON_OBJECT('x', JSON_ARRAY(1, 'two', 3.5e0))) WHERE id = 2;
UPDATE partial SET j = JSON_REMOVE(JSON_SET(JSON_REPLACE(j, '$.a', 3, '$.b[0]', 10), '$.n2', 4, '$.n3', 5), '$.new', '$.n2') WHERE id = 2;
UPDATE partial SET j = JSON_SET(j, '$.b[last]', 'last'), k = JSON_SET(k, '$[1]', CAST('2015-01-01' AS DATE)), n = 5 WHERE id = 2;
UPDATE partial SET j = JSON_SET(j, '$.b[10]', 'appended'), k = JSON_REMOVE(k, '$[0]') WHERE id = 2;
UPDATE partial SET j = JSON_SET(j, '$."a new key"', 1.25, '$."quo\\"te"', true) WHERE id = 2;
UPDATE partial SET j = JSON_SET(j, '$.a', 'same'), k = NULL, l = JSON_ARRAY() WHERE id IN (1, 2);
UPDATE partial SET j = JSON_SET(j, '$.a', n), n = n + 1;
UPDATE partial SET n = n + 1;
UPDATE partial SET j = '{"whole": "document"}' WHERE id = 1;
DELETE FROM partial;
UPDATE docs SET a = JSON_SET(a, '$.n[0]', 2) WHERE id = 20;
UPDATE docs SET a = JSON_ARRAY(a), d = JSON_OBJECT('was', d);
DELETE FROM docs WHERE id < 5;

CREATE TABLE vectors (id INT NOT NULL PRIMARY KEY, v VECTOR(3), w VECTOR, c VARCHAR(5) CHARACTER SET latin1);
INSERT INTO vectors VALUES (1, STRING_TO_VECTOR('[1,2,3.5]'), NULL, 'a'), (2, NULL, STRING_TO_VECTOR('[-1.25e-7]'), 'b'), (3, STRING_TO_VECTOR('[0,-0,1e38]'), STRING_TO_VECTOR('[0.1,0.2,0.3,0.4]'), NULL);
UPDATE vectors SET v = STRING_TO_VECTOR('[9,8,7]') WHERE id = 2;
DELETE FROM vectors;

CREATE TABLE multi (id INT NOT NULL PRIMARY KEY, j JSON, KEY m ((CAST(j->'$.a' AS UNSIGNED ARRAY))), KEY f ((id + 1)));
INSERT INTO multi VALUES (1, '{"a": [1, 2, 3]}');
UPDATE multi SET j = '{"a": [4]}';
CREATE TABLE hidden (id INT NOT NULL PRIMARY KEY, i INT INVISIBLE, v INT);
INSERT INTO hidden (id, i, v) VALUES (1, 2, 3);
SET SESSION sql_generate_invisible_primary_key = ON;
CREATE TABLE gipk (v INT);
INSERT INTO gipk VALUES (1), (2);
UPDATE gipk SET v = 3;
SET SESSION sql_generate_invisible_primary_key = OFF;
