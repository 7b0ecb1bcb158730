-- The tables of a search index and the statements on them, the same in Python, Kotlin, Swift and JavaScript.
-- Each follows its name.

-- name: schema
-- A checksum is CRC-32: of a document's key, text, title and metadata with zeros between; of a passage's document, start,
-- end (int64), scale (float64, 0 without a vector), all little-endian, and vector. `words` has the words of words.py.
CREATE TABLE facts (name TEXT PRIMARY KEY NOT NULL, value TEXT NOT NULL);
INSERT INTO facts VALUES ('format', '2');
CREATE TABLE documents (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  key TEXT NOT NULL UNIQUE CHECK (typeof(key) = 'text' AND key <> ''),
  title TEXT NOT NULL CHECK (typeof(title) = 'text'),
  text TEXT NOT NULL CHECK (typeof(text) = 'text'),
  metadata TEXT NOT NULL
    CONSTRAINT metadata_is_a_json_object CHECK (CASE WHEN json_valid(metadata) THEN json_type(metadata) = 'object' ELSE 0 END),
  crc INTEGER NOT NULL CHECK (typeof(crc) = 'integer')
);
CREATE TABLE passages (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  document INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
  start INTEGER NOT NULL CHECK (typeof(start) = 'integer' AND start >= 0),
  end INTEGER NOT NULL CHECK (typeof(end) = 'integer' AND end > start),
  scale REAL CHECK (scale IS NULL OR typeof(scale) = 'real' AND scale > 0 AND scale <= 1),
  vector BLOB CHECK (CASE WHEN scale IS NULL THEN vector IS NULL ELSE typeof(vector) = 'blob' AND length(vector) > 0 END),
  crc INTEGER NOT NULL CHECK (typeof(crc) = 'integer')
);
CREATE INDEX passages_of_document ON passages (document);
CREATE VIRTUAL TABLE words USING fts5(title, text, tokenize='ascii');
CREATE TRIGGER removed AFTER DELETE ON documents BEGIN DELETE FROM words WHERE rowid = old.id; END;
CREATE TRIGGER kept BEFORE UPDATE ON documents BEGIN SELECT RAISE(ABORT, 'a document is replaced, not changed'); END;
CREATE TRIGGER inside BEFORE INSERT ON passages
  WHEN new.end > (SELECT length(CAST(text AS BLOB)) FROM documents WHERE id = new.document)
  BEGIN SELECT RAISE(ABORT, 'a passage outside its document'); END;

-- name: add_facts
-- The model's fingerprint, its name, and the identity of its weights, by which a phone's bundle is recognized.
INSERT INTO facts VALUES ('model', ?1), ('name', ?2), ('source', ?3)

-- name: check
-- ?1: the source of the model, null for any. What is wrong with the file, or null.
WITH state AS MATERIALIZED (SELECT quick_check AS state FROM pragma_quick_check LIMIT 1),
  fact AS MATERIALIZED (SELECT max(value) FILTER (WHERE name = 'format') AS format,
    max(value) FILTER (WHERE name = 'name') AS name FROM facts)
SELECT CASE
  WHEN state <> 'ok' THEN 'damaged (' || substr(replace(state, char(10), ' '), 1, 100) || ')'
  WHEN format IS NOT '2' THEN 'an index of another version of msdc (format ' || coalesce(format, 'none') || ', this one reads 2)'
  WHEN ?1 NOT IN (SELECT value FROM facts WHERE name IN ('model', 'source')) THEN 'made with another ' || name
  END FROM state, fact

-- name: strays
-- The same of passages and words without a document, and of documents without them.
SELECT 'damaged (' || strays || ' parts of documents are missing)' FROM (
  SELECT (SELECT count(*) FROM passages WHERE document NOT IN (SELECT id FROM documents))
    + (SELECT count(*) FROM documents WHERE id NOT IN (SELECT document FROM passages))
    + (SELECT count(*) FROM words_content WHERE id NOT IN (SELECT id FROM documents))
    + (SELECT count(*) FROM documents WHERE id NOT IN (SELECT id FROM words_content)) AS strays) WHERE strays

-- name: check_words
INSERT INTO words (words) VALUES ('integrity-check')

-- name: check_documents
SELECT key, text, title, metadata, crc FROM documents

-- name: key
-- ?1: keys as JSON. A key for the next document: its number, or the first after it that is no key and none of these.
WITH RECURSIVE numbers (number) AS (
  SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'documents'), 0) + 1
  UNION ALL SELECT number + 1 FROM numbers WHERE EXISTS (SELECT 1 FROM documents WHERE key = CAST(number AS TEXT))
    OR CAST(number AS TEXT) IN (SELECT value FROM json_each(?1))
) SELECT CAST(max(number) AS TEXT) FROM numbers

-- name: remove
-- ?1: keys as JSON.
DELETE FROM documents WHERE key IN (SELECT value FROM json_each(?1))

-- name: add_document
INSERT INTO documents (key, text, title, metadata, crc) VALUES (?1, ?2, ?3, ?4, ?5)

-- name: add_words
INSERT INTO words (rowid, title, text) VALUES (?1, ?2, ?3)

-- name: add_passage
INSERT INTO passages (document, start, end, scale, vector, crc) VALUES (?1, ?2, ?3, ?4, ?5, ?6)

-- name: vectors
-- ?1: the last passage that is read already.
SELECT id, document, start, end, scale, vector, crc FROM passages WHERE id > ?1 ORDER BY id

-- name: hit
-- ?1: a document, ?2: its best passage or null.
SELECT key, text, title, metadata, documents.crc, start, end
FROM documents LEFT JOIN passages ON passages.id = ?2 WHERE documents.id = ?1

-- name: filter
-- ?1: {column: [a value or [least, most], ...], ...}. A document has in each column a value (of a list: one of its values)
-- inside one of the ranges. Numbers, and texts that are plain decimal numbers, compare as numbers, others as text.
WITH bounds AS (
  SELECT part.key AS part, range.key AS range, side.key AS side, CAST(side.value AS TEXT) AS text,
    CASE WHEN typeof(side.value) <> 'text' THEN side.value
      WHEN side.value GLOB '*[0-9]*' AND length(side.value) < 16 AND NOT (side.value GLOB '*[^0-9.-]*'
        OR side.value GLOB '?*-*' OR side.value GLOB '*.*.*' OR side.value GLOB '0[0-9]*' OR side.value GLOB '-0[0-9]*')
      THEN side.value + 0 END AS number
  FROM json_each(?1) AS part, json_each(part.value) AS range,
    json_each(CASE range.type WHEN 'array' THEN range.value ELSE json_array(range.value, range.value) END) AS side
), ranges AS MATERIALIZED (
  SELECT least.part, least.text AS least, least.number AS least_number, most.text AS most, most.number AS most_number
  FROM bounds AS least JOIN bounds AS most USING (part, range) WHERE least.side = 0 AND most.side = 1
), parts AS MATERIALIZED (SELECT key AS part, '$."' || key || '"' AS path FROM json_each(?1))
SELECT id FROM documents WHERE NOT EXISTS (
  SELECT 1 FROM parts WHERE NOT EXISTS (
    SELECT 1 FROM json_each(documents.metadata, parts.path) AS cell JOIN ranges ON ranges.part = parts.part
    WHERE (least IS NULL OR CASE
        WHEN least_number IS NOT NULL AND (cell.type IN ('integer', 'real', 'true', 'false') OR (
          cell.value GLOB '*[0-9]*' AND length(cell.value) < 16 AND NOT (cell.value GLOB '*[^0-9.-]*'
          OR cell.value GLOB '?*-*' OR cell.value GLOB '*.*.*' OR cell.value GLOB '0[0-9]*' OR cell.value GLOB '-0[0-9]*')))
        THEN cell.value + 0 >= least_number
        WHEN cell.type IN ('true', 'false') THEN cell.type >= least
        ELSE CAST(cell.value AS TEXT) >= least AND (least_number IS NULL OR cell.value GLOB '[0-9]*') END)
      AND (most IS NULL OR CASE
        WHEN most_number IS NOT NULL AND (cell.type IN ('integer', 'real', 'true', 'false') OR (
          cell.value GLOB '*[0-9]*' AND length(cell.value) < 16 AND NOT (cell.value GLOB '*[^0-9.-]*'
          OR cell.value GLOB '?*-*' OR cell.value GLOB '*.*.*' OR cell.value GLOB '0[0-9]*' OR cell.value GLOB '-0[0-9]*')))
        THEN cell.value + 0 <= most_number
        WHEN cell.type IN ('true', 'false') THEN cell.type <= most
        ELSE CAST(cell.value AS TEXT) <= most AND (most_number IS NULL OR cell.value GLOB '[0-9]*') END)))

-- name: unknown
-- ?1: a filter. One of its columns that no document has, and those that they have.
WITH columns AS MATERIALIZED (
  SELECT DISTINCT cell.key AS name FROM documents, json_each(documents.metadata) AS cell ORDER BY 1)
SELECT key, coalesce((SELECT group_concat(name, ', ') FROM columns), 'none') FROM json_each(?1)
WHERE key NOT IN (SELECT name FROM columns) AND EXISTS (SELECT 1 FROM documents) LIMIT 1

-- name: words
-- ?1: the words, ?2: ids of documents as JSON or null for all, ?3: at most so many, and of ?4 (ids as JSON) all.
WITH found AS MATERIALIZED (
  SELECT rowid AS document, -rank AS bm25 FROM words
  WHERE words MATCH ?1 AND (?2 IS NULL OR +rowid IN (SELECT value FROM json_each(?2))))
SELECT * FROM (SELECT * FROM found ORDER BY bm25 DESC, document LIMIT ?3)
UNION SELECT * FROM found WHERE document IN (SELECT value FROM json_each(?4))

-- name: ranked
-- ?1: [[document, cosine or null, bm25 or null], ...], ?2: the mode, ?3: least cosine or null, ?4: at most. Numbers have six
-- digits, so that devices that round differently rank alike. Relevance is bm25 + 20 x the cosine of the best passage.
WITH candidates AS (SELECT json_extract(value, '$[0]') AS document, json_extract(value, '$[1]') AS cosine,
  json_extract(value, '$[2]') AS words FROM json_each(?1))
SELECT document, CAST(printf('%.6g',
    coalesce(words, 0) + coalesce(cosine, 0) * CASE ?2 WHEN 'both' THEN 20 ELSE 1 END) AS REAL) AS score,
  CASE WHEN cosine IS NOT NULL THEN CAST(printf('%.6g', cosine) AS REAL) END,
  CASE WHEN words IS NOT NULL THEN CAST(printf('%.6g', words) AS REAL) END
FROM candidates WHERE ?3 IS NULL OR ?2 = 'words' OR coalesce(cosine, -1) >= ?3 ORDER BY score DESC, document LIMIT ?4

-- name: stored
-- ?1: keys as JSON. The passages of these documents, in order.
SELECT key, title, text, document, start, end, scale, vector, passages.crc FROM documents
JOIN passages ON document = documents.id WHERE key IN (SELECT value FROM json_each(?1)) ORDER BY passages.id
