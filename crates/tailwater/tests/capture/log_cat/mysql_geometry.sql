-- `mysqlbinlog` cannot print GEOMETRY: these tables are apart so that they can be left out of the comparison.
CREATE TABLE shapes (id INT NOT NULL PRIMARY KEY, g GEOMETRY, p POINT NOT NULL, l LINESTRING, c CHAR(3) CHARACTER SET latin1);
INSERT INTO shapes VALUES (1, ST_GeomFromText('POINT(1 2)'), ST_GeomFromText('POINT(-1.5 20)', 4326, 'axis-order=long-lat'), NULL, 'a');
UPDATE shapes SET l = ST_GeomFromText('LINESTRING(0 0,1 1)');
