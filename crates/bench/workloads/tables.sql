CREATE TABLE customer(id INTEGER PRIMARY KEY, name TEXT, region INTEGER, credit REAL);
CREATE TABLE purchase(id INTEGER PRIMARY KEY, customer INTEGER, item INTEGER, price REAL, note TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30000)
INSERT INTO customer SELECT i, 'name' || ((i * 7433) % 10007), (i * 31) % 97, i * 0.75 FROM n;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 280000)
INSERT INTO purchase
SELECT i, 1 + (i * 7919) % 20000, (i * 104729) % 1013, (i % 1000) * 0.19, 'note ' || ((i * 37) % 6007) FROM n;
CREATE INDEX by_customer ON purchase(customer);
CREATE INDEX by_note ON purchase(note, item);
SELECT region, count(*), round(sum(price), 2), round(avg(credit), 2)
FROM customer JOIN purchase ON customer.id = purchase.customer
GROUP BY region ORDER BY 3 DESC, 1 LIMIT 8;
SELECT note, max(price), min(item) FROM purchase WHERE item BETWEEN 100 AND 400 GROUP BY note ORDER BY note LIMIT 6;
SELECT count(*) FROM customer a JOIN customer b ON a.name = b.name AND a.id < b.id;
UPDATE purchase SET price = price * 1.5 WHERE item % 3 = 0;
SELECT round(sum(price), 2) FROM purchase;
DELETE FROM purchase WHERE customer < 4000;
SELECT count(*), sum(item) FROM purchase WHERE note LIKE 'note 2%';
SELECT customer, item, price FROM purchase ORDER BY price DESC, item, id LIMIT 5;
