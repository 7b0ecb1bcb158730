-- The tables of a search index and the statements on them, the same in Python, Kotlin, Swift and JavaScript.
-- A line "-- name: NAME" starts a statement.

-- name: schema
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE documents (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, title TEXT NOT NULL, text TEXT NOT NULL, metadata TEXT NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE passages (id INTEGER PRIMARY KEY AUTOINCREMENT, document INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE, start INTEGER NOT NULL, end INTEGER NOT NULL, scale REAL, vector BLOB, crc INTEGER);
CREATE INDEX passages_of_document ON passages (document);
CREATE VIRTUAL TABLE words USING fts5(title, text, tokenize='ascii');
CREATE TRIGGER removed AFTER DELETE ON documents BEGIN DELETE FROM words WHERE rowid = old.id; END;

-- name: insert_words
-- ?1: the row of a document, ?2 and ?3: the words of its title and text (msdc/search/words.py).
INSERT INTO words (rowid, title, text) VALUES (?1, ?2, ?3)

-- name: filter
-- ?1: [{"path": "$.\"year\"", "ranges": [[2022, null]]}, ...]. A document has in each path a value (of a list: one of its
-- values) inside one of the ranges. Numbers, and texts that are plain decimal numbers, compare as numbers, others as text.
WITH bounds AS (
  SELECT part.key AS part, range.key AS range, side.key AS side, CAST(side.value AS TEXT) AS text,
    CASE WHEN typeof(side.value) <> 'text' THEN side.value
      WHEN side.value GLOB '*[0-9]*' AND length(side.value) < 16 AND NOT (side.value GLOB '*[^0-9.-]*'
        OR side.value GLOB '?*-*' OR side.value GLOB '*.*.*' OR side.value GLOB '0[0-9]*' OR side.value GLOB '-0[0-9]*')
      THEN side.value + 0 END AS number
  FROM json_each(?1) AS part, json_each(part.value, '$.ranges') AS range, json_each(range.value) AS side
), ranges AS MATERIALIZED (
  SELECT least.part, least.text AS least, least.number AS least_number, most.text AS most, most.number AS most_number
  FROM bounds AS least JOIN bounds AS most USING (part, range) WHERE least.side = 0 AND most.side = 1
), parts AS MATERIALIZED (SELECT key AS part, json_extract(value, '$.path') AS path FROM json_each(?1))
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

-- name: columns
SELECT DISTINCT cell.key FROM documents, json_each(documents.metadata) AS cell ORDER BY 1

-- name: words
-- ?1: the words, ?2: ids of documents as JSON or null for all, ?3: at most. The plus keeps one lookup per id away.
SELECT rowid, -rank FROM words
WHERE words MATCH ?1 AND (?2 IS NULL OR +rowid IN (SELECT value FROM json_each(?2))) ORDER BY rank LIMIT ?3

-- name: words_of
SELECT rowid, -rank FROM words WHERE words MATCH ?1 AND rowid IN (SELECT value FROM json_each(?2))

-- name: stored
-- ?1: keys as JSON. The passages of these documents, in order.
SELECT key, title, text, document, start, end, scale, vector, passages.crc FROM documents
JOIN passages ON document = documents.id WHERE key IN (SELECT value FROM json_each(?1)) ORDER BY passages.id
