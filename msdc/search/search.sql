-- The tables of a search index and the statements on them, the same in Python, Kotlin, Swift and JavaScript.
-- Each follows its name.

-- name: schema
-- A checksum is CRC-32: of a document's key, text, title and metadata with zeros between; of a passage's document, start,
-- end (int64) and 0 (float64); of the four columns of a block one after another. A block has the vectors of up to 256
-- passages in the order of their numbers: passage, document (int64), scale (float32), vector (int8) of each. `block` is
-- null where the model cannot read the passage. Numbers are little-endian. `words` has the words of words.py;
-- `form` is the same for entries with the same words: CRC-32 of title and text in `words` with zero between x 2^20 + their
-- length in bytes modulo 2^20.
CREATE TABLE facts (name TEXT PRIMARY KEY NOT NULL, value TEXT NOT NULL);
INSERT INTO facts VALUES ('format', '3');
CREATE TABLE documents (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  key TEXT NOT NULL UNIQUE CHECK (typeof(key) = 'text' AND key <> ''),
  title TEXT NOT NULL CHECK (typeof(title) = 'text'),
  text TEXT NOT NULL CHECK (typeof(text) = 'text'),
  form INTEGER NOT NULL CHECK (typeof(form) = 'integer'),
  metadata TEXT NOT NULL
    CONSTRAINT metadata_is_a_json_object CHECK (CASE WHEN json_valid(metadata) THEN json_type(metadata) = 'object' ELSE 0 END),
  crc INTEGER NOT NULL CHECK (typeof(crc) = 'integer')
);
CREATE INDEX documents_of_form ON documents (form);
CREATE TABLE passages (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  document INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
  start INTEGER NOT NULL CHECK (typeof(start) = 'integer' AND start >= 0),
  end INTEGER NOT NULL CHECK (typeof(end) = 'integer' AND end > start),
  block INTEGER CHECK (block IS NULL OR typeof(block) = 'integer'),
  crc INTEGER NOT NULL CHECK (typeof(crc) = 'integer')
);
CREATE TABLE blocks (
  id INTEGER PRIMARY KEY,
  crc INTEGER NOT NULL CHECK (typeof(crc) = 'integer'),
  passages BLOB NOT NULL CHECK (typeof(passages) = 'blob' AND length(passages) BETWEEN 8 AND 2048),
  documents BLOB NOT NULL CHECK (typeof(documents) = 'blob' AND length(documents) = length(passages)),
  scales BLOB NOT NULL CHECK (typeof(scales) = 'blob' AND length(scales) * 2 = length(passages)),
  vectors BLOB NOT NULL CHECK (typeof(vectors) = 'blob' AND length(vectors) > 0 AND length(vectors) * 8 % length(passages) = 0)
);
CREATE INDEX passages_of_document ON passages (document);
CREATE VIRTUAL TABLE words USING fts5(title, text, tokenize='ascii');
CREATE TRIGGER removed AFTER DELETE ON documents BEGIN DELETE FROM words WHERE rowid = old.id; END;
CREATE TRIGGER kept BEFORE UPDATE ON documents BEGIN SELECT RAISE(ABORT, 'a document is replaced, not changed'); END;
CREATE TRIGGER inside BEFORE INSERT ON passages
  WHEN new.end > (SELECT length(CAST(text AS BLOB)) FROM documents WHERE id = new.document)
  BEGIN SELECT RAISE(ABORT, 'a passage outside its document'); END;

-- name: constants
-- Documents that are written in one transaction; documents by words and by vectors that are ranked together (four times as
-- many, and again, for hits beyond them).
SELECT 256, 1000

-- name: add_facts
-- The model's fingerprint, its name, the identity of its weights, by which a phone's bundle is recognized, and the mean and
-- standard deviation of its cosines as JSON, or null: of pairs of unrelated sentences.
INSERT INTO facts SELECT column1, column2 FROM (VALUES ('model', ?1), ('name', ?2), ('source', ?3), ('cosines', ?4))
WHERE column2 IS NOT NULL

-- name: check
-- ?1: the source of the model, null for any. What is wrong with the file, or null, and the kind: version or model.
SELECT CASE kind
  WHEN 'version' THEN 'an index of another version of msdc (format ' || coalesce(format, 'none') || ', this one reads 3)'
  WHEN 'model' THEN 'made with another ' || coalesce(name, 'model') END, kind
FROM (SELECT *, CASE WHEN format IS NOT '3' THEN 'version'
  WHEN ?1 NOT IN (SELECT value FROM facts WHERE name IN ('model', 'source')) THEN 'model' END AS kind
  FROM (SELECT max(value) FILTER (WHERE name = 'format') AS format, max(value) FILTER (WHERE name = 'name') AS name FROM facts))

-- name: model
-- The fingerprint of the model: another process may have rebuilt the index with another one.
SELECT value FROM facts WHERE name = 'model'

-- name: damage
-- The first step of a full check: damaged pages, else passages and words without a document, documents without them, and
-- vectors without a passage. The next three statements and `blocks` have the checksums.
WITH state AS MATERIALIZED (SELECT quick_check AS state FROM pragma_quick_check LIMIT 1)
SELECT CASE WHEN state <> 'ok' THEN substr(replace(state, char(10), ' '), 1, 100)
  ELSE strays || ' parts of documents are missing' END
FROM (SELECT state, CASE WHEN state = 'ok' THEN (
  SELECT (SELECT count(*) FROM passages WHERE document NOT IN (SELECT id FROM documents))
    + (SELECT count(*) FROM passages WHERE block NOT IN (SELECT id FROM blocks))
    + (SELECT count(*) FROM documents WHERE id NOT IN (SELECT document FROM passages))
    + (SELECT count(*) FROM words_content WHERE id NOT IN (SELECT id FROM documents))
    + (SELECT count(*) FROM documents WHERE id NOT IN (SELECT id FROM words_content))
    + abs((SELECT count(block) FROM passages) - (SELECT coalesce(sum(length(passages)) / 8, 0) FROM blocks))) END AS strays
  FROM state) WHERE state <> 'ok' OR strays

-- name: check_words
INSERT INTO words (words) VALUES ('integrity-check')

-- name: check_documents
SELECT key, text, title, metadata, crc FROM documents

-- name: check_passages
SELECT id, document, start, end, crc FROM passages

-- name: ids
SELECT key FROM documents ORDER BY id

-- name: count
-- The number of documents: the first number (a varint) of FTS5's record of totals, which its integrity check compares with
-- the documents; FTS5 writes it when a transaction ends. count(*) reads an index of all of them.
WITH RECURSIVE totals AS MATERIALIZED (SELECT hex(substr(block, 1, 9)) || '00' AS digits FROM words_data WHERE id = 1),
varint (position, byte, number) AS (
  SELECT 1, 128, 0
  UNION ALL SELECT position + 2, 16 * instr('123456789ABCDEF', substr(digits, position, 1))
    + instr('123456789ABCDEF', substr(digits, position + 1, 1)), number * 128 + byte % 128 FROM varint, totals WHERE byte >= 128
) SELECT number * 128 + byte FROM varint WHERE byte < 128

-- name: number
-- ?1: a key.
SELECT id FROM documents WHERE key = ?1

-- name: document
-- ?1: a key.
SELECT key, text, title, metadata, crc FROM documents WHERE key = ?1

-- name: key
-- ?1: keys as JSON. A key for the next document: its number, or the first after it that is no key and none of these.
WITH RECURSIVE numbers (number) AS (
  SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'documents'), 0) + 1
  UNION ALL SELECT number + 1 FROM numbers WHERE EXISTS (SELECT 1 FROM documents WHERE key = CAST(number AS TEXT))
    OR CAST(number AS TEXT) IN (SELECT value FROM json_each(?1))
) SELECT CAST(max(number) AS TEXT) FROM numbers

-- name: blocks_of
-- ?1: keys as JSON. The documents with their blocks, which have to lose their vectors before `remove`.
SELECT DISTINCT documents.id, block FROM documents JOIN passages ON document = documents.id
WHERE key IN (SELECT value FROM json_each(?1)) AND block IS NOT NULL

-- name: remove
-- ?1: keys as JSON.
DELETE FROM documents WHERE key IN (SELECT value FROM json_each(?1))

-- name: add_document
INSERT INTO documents (key, text, title, metadata, crc, form) VALUES (?1, ?2, ?3, ?4, ?5, ?6)

-- name: add_words
INSERT INTO words (rowid, title, text) VALUES (?1, ?2, ?3)

-- name: add_passage
INSERT INTO passages (document, start, end, block, crc) VALUES (?1, ?2, ?3, ?4, ?5)

-- name: block
SELECT id, crc, passages, documents, scales, vectors FROM blocks WHERE id = ?1

-- name: last_block
-- It gets the next passages until it has 256; a new one has the next number.
SELECT id, crc, passages, documents, scales, vectors FROM blocks ORDER BY id DESC LIMIT 1

-- name: write_block
INSERT OR REPLACE INTO blocks (id, crc, passages, documents, scales, vectors) VALUES (?1, ?2, ?3, ?4, ?5, ?6)

-- name: remove_block
DELETE FROM blocks WHERE id = ?1

-- name: create_rebuilt
-- Passages by the next model, until all documents have some: the index is of its former model up to `finish_rebuild`.
-- Their checksum is of document, start, end (int64), scale (float64, 0 without a vector) and vector.
CREATE TABLE IF NOT EXISTS rebuilt (
  document INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE, start INTEGER, end INTEGER, scale REAL, vector BLOB, crc INTEGER);
CREATE INDEX IF NOT EXISTS rebuilt_of_document ON rebuilt (document)

-- name: begin_rebuild
-- ?1: the source of the next model. Passages of another one are dropped.
DELETE FROM rebuilt WHERE ?1 IS NOT (SELECT value FROM facts WHERE name = 'rebuild')

-- name: add_rebuild
-- ?1: the source of the next model.
INSERT OR REPLACE INTO facts VALUES ('rebuild', ?1)

-- name: next_rebuilt
-- ?1: at most so many documents that have no passages of the next model. They are encoded in the order of their numbers, and
-- a new document has the highest: a search for the absent ones would read the whole table for each block.
SELECT id, key, text, title, metadata, crc FROM documents
WHERE id > coalesce((SELECT max(document) FROM rebuilt), 0) ORDER BY id LIMIT ?1

-- name: rebuild_state
-- ?1: the source of the next model. Whether the index is of this model already, is being rebuilt for it, or is not.
SELECT CASE WHEN ?1 IN (SELECT value FROM facts WHERE name IN ('model', 'source')) THEN 'rebuilt'
  WHEN ?1 IN (SELECT value FROM facts WHERE name = 'rebuild') THEN 'rebuilding' ELSE 'other' END

-- name: unbuilt
-- ?1: documents as JSON. Those that are still there and have no passages of the next model.
SELECT id FROM documents WHERE id IN (SELECT value FROM json_each(?1))
  AND id > coalesce((SELECT max(document) FROM rebuilt), 0)

-- name: count_rebuilt
-- How many documents have passages of the next model, and how many there are.
SELECT count(DISTINCT document), (SELECT count(*) FROM documents) FROM rebuilt

-- name: add_rebuilt
INSERT INTO rebuilt (document, start, end, scale, vector, crc) VALUES (?1, ?2, ?3, ?4, ?5, ?6)

-- name: begin_finish
-- All documents have passages of the next model: they take the place of the former ones, ...
DELETE FROM passages;
DELETE FROM blocks

-- name: rebuilt
-- ... in this order ...
SELECT document, start, end, scale, vector, crc FROM rebuilt ORDER BY rowid

-- name: finish_rebuild
-- ... and `add_facts` follows.
DROP TABLE rebuilt;
DELETE FROM facts WHERE name <> 'format'

-- name: block_checksums
-- With the number of vectors and their width.
SELECT id, crc, length(passages) / 8, length(vectors) * 8 / length(passages) FROM blocks ORDER BY id

-- name: blocks
SELECT id, crc, passages, documents, scales, vectors FROM blocks ORDER BY id

-- name: hit
-- ?1: a document.
SELECT key, text, title, metadata, crc FROM documents WHERE id = ?1

-- name: passages_of
-- ?1: a document. Where its passages are, in order.
SELECT id, start, end, crc FROM passages WHERE document = ?1 ORDER BY id

-- name: branches
-- ?1: a filter: what all hold, of which `filter` reads the conditions: [column, [alternative, ...], excluded], {"or": [filter,
-- ...]} or {"not": [filter]}. Of the latter the number, the name and each filter.
SELECT node.key, branch.key, part.value FROM json_each(?1) AS node, json_each(node.value) AS branch, json_each(branch.value) AS part
WHERE node.type = 'object' ORDER BY node.key, part.key

-- name: filter
-- ?1: conditions that all hold: [[column, [alternative, ...], excluded], ...], ?2: a query's plan. A document has in the
-- column one of the alternatives, or none of them if they are excluded: a value, [least, most] with null for no bound, or
-- null for no value (missing, null or an empty text). Of a list one item is enough. Numbers, and texts that are plain
-- decimal numbers, compare as numbers; times (2031-05-31T10:00+02:00; without a zone UTC) as instants; a date is its whole
-- day, as it was written; others as text. Documents with the words that the plan excludes are not among them. ?3: only
-- documents of these ids, as JSON; null for all.
WITH conditions AS MATERIALIZED (
  SELECT key AS condition, '$."' || json_extract(value, '$[0]') || '"' AS path, json_extract(value, '$[2]') AS excluded,
    json_extract(value, '$[1]') AS alternatives
  FROM json_each(?1) WHERE type = 'array'
), sides AS (
  SELECT condition, alternative.key AS alternative, side.key AS side, side.value AS value, CAST(side.value AS TEXT) AS text,
    CASE WHEN typeof(side.value) <> 'text' THEN side.value
      WHEN side.value GLOB '*[0-9]*' AND length(side.value) < 16 AND NOT (side.value GLOB '*[^0-9.-]*'
        OR side.value GLOB '?*-*' OR side.value GLOB '*.*.*' OR side.value GLOB '0[0-9]*' OR side.value GLOB '-0[0-9]*')
      THEN side.value + 0 END AS number,
    CASE WHEN side.value GLOB '[0-9][0-9][0-9][0-9]-[01][0-9]-[0-3][0-9]' THEN side.value END AS day,
    CASE WHEN side.value GLOB '[0-9][0-9][0-9][0-9]-[01][0-9]-[0-3][0-9][T ][0-2][0-9]:[0-5][0-9]*'
      THEN strftime('%Y-%m-%dT%H:%M:%f', side.value) END AS instant
  FROM conditions, json_each(alternatives) AS alternative,
    json_each(CASE alternative.type WHEN 'array' THEN alternative.value
      ELSE json_array(alternative.value, alternative.value) END) AS side
), ranges AS MATERIALIZED (
  SELECT least.condition, least.value IS NULL AND most.value IS NULL AS no_value,
    least.text AS least, least.number AS least_number, least.day AS least_day, least.instant AS least_instant,
    most.text AS most, most.number AS most_number, most.day AS most_day, most.instant AS most_instant
  FROM sides AS least JOIN sides AS most USING (condition, alternative) WHERE least.side = 0 AND most.side = 1
)
SELECT id FROM documents WHERE NOT EXISTS (
  SELECT 1 FROM conditions WHERE excluded = EXISTS (
    SELECT 1 FROM ranges WHERE ranges.condition = conditions.condition AND CASE WHEN no_value THEN NOT EXISTS (
      SELECT 1 FROM json_each(documents.metadata, conditions.path) WHERE type <> 'null' AND value <> '')
    ELSE EXISTS (
      SELECT 1 FROM (
        SELECT type, value, type IN ('integer', 'real', 'true', 'false') OR (
          value GLOB '*[0-9]*' AND length(value) < 16 AND NOT (value GLOB '*[^0-9.-]*'
          OR value GLOB '?*-*' OR value GLOB '*.*.*' OR value GLOB '0[0-9]*' OR value GLOB '-0[0-9]*')) AS is_number,
          CASE WHEN value GLOB '[0-9][0-9][0-9][0-9]-[01][0-9]-[0-3][0-9]'
            OR value GLOB '[0-9][0-9][0-9][0-9]-[01][0-9]-[0-3][0-9][T ][0-2][0-9]:[0-5][0-9]*'
            THEN strftime('%Y-%m-%dT%H:%M:%f', value) END AS instant
        FROM json_each(documents.metadata, conditions.path)) AS cell
      WHERE (least IS NULL OR CASE
          WHEN least_number IS NOT NULL AND is_number THEN cell.value + 0 >= least_number
          WHEN cell.type IN ('true', 'false') THEN cell.type >= least
          WHEN least_day IS NOT NULL AND instant IS NOT NULL THEN substr(cell.value, 1, 10) >= least_day
          WHEN least_instant IS NOT NULL AND instant IS NOT NULL THEN instant >= least_instant
          ELSE CAST(cell.value AS TEXT) >= least AND (least_number IS NULL OR cell.value GLOB '[0-9]*') END)
        AND (most IS NULL OR CASE
          WHEN most_number IS NOT NULL AND is_number THEN cell.value + 0 <= most_number
          WHEN cell.type IN ('true', 'false') THEN cell.type <= most
          WHEN most_day IS NOT NULL AND instant IS NOT NULL THEN substr(cell.value, 1, 10) <= most_day
          WHEN most_instant IS NOT NULL AND instant IS NOT NULL THEN instant <= most_instant
          ELSE CAST(cell.value AS TEXT) <= most AND (most_number IS NULL OR cell.value GLOB '[0-9]*') END))
    END))
AND (json_extract(?2, '$.without') IS NULL
  OR id NOT IN (SELECT rowid FROM words WHERE words MATCH json_extract(?2, '$.without')))
AND (?3 IS NULL OR id IN (SELECT value FROM json_each(?3)))

-- name: unknown
-- ?1: conditions, or columns: [[column, ...], ...]. One of the columns that no document has, and those that they have.
SELECT json_extract(value, '$[0]'), coalesce((SELECT group_concat(name, ', ') FROM (
  SELECT DISTINCT cell.key AS name FROM documents, json_each(documents.metadata) AS cell ORDER BY 1)), 'none') FROM json_each(?1)
WHERE type = 'array' AND EXISTS (SELECT 1 FROM documents) AND NOT EXISTS (
  SELECT 1 FROM documents WHERE json_type(metadata, '$."' || json_extract(value, '$[0]') || '"') IS NOT NULL) LIMIT 1

-- name: plan
-- ?1: a query's plan, which `parse_query` of words.py describes. What the model encodes, whether words are excluded, whether
-- there is a word, and what to highlight: a word or phrase in each line, with a star where it may go on.
SELECT json_extract(?1, '$.text'), json_extract(?1, '$.without') IS NOT NULL, json_array_length(?1, '$.words') > 0,
  (SELECT group_concat(replace(replace(json_extract(value, '$[1]'), ' OR ', char(10)), '"', ''), char(10))
    FROM json_each(?1, '$.words'))

-- name: words
-- ?1: a plan, ?2: ids of documents as JSON or null for all, ?3: at most so many, and of ?4 (ids as JSON) all, ?5: the number
-- of documents of the index.
-- Of each document: the words part of its score, bm25 x coverage (matched idf of all idf); how much of the query matches if
-- each word does, in its first form that occurs (1) or another, else 0; whether its title is the query; the number of quoted
-- phrases. A word in several forms has the idf of the first that occurs; forms that do not occur give their share to the
-- others. log2 is computed by halving: not every SQLite has it.
-- If the words occur in more than 20 x ?3 documents together (a document counts for each of its words), scores are computed
-- of fewer documents: of the 20 x ?3 newest with the rarest words the 2 x ?3 best, in which these words count twice; as many
-- with all words, if each is in more than 20 x ?3; of the ?3 newest with any word; of those with a quoted phrase or an equal
-- title; and of ?4.
-- Of more than 128 words the rarest of those that occur count, alone.
WITH RECURSIVE counted AS MATERIALIZED (
  SELECT form, word, expression, share, (SELECT count(*) FROM words WHERE words MATCH expression) AS documents FROM (
    SELECT key AS form, json_extract(value, '$[0]') AS word, json_extract(value, '$[1]') AS expression,
      1.0 * json_extract(value, '$[2]') AS share FROM json_each(?1, '$.words'))
), forms AS MATERIALIZED (
  SELECT form, word, expression, share FROM counted WHERE word IN (
    SELECT word FROM counted GROUP BY word ORDER BY sum(documents) = 0, sum(documents), word LIMIT 128)
), totals AS MATERIALIZED (SELECT count(DISTINCT word) AS asked FROM forms),
frequencies AS MATERIALIZED (
  SELECT form, word, documents FROM counted WHERE documents AND form IN (SELECT form FROM forms)
), logs (word, x, e) AS (
  SELECT word, (?5 + 1.0) / (coalesce((SELECT documents FROM frequencies
    WHERE frequencies.word = asked.word ORDER BY form LIMIT 1), 0) + 0.5), 0 FROM (SELECT DISTINCT word FROM forms) AS asked
  UNION ALL SELECT word, x / 2, e + 1 FROM logs WHERE x >= 2
), scales AS MATERIALIZED (
  SELECT word, sum(share) / sum(CASE WHEN form IN (SELECT form FROM frequencies) THEN share END) AS scale FROM forms GROUP BY word
), weights AS MATERIALIZED (
  SELECT expression, share * coalesce(scale, 1) AS share, share * coalesce(scale, 1) * idf AS weight,
    form IN (SELECT max(form) FROM forms GROUP BY word) AS general
  FROM forms JOIN (SELECT word, e + x - 1 AS idf FROM logs WHERE x < 2) USING (word) JOIN scales USING (word)
  WHERE scale IS NULL OR form IN (SELECT form FROM frequencies)
), words_by_documents AS MATERIALIZED (
  SELECT word, documents, sum(documents) OVER (ORDER BY documents, word) AS total
  FROM (SELECT word, sum(documents) AS documents FROM frequencies GROUP BY word)
), first_forms AS MATERIALIZED (
  SELECT form, documents, total, expression FROM forms JOIN words_by_documents USING (word)
  WHERE form IN (SELECT min(form) FROM frequencies GROUP BY word)
), limits AS MATERIALIZED (
  SELECT most, CASE WHEN rarest > 20 * most THEN most ELSE 0 END AS most_with_all FROM (
    SELECT CASE WHEN max(total) > 20 * ?3 AND (?2 IS NULL OR json_array_length(?2) > 20 * ?3) THEN ?3 ELSE 0 END AS most,
      min(documents) AS rarest FROM words_by_documents)
), quotes AS MATERIALIZED (
  SELECT words.rowid AS document, count(*) AS quoted FROM json_each(?1, '$.quoted') AS quote CROSS JOIN words
  WHERE words MATCH quote.value GROUP BY words.rowid
), titles AS MATERIALIZED (
  SELECT rowid AS document FROM words
  WHERE words MATCH '{title} : "' || coalesce(nullif(json_extract(?1, '$.same'), ''), 'none') || '"'
    AND title = json_extract(?1, '$.same')
), candidates AS MATERIALIZED (
  SELECT document FROM (
    SELECT document FROM (
      SELECT rowid AS document, rank AS relevance FROM words WHERE words MATCH (
          SELECT '(' || (SELECT group_concat(expression, ' OR ') FROM forms
              WHERE form IN (SELECT form FROM first_forms WHERE total = documents)
                OR word IN (SELECT word FROM words_by_documents WHERE total <= 20 * ?3))
            || ') AND (' || group_concat(expression, ' OR ') || ')' FROM first_forms)
        AND (?2 IS NULL OR rowid IN (SELECT value FROM json_each(?2))) ORDER BY rowid DESC LIMIT 20 * (SELECT most FROM limits))
    ORDER BY relevance LIMIT 2 * ?3)
  UNION SELECT document FROM (
    SELECT document FROM (
      SELECT rowid AS document, rank AS relevance FROM words
      WHERE words MATCH (SELECT group_concat('(' || expression || ')', ' AND ') FROM first_forms)
        AND (?2 IS NULL OR rowid IN (SELECT value FROM json_each(?2)))
      ORDER BY rowid DESC LIMIT 20 * (SELECT most_with_all FROM limits))
    ORDER BY relevance LIMIT 2 * ?3)
  UNION SELECT document FROM (SELECT rowid AS document FROM words
    WHERE words MATCH (SELECT group_concat(expression, ' OR ') FROM first_forms)
      AND (?2 IS NULL OR rowid IN (SELECT value FROM json_each(?2))) ORDER BY rowid DESC LIMIT (SELECT most FROM limits))
  UNION SELECT document FROM (SELECT document FROM quotes ORDER BY quoted DESC, document DESC LIMIT (SELECT most FROM limits))
  UNION SELECT document FROM titles
  UNION SELECT value FROM json_each(?4)
), summed AS MATERIALIZED (
  SELECT words.rowid AS document, sum(-words.rank * share) * sum(weight) / (SELECT sum(weight) FROM weights) AS words,
    CASE WHEN sum(general) = (SELECT asked FROM totals) THEN sum(share) / (SELECT asked FROM totals) ELSE 0 END AS matched
  FROM weights CROSS JOIN words
  WHERE words MATCH weights.expression AND (?2 IS NULL OR words.rowid IN (SELECT value FROM json_each(?2)))
    AND ((SELECT most FROM limits) = 0 OR words.rowid IN (SELECT document FROM candidates)) GROUP BY words.rowid
), scored AS MATERIALIZED (
  SELECT summed.*, document IN (SELECT document FROM titles) AS same, coalesce(quoted, 0) AS quoted
  FROM summed LEFT JOIN quotes USING (document)
)
SELECT * FROM (SELECT * FROM scored ORDER BY quoted DESC, same DESC, words + 4 * matched DESC, document LIMIT ?3)
UNION SELECT * FROM scored WHERE document IN (SELECT value FROM json_each(?4))

-- name: vocabulary
CREATE VIRTUAL TABLE IF NOT EXISTS temp.vocabulary USING fts5vocab('main', 'words', 'row')

-- name: similar
-- ?1: a plan that finds nothing, ?2: whether vectors answer it, ?3: ids of documents as JSON or null for all. The same plan with the most similar words of the index, or
-- null: words with most pairs of letters in common (one letter may be between them), and names in another alphabet with the
-- same letters or consonants. They count half, so that a question that vectors answer is not outvoted; the only word of a
-- query counts as it is. At most four words are replaced, the longest, and none of a longer query that vectors answer. They
-- are compared with at most 100,000 words of the index: with those of the same first letter or sound, and of the first 20,000
-- also with those of the same last two letters.
WITH RECURSIVE asked AS MATERIALIZED (
  SELECT word, text, (text < 'Ͱ') AS latin FROM (
    SELECT json_extract(value, '$[0]') AS word, min(key), substr(json_extract(value, '$[1]'), 2, instr(substr(json_extract(value, '$[1]'), 2), '"') - 1) AS text
    FROM json_each(?1, '$.words') GROUP BY 1
  ) WHERE length(text) BETWEEN 3 + (text < 'Ͱ') AND 40 AND NOT text GLOB '*[ 0-9]*'
    AND (NOT coalesce(?2, 0) OR (SELECT count(DISTINCT json_extract(value, '$[0]')) FROM json_each(?1, '$.words')) < 5)
  ORDER BY length(text) DESC, word LIMIT 4
), alphabets (letters, is_vowel) AS (VALUES ('bvwбвβבובו', 0), ('gjгґγغجжג', 0), ('dдδدضذד', 0), ('zзζزظז', 0),
  ('kcqxкцчхκχقكخכקח', 0), ('hхгحهخה', 0), ('lлλلל', 0), ('mмμمמם', 0), ('nнνنנן', 0), ('pfпфπφפفپפף', 0), ('rрρرר', 0),
  ('sсшщσثسصشסשצ', 0), ('tтθτتطثטת', 0), ('aаяαاعىאע', 1), ('eеэиεηاיא', 1), ('iийιηυيیי', 1), ('oоοωوו', 1),
  ('uуюоουوו', 1), ('yыйуюяиυιيי', 1)
), initials (word, letter, others) AS (
  SELECT word, substr(text, 1, 1), coalesce(CASE
    WHEN (SELECT max(is_vowel) FROM alphabets WHERE instr(letters, substr(text, 1, 1))) THEN 'aeiouyаеиоуыэюяёαεηιουωاعءיאע'
    ELSE (SELECT min(letters) FROM alphabets WHERE instr(letters, substr(text, 1, 1))) END, '') FROM asked
  UNION ALL SELECT word, substr(others, 1, 1), substr(others, 2) FROM initials WHERE others <> ''
), near AS MATERIALIZED (
  SELECT DISTINCT word, text, latin, term FROM (
    SELECT asked.*, term FROM (SELECT DISTINCT word, letter FROM initials) JOIN asked USING (word) CROSS JOIN vocabulary
    WHERE term >= letter AND term < letter || '􏿿' AND length(term) BETWEEN max(3, length(text) / 2) AND length(text) + 2
    UNION ALL SELECT asked.*, term FROM (SELECT term FROM vocabulary LIMIT 20000) CROSS JOIN asked
    WHERE substr(term, -2) = substr(text, -2) AND length(term) BETWEEN max(3, length(text) / 2) AND length(text) + 2
    LIMIT 100000)
), pairs (word, text, position, first, second) AS (
  SELECT word, text, 1, substr(text, 1, 1), substr(text, 2, 1) FROM asked
  UNION ALL SELECT word, text, position + 1, second, substr(text, position + 2, 1) FROM pairs
  WHERE position < length(text) - 1
), spelled AS (
  SELECT word, term, 2.0 * sum(term LIKE '%' || first || second || '%' OR term LIKE '%' || first || '_' || second || '%')
    / (count(*) + length(term) - 1) AS similarity
  FROM (SELECT * FROM near WHERE latin = (term < 'Ͱ') AND length(term) > length(text) - 3 AND (substr(term, 1, 1) = substr(text, 1, 1)
    OR substr(term, -2) = substr(text, -2))) JOIN pairs USING (word) GROUP BY word, term HAVING similarity >= 0.7
), sounds (word, text, position, consonants, letters) AS (
  SELECT word, text, 1, '', '' FROM asked
  UNION ALL SELECT word, text, position + 1, consonants || CASE
      WHEN is_vowel AND position = 1 THEN '[aeiouyаеиоуыэюяёαεηιουωاعءיאע]*'
      WHEN is_vowel OR position = length(text) AND substr(text, position, 1) = 'ه' OR position > 1 AND substr(text, position, 1) IN ('h', substr(text, position - 1, 1))
        AND (instr('ckgpstdz', substr(text, position - 1, 1)) OR substr(text, position, 1) <> 'h') THEN ''
      ELSE coalesce('[' || alphabets.letters || ']*', '') END, sounds.letters || CASE
      WHEN is_vowel AND position = length(text) THEN '' ELSE coalesce('[' || alphabets.letters || ']', '?') END
  FROM sounds LEFT JOIN alphabets
    ON alphabets.letters = (SELECT min(letters) FROM alphabets WHERE instr(letters, substr(text, position, 1)))
  WHERE position <= length(text)
), sounded AS (
  SELECT near.word, term, CASE WHEN term GLOB letters || '*' THEN 0.9 ELSE 0.7 END AS similarity FROM near JOIN sounds USING (word)
  WHERE position > length(sounds.text) AND latin <> (term < 'Ͱ') AND (term GLOB letters || '*'
    OR (length(consonants) - length(replace(consonants, '*', '')) > 2 AND term GLOB consonants))
), similar AS (
  SELECT word, term, similarity, max(similarity) OVER (PARTITION BY word) AS highest,
    row_number() OVER (PARTITION BY word ORDER BY similarity DESC, term) AS place
  FROM (SELECT * FROM spelled UNION ALL SELECT * FROM sounded) WHERE ?3 IS NULL OR EXISTS (
    SELECT 1 FROM words WHERE words MATCH '"' || term || '"' AND rowid IN (SELECT value FROM json_each(?3)))
), replaced AS (
  SELECT word, group_concat('"' || term || '"', ' OR ') AS expression FROM similar
  WHERE place < 6 AND similarity > highest - 0.15 GROUP BY word
), forms AS (
  SELECT json_array(word, expression,
    CASE (SELECT count(DISTINCT json_extract(value, '$[0]')) FROM json_each(?1, '$.words')) WHEN 1 THEN 1 ELSE 0.5 END) AS form
  FROM replaced
  UNION ALL SELECT json(value) FROM json_each(?1, '$.words')
    WHERE json_extract(value, '$[0]') NOT IN (SELECT word FROM replaced)
)
SELECT json_set(?1, '$.words', json((SELECT json_group_array(json(form)) FROM forms))) WHERE EXISTS (SELECT 1 FROM replaced)

-- name: ranked
-- ?1: [[document, cosine or null, and words, matched, same, quoted of the statement `words`, bonus], ...], ?2: {document: cosine}
-- of others, ?3: the mode, ?4: least cosine or null. Numbers have six digits, sums four decimals, so that devices that round
-- differently rank alike. Relevance is the words part + 4 where every word matches + 1.84 for each standard deviation that the cosine of the
-- best passage is above the mean of the model's cosines (for an equal title a cosine of 1, and 4 more) + 100 for each quoted
-- phrase + the bonus. Cosines of msdc-mini have a deviation of 0.092: a weight of 20, which is also that of an index without the
-- fact. The last column is for `ordered`: whether a document matches the query, by every word or by a cosine three deviations
-- above the mean, + 2 for each quoted phrase.
WITH spread AS (
  SELECT coalesce(json_extract(value, '$[0]'), 0) AS mean, 1.84 / max(coalesce(json_extract(value, '$[1]'), 0.092), 0.005) AS weight
  FROM (SELECT max(value) AS value FROM facts WHERE name = 'cosines' AND json_valid(value))
), candidates AS (
  SELECT json_extract(value, '$[0]') AS document, json_extract(value, '$[1]') AS cosine, json_extract(value, '$[2]') AS words,
    json_extract(value, '$[3]') AS matched, json_extract(value, '$[4]') AS same, json_extract(value, '$[5]') AS quoted,
    json_extract(value, '$[6]') AS bonus
  FROM json_each(?1)
  UNION ALL SELECT CAST(key AS INTEGER), value, CASE WHEN ?3 <> 'vectors' THEN 0.0 END, 0, 0, 0, 0 FROM json_each(?2)
)
SELECT document, CAST(printf(CASE ?3 WHEN 'both' THEN '%.4f' ELSE '%.6g' END, CASE WHEN ?3 = 'vectors' THEN cosine
    ELSE words + 4 * matched + 100 * quoted
      + CASE WHEN ?3 = 'both' THEN weight * (CASE WHEN same THEN 1 ELSE coalesce(cosine, mean) END - mean) + 4 * same
        ELSE 0 END END + bonus) AS REAL) AS score,
  CASE WHEN cosine IS NOT NULL THEN CAST(printf('%.6g', cosine) AS REAL) END,
  CASE WHEN words IS NOT NULL THEN CAST(printf('%.6g', words) AS REAL) END,
  2 * quoted + (matched >= 0.5 OR coalesce(cosine >= mean + 3 * 1.84 / weight, 0))
FROM candidates, spread WHERE ?4 IS NULL OR ?3 = 'words' OR coalesce(cosine, -1) >= ?4 OR matched >= 0.5
ORDER BY score DESC, document

-- name: relevant
-- The least cosine of a relevant entry, six digits: 1.5 standard deviations above the mean of unrelated sentences.
SELECT printf('%.6g', json_extract(value, '$[0]') + 1.5 * json_extract(value, '$[1]')) FROM facts
WHERE name = 'cosines' AND json_valid(value)

-- name: cells
-- The values of documents by column, each of a list; none that is missing, null or an empty text. They compare as in
-- `filter`: numbers, and texts that are plain decimal numbers, before times (as instants) and other texts.
CREATE TEMP VIEW IF NOT EXISTS cells AS
SELECT documents.id AS document, columns.key AS name, cell.key AS item, CASE
  WHEN cell.type IN ('integer', 'real', 'true', 'false') OR (
    cell.value GLOB '*[0-9]*' AND length(cell.value) < 16 AND NOT (cell.value GLOB '*[^0-9.-]*'
    OR cell.value GLOB '?*-*' OR cell.value GLOB '*.*.*' OR cell.value GLOB '0[0-9]*' OR cell.value GLOB '-0[0-9]*'))
    THEN cell.value + 0
  WHEN cell.value GLOB '[0-9][0-9][0-9][0-9]-[01][0-9]-[0-3][0-9]'
    OR cell.value GLOB '[0-9][0-9][0-9][0-9]-[01][0-9]-[0-3][0-9][T ][0-2][0-9]:[0-5][0-9]*'
    THEN coalesce(strftime('%Y-%m-%dT%H:%M:%f', cell.value), cell.value)
  ELSE cell.value END AS value
FROM documents CROSS JOIN json_each(documents.metadata) AS columns
  CROSS JOIN json_each(CASE WHEN columns.type IN ('array', 'object') THEN columns.value ELSE json_array(columns.value) END) AS cell
WHERE cell.type <> 'null' AND cell.value <> ''

-- name: ordered
-- After `cells`. ?1: [[document, last column], ...] of `ranked`, ?2: at most three columns: [[column, descending], ...]. The
-- positions in ?1 of the documents in order: by the last column of `ranked`, then, of those that match, by their columns, then as
-- in ?1. Documents without a value are last; of a list the value counts that is first in this order.
SELECT position FROM (
  SELECT position, matches, number,
    dense_rank() OVER (PARTITION BY number ORDER BY value IS NULL, CASE WHEN NOT descending THEN value END,
      CASE WHEN descending THEN value END DESC) AS place
  FROM (
    SELECT entry.key AS position, json_extract(entry.value, '$[1]') AS matches, part.key AS number,
      json_extract(part.value, '$[1]') AS descending, CASE WHEN json_extract(entry.value, '$[1]') % 2 THEN (
        SELECT CASE WHEN json_extract(part.value, '$[1]') THEN max(value) ELSE min(value) END FROM cells
        WHERE document = json_extract(entry.value, '$[0]') AND name = json_extract(part.value, '$[0]')) END AS value
    FROM json_each(?2) AS part CROSS JOIN json_each(?1) AS entry))
GROUP BY position
ORDER BY matches DESC, max(place) FILTER (WHERE number = 0), max(place) FILTER (WHERE number = 1),
  max(place) FILTER (WHERE number = 2), position

-- name: group
-- After `cells`. ?1: a document, ?2: a column. What documents with the same value have in common, a list as a whole; no row without
-- a value.
SELECT json_group_array(value) FROM (
  SELECT CASE WHEN typeof(value) = 'real' AND value = CAST(value AS INTEGER) THEN CAST(value AS INTEGER) ELSE value END AS value
  FROM cells WHERE document = ?1 AND name = ?2 ORDER BY item) HAVING count(*)

-- name: form
-- ?1: a document. What it has in common with those with the same words: of them only the best is a hit.
SELECT form FROM documents WHERE id = ?1

-- name: equal
-- ?1: a document, ?2: ids of documents as JSON or null for all. The number of documents with the same words.
SELECT count(*) FROM documents WHERE form = (SELECT form FROM documents WHERE id = ?1)
  AND (?2 IS NULL OR id IN (SELECT value FROM json_each(?2)))

-- name: stored
-- ?1: keys as JSON, ?2: forms as JSON. The passages of the documents with these keys and of one document of each form, in
-- order: their vectors are used again where an incoming document has the same passage.
SELECT key, title, text, document, start, end, passages.crc, block, passages.id FROM documents
JOIN passages ON document = documents.id WHERE key IN (SELECT value FROM json_each(?1))
  OR documents.id IN (SELECT min(id) FROM documents WHERE form IN (SELECT value FROM json_each(?2)) GROUP BY form)
ORDER BY passages.id
