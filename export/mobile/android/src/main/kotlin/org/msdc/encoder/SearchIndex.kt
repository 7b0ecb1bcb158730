package org.msdc.encoder

import android.content.Context
import androidx.sqlite.SQLiteConnection
import androidx.sqlite.SQLiteDriver
import androidx.sqlite.SQLiteStatement
import java.io.Closeable
import java.io.File
import java.io.IOException
import java.io.RandomAccessFile
import java.nio.ByteBuffer
import java.util.concurrent.locks.ReentrantLock
import kotlin.concurrent.withLock
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.ensureActive
import kotlinx.coroutines.withContext

/** A text with its id, a title that may be empty, and a JSON object of values to filter by. */
data class Document(val id: String, val text: String, val title: String = "", val metadata: String = "{}")

/**
 * A document that matches. [score] ranks it: [words] (BM25 x coverage of the query's words) + 4 x the matched share,
 * [cosine] of its best passage, or the sum with 20 x cosine. `document.text.substring(start, end)` is the passage to
 * show, [matches] are the places of the query's words (`document.text.substring(match)`), and [count] is the number of
 * documents with the same words, of which this is the best.
 */
data class Found(
    val document: Document,
    val score: Double,
    val cosine: Double,
    val words: Double,
    val start: Int,
    val end: Int,
    val matches: List<IntRange> = emptyList(),
    val count: Int = 1
) {
    val passage: String get() = document.text.substring(start, end)
}

/** Rank by the words (BM25), by the vectors (cosine of the best passage), or by the sum of both. */
enum class Mode { WORDS, VECTORS, BOTH }

/** In a filter: none of these, [value] being what could stand there itself. */
data class Not(val value: Any?)

/**
 * Documents that are found by words and by meaning: the SQLite file of `msdc search` and `msdc.open_index`, with the same
 * answers. One made on a workstation is opened as it is, and one made here opens there.
 *
 *     val index = SearchIndex.fromAssets(context, "notes.sqlite", encoder, BundledSQLiteDriver())
 *     index.add(listOf(Document("n1", "The car is on level 2.", metadata = """{"year": 2026}""")))
 *     val found = index.search("Wo ist das Auto?", where = mapOf("year" to Pair(2026, null)))
 *
 * The driver is `BundledSQLiteDriver` of `androidx.sqlite:sqlite-bundled`: Android's own SQLite has no FTS5. Safe to share
 * between threads; the encoder is the caller's and stays open. Without an encoder an index of any model is searched by its
 * words, until [rebuild] encodes its documents.
 */
class SearchIndex private constructor(
    private val path: String,
    @Volatile private var encoder: SentenceEncoder?,
    private val db: SQLiteConnection
) : Closeable {
    private val lock = ReentrantLock()
    private var vectors = encoder?.let { IndexVectors(path, it.width) }
    private var compared: String? = null // the file's model, when the encoder was compared with it
    private var closed = false

    /** Number of documents. */
    suspend fun count(): Int = transaction("DEFERRED") { if (isEmpty()) 0 else size() }

    /**
     * Adds [documents] and returns their number; an id that is there already is an error. They are written in blocks of
     * 256: what was added before an error or a cancellation stays.
     *
     * @throws IllegalArgumentException an id that is there, a document without text, metadata that is no JSON object.
     */
    suspend fun add(documents: List<Document>): Int = put(documents, replace = false)

    /** [add] that replaces documents of the same id; of one id in [documents] the last stays. */
    suspend fun update(documents: List<Document>): Int = put(documents, replace = true)

    /** The ids of all documents, in the order in which they were added. */
    suspend fun ids(): List<String> =
        transaction("DEFERRED") { if (isEmpty()) emptyList() else db.values(sql("ids")) { it.getText(0) } }

    /** The document of an [id]; null without one. */
    suspend fun get(id: String): Document? = transaction("DEFERRED") {
        if (isEmpty()) null else db.values(sql("document"), id) { document(it) }.singleOrNull()
    }

    /** Removes documents by id; ids that are not there are left alone. Returns how many were removed. */
    suspend fun remove(ids: Collection<String>): Int =
        transaction("IMMEDIATE") { if (isEmpty()) 0 else removed(ids) }.also { locked { checkpoint() } }

    private fun removed(ids: Collection<String>): Int = db.removeDocuments(path, json(ids))

    private suspend fun put(documents: List<Document>, replace: Boolean): Int = withContext(Dispatchers.IO) {
        for (one in documents) {
            require(one.text.isNotBlank()) { "document \"${one.id}\" has no text" }
            json(one.id)
        }
        val encoder = requireEncoder()
        for (block in documents.chunked(BLOCK)) {
            val kept = if (replace) block.associateBy { it.id }.values.toList() else block
            val made = kept.map {
                ensureActive()
                encoder.passages(it.title, it.text)
            }
            transaction("IMMEDIATE") {
                create(encoder)
                requireModel(encoder)
                if (replace) removed(kept.map { it.id })
                val writer = BlockWriter(db, path)
                kept.zip(made) { one, passages -> parts(insert(one), passages, encoder.width).forEach(writer::add) }
                writer.finish()
            }
        }
        locked { checkpoint() }
        documents.size
    }

    /** The tables, created with the first documents. */
    private fun create(encoder: SentenceEncoder) {
        if (!isEmpty()) return
        db.runAll("schema")
        db.run(sql("add_facts"), encoder.source, encoder.name, encoder.source, encoder.cosines)
    }

    /** Writes a document and its words; returns its row. */
    private fun insert(one: Document): Long {
        val (title, text) = listOf(one.title, one.text).map { utf8(core.searchWords(SentenceEncoder.utf8(it))) }
        db.run(sql("add_document"), one.id, one.text, one.title, one.metadata, crc(one), form(title, text))
        val row = db.values("SELECT last_insert_rowid()") { it.getLong(0) }.single()
        db.run(sql("add_words"), row, title, text)
        return row
    }

    private fun parts(row: Long, passages: ByteBuffer, width: Int): List<Passage> = buildList {
        while (passages.hasRemaining()) {
            val (start, end) = listOf(passages.int.toLong(), passages.int.toLong())
            val scale = passages.float.toDouble().takeIf { it != 0.0 }
            val vector = scale?.let { ByteArray(width).also { passages.get(it) } }
            add(Passage(row, start, end, scale, vector))
        }
    }

    // --- another model ------------------------------------------------------------------------------------------------

    private fun requireEncoder(): SentenceEncoder =
        checkNotNull(encoder) { "$path: opened without an encoder, which only words need not" }

    /** Compares the model again if another connection has rebuilt the file since. */
    private fun requireModel(encoder: SentenceEncoder) {
        val model = db.values(sql("model")) { it.getText(0) }.singleOrNull()
        if (model == compared) return
        if (rebuildState(encoder) != REBUILT) otherModel("$path: made with another model meanwhile")
        compared = model
        vectors?.expire()
    }

    private fun rebuildState(encoder: SentenceEncoder) =
        db.values(sql("rebuild_state"), encoder.source) { it.getText(0) }.single()

    private fun isRebuilt(encoder: SentenceEncoder) = when (rebuildState(encoder)) {
        REBUILT -> true
        REBUILDING -> false
        else -> throw EncoderException(EncoderException.Kind.OTHER_MODEL, "$path: being rebuilt with another model")
    }

    /**
     * Encodes all documents again with [encoder], for an index of another model; it is one of this model then, and has this
     * encoder. Until the end it stays an index of its former model: searches by words go on, also in other processes. What
     * was interrupted or cancelled continues with the next call. An index of this model already is left as it is.
     *
     *     val index = try { SearchIndex.open(file, encoder, driver) } catch (e: EncoderException) {
     *         if (e.kind != EncoderException.Kind.OTHER_MODEL) throw e
     *         SearchIndex.open(file, null, driver).also { scope.launch { it.rebuild(encoder) } }
     *     }
     *
     * @param progress is called with the number of documents that are encoded so far, and of all.
     * @return the number of documents that were encoded.
     */
    suspend fun rebuild(
        encoder: SentenceEncoder, progress: (done: Int, total: Int) -> Unit = { _, _ -> }
    ): Int = withContext(Dispatchers.IO) {
        var count = 0
        val begun = transaction("DEFERRED") { !isEmpty() && rebuildState(encoder) != REBUILT }
        if (begun) transaction("IMMEDIATE") {
            db.runAll("create_rebuilt")
            db.run(sql("begin_rebuild"), encoder.source)
            db.run(sql("add_rebuild"), encoder.source)
        }
        var finished = !begun
        while (!finished) {
            val documents = transaction("DEFERRED") {
                if (isRebuilt(encoder)) emptyMap() else nextRebuilt(BLOCK.toLong())
            }
            val passages = documents.mapValues { (_, one) ->
                ensureActive()
                encoder.passages(one.title, one.text)
            }
            finished = transaction("IMMEDIATE") {
                if (isRebuilt(encoder)) return@transaction true // by another process
                for (row in db.values(sql("unbuilt"), json(documents.keys)) { it.getLong(0) }) {
                    val parts = parts(row, passages.getValue(row), encoder.width)
                    for (part in parts) db.run(sql("add_rebuilt"), *part.values())
                    count++
                }
                val (done, total) = db.values(sql("count_rebuilt")) { listOf(it.getLong(0), it.getLong(1)) }.single()
                if (documents.isNotEmpty()) progress(done.toInt(), total.toInt())
                if (nextRebuilt(1).isNotEmpty()) return@transaction false
                db.replacePassages(path)
                db.run(sql("add_facts"), encoder.source, encoder.name, encoder.source, encoder.cosines)
                true
            }
        }
        locked {
            this@SearchIndex.encoder = encoder
            vectors = IndexVectors(path, encoder.width)
            if (!isEmpty()) compared = db.values(sql("model")) { it.getText(0) }.single()
            checkpoint()
        }
        count
    }

    private fun nextRebuilt(most: Long): Map<Long, Document> =
        db.values(sql("next_rebuilt"), most) { it.getLong(0) to document(it, 1) }.toMap()

    // --- search -------------------------------------------------------------------------------------------------------

    /**
     * The [top] documents nearest to [query], best first, behind the first [offset]. The last word of a query without a
     * blank behind it also matches words that begin with it. If no document has a word of the query, the most similar
     * words of the index are looked for.
     *
     * @param threshold documents have at least this cosine, or every word of the query.
     * @param where required metadata by name: a value, a collection of alternatives, a `Pair` of least and most (null:
     * no bound), null for no value, or [Not] for none of these. Numbers compare as numbers, dates and times as such,
     * texts as text. Other values are taken by `toString`, which is ISO for java.time's `LocalDate`, `LocalDateTime`,
     * `OffsetDateTime` and `Instant`; a `java.util.Date` must become an `Instant` (`toInstant`).
     * @param mode without an encoder BOTH is by words.
     * @param prompt is put before the query; null takes the bundle's default.
     * @param distinct documents with the same words are a single hit, the best.
     * @param operators "words in quotes" come first, and documents with -excluded words are no hits; else quotes and
     * minus are text.
     * @throws IllegalArgumentException an empty query, a name in [where] that no document has.
     */
    suspend fun search(
        query: String,
        top: Int = 5,
        mode: Mode = Mode.BOTH,
        threshold: Float? = null,
        where: Map<String, Any?> = emptyMap(),
        prompt: String? = null,
        offset: Int = 0,
        distinct: Boolean = true,
        operators: Boolean = true
    ): List<Found> {
        require(query.isNotBlank()) { "a query is empty" }
        require(top >= 1) { "top: $top, expected at least 1" }
        require(offset >= 0) { "offset: $offset, expected at least 0" }
        val filter = if (where.isEmpty()) null else conditions(where)
        val asked = utf8(core.searchPlan(SentenceEncoder.utf8(query), operators))
        val plan = locked { db.plan(asked) }
        val encoder = if (mode == Mode.VECTORS) requireEncoder() else encoder
        val ranking = if (encoder == null) Mode.WORDS else mode
        val vector = encoder?.takeIf { ranking != Mode.WORDS && it.canRead(plan.text) }?.encode(plan.text, prompt)
        return transaction("DEFERRED") { // one state of the file for the whole search
            if (isEmpty()) return@transaction emptyList()
            val allowed = allowed(filter, plan)
            val near = vector?.let {
                requireModel(encoder)
                vectors!!.refresh(db)
                vectors!!.compare(it)
            }
            val (matches, others, matched) = candidates(plan, near, ranking, offset.toLong() + top, allowed)
            val inside = allowed?.let(::json)
            val ranked = db.values(sql("ranked"), matches, others, ranking.name.lowercase(), threshold) {
                Ranked(it.getLong(0), it.getDouble(1), if (it.isNull(2)) null else it.getDouble(2), it.getDouble(3))
            }
            val page = if (distinct) ranked.asSequence().distinctBy { form(it.row) } else ranked.asSequence()
            page.drop(offset).take(top).map { scores ->
                val count = if (distinct) db.values(sql("equal"), scores.row, inside) { it.getLong(0) }.single() else 1L
                hit(scores, count.toInt(), matched.terms, ranking, near.takeIf { scores.cosine != null })
            }.toList()
        }
    }

    private class Ranked(val row: Long, val score: Double, val cosine: Double?, val words: Double)

    /** What a document has in common with those with the same words. */
    private fun form(row: Long) = db.values(sql("form"), row) { it.getLong(0) }.single()

    /** The documents that a filter and the excluded words leave; null without either. */
    private fun allowed(filter: String?, plan: Plan): Set<Long>? {
        if (filter == null && !plan.excludes) return null
        val allowed = db.values(sql("filter"), filter ?: "[]", plan.json) { it.getLong(0) }.toSet()
        if (allowed.isEmpty() && filter != null) db.select(sql("unknown"), filter) {
            throw IllegalArgumentException("no column ${it.getText(0)} to filter by (columns: ${it.getText(1)})")
        }
        return allowed
    }

    /**
     * The documents that match by words and the others that are nearest by vectors, both as `ranked` takes them, and the
     * plan by which they match. As many for every page of the first 1,000, so that pages agree.
     */
    private fun candidates(
        plan: Plan, cosines: Cosines?, mode: Mode, hits: Long, allowed: Set<Long>?
    ): Triple<String, String, Plan> {
        var most = CANDIDATES.toLong()
        while (most < hits) most *= 4
        val near = cosines?.nearest(minOf(most, Int.MAX_VALUE.toLong()).toInt(), allowed).orEmpty()
        var matched = plan
        val words = HashMap<Long, List<Number>>()
        if (mode != Mode.VECTORS && plan.hasWords) {
            val limits = arrayOf<Any?>(allowed?.let(::json), most, json(near))
            val match = { it: SQLiteStatement ->
                words[it.getLong(0)] = listOf(it.getDouble(1), it.getDouble(2), it.getLong(3), it.getLong(4))
            }
            db.select(sql("words"), plan.json, *limits, row = match)
            if (words.isEmpty()) {
                db.run(sql("vocabulary"))
                db.values(sql("similar"), plan.json) { it.getText(0) }.firstOrNull()?.let { similar ->
                    matched = db.plan(similar)
                    db.select(sql("words"), similar, *limits, row = match)
                }
            }
        }
        val matches = words.map { (row, match) -> listOf<Any?>(row, cosines?.ofDocument(row)?.toDouble()) + match }
        val others = near.filter { it !in words }.associateWith { cosines?.ofDocument(it)?.toDouble() }
        return Triple(json(matches), json(others), matched)
    }

    private fun hit(scores: Ranked, count: Int, terms: String, mode: Mode, cosines: Cosines?): Found {
        val document = db.values(sql("hit"), scores.row) { document(it) }.singleOrNull()
            ?: damaged("$path: damaged (words of a document that is not there)")
        val passages = db.values(sql("passages_of"), scores.row) { row -> LongArray(4) { row.getLong(it) } }
        if (passages.isEmpty() || passages.any { (_, start, end, crc) -> crc != crc(scores.row, start, end) }) {
            damaged("$path: damaged (the passages of document ${document.id})")
        }
        val none = if (mode == Mode.VECTORS) -2f else 0f
        val near = FloatArray(passages.size) { cosines?.ofPassage(passages[it][0]) ?: none }
        val (starts, ends) = listOf(1, 2).map { side -> LongArray(passages.size) { passages[it][side] } }
        val text = document.text
        val shown =
            core.searchShow(text.toByteArray(), terms.toByteArray(), starts, ends, near, mode == Mode.VECTORS)
        try {
            val start = text.offsetByCodePoints(0, starts[shown[0]].toInt())
            val end = text.offsetByCodePoints(start, (ends[shown[0]] - starts[shown[0]]).toInt())
            var (point, at) = listOf(0, 0)
            val sides = shown.drop(1).map { side ->
                at = text.offsetByCodePoints(at, side - point)
                point = side
                at
            }
            val matches = sides.chunked(2) { (first, last) -> first until last }
            return Found(document, scores.score, scores.cosine ?: 0.0, scores.words, start, end, matches, count)
        } catch (outside: IndexOutOfBoundsException) {
            damaged("$path: damaged (a passage outside document ${document.id})", outside)
        }
    }

    /** A document of four columns from [first] on, whose checksum is the next one. */
    private fun document(row: SQLiteStatement, first: Int = 0): Document {
        val one = Document(row.getText(first), row.getText(first + 1), row.getText(first + 2), row.getText(first + 3))
        if (row.getLong(first + 4) != crc(one)) damaged("$path: damaged (document ${one.id})")
        return one
    }

    // --- the file's life ----------------------------------------------------------------------------------------------

    /**
     * Writes a copy of the index to the new [file], while it is used: of one state, without unused space. A copy of the
     * index's own file may lack what is still in its write-ahead log.
     *
     * @throws IllegalArgumentException [file] exists.
     */
    suspend fun backup(file: File) = locked {
        require(!file.exists()) { "$file exists already" }
        val stage = File(file.path + ".partial")
        try {
            stage.delete()
            RandomAccessFile(stage, "rw").use {
                if (!isEmpty()) db.run("VACUUM INTO ?", stage.path)
                it.fd.sync()
            }
            if (!stage.renameTo(file)) throw IOException("cannot move the copy to $file")
        } catch (failure: IOException) {
            throw EncoderException(EncoderException.Kind.IO, "$file: ${failure.message}", failure)
        } finally {
            stage.delete()
        }
    }

    /** Gives the space of removed documents back to the storage. Needs about the size of the index as free space. */
    suspend fun compact() = locked {
        if (!isEmpty()) {
            db.run("INSERT INTO words (words) VALUES ('optimize')")
            db.run("VACUUM")
        }
        checkpoint()
    }

    override fun close() = lock.withLock {
        if (!closed) {
            closed = true
            checkpoint()
            db.close()
        }
    }

    /**
     * Moves what is in the write-ahead log to the file, so that a copy of the file alone has it. Nothing is lost where
     * another connection prevents it: the log is read together with the file.
     */
    private fun checkpoint() {
        runCatching {
            db.run("PRAGMA busy_timeout=0")
            db.run("PRAGMA wal_checkpoint(TRUNCATE)")
        }
        runCatching { db.run("PRAGMA busy_timeout=$LOCK_MS") }
    }

    // --- SQLite -------------------------------------------------------------------------------------------------------

    private suspend fun <T> locked(work: () -> T): T = withContext(Dispatchers.IO) {
        lock.withLock {
            if (closed) throw EncoderException(EncoderException.Kind.CLOSED, "the index is closed")
            named(path, work)
        }
    }

    private suspend fun <T> transaction(kind: String, work: () -> T): T = locked {
        if (kind == "IMMEDIATE") {
            vectors?.expire()
            // Writers block no reader then; later if the file is new or another connection has it open.
            if (!isEmpty()) runCatching { db.run("PRAGMA journal_mode=WAL") }
        }
        db.run("BEGIN $kind")
        try {
            work().also { db.run("COMMIT") }
        } catch (failure: Throwable) {
            runCatching { db.run("ROLLBACK") }
            throw failure
        }
    }

    private fun isEmpty() = db.values("SELECT count(*) FROM sqlite_master") { it.getLong(0) }.single() == 0L

    private fun size() = db.values("SELECT count(*) FROM documents") { it.getLong(0).toInt() }.single()

    /**
     * Compares the whole file with its checksums, as [open] does with `check`. What a search reads is compared in any case.
     *
     * @throws EncoderException of the kind DAMAGED.
     */
    suspend fun check() = locked { check(whole = true) }

    private fun check(whole: Boolean) {
        if (isEmpty()) {
            // Tables are written before the write-ahead log begins: a file without them is new, or a cut one.
            val size = File(path).length()
            val pages = db.values("PRAGMA page_count") { it.getLong(0) }.single()
            if (size > 0 && pages > 0) damaged("$path: damaged ($size bytes without a table)")
            return
        }
        val (problem, kind) = db.values(sql("check"), encoder?.source) { row ->
            List(2) { if (row.isNull(it)) null else row.getText(it) }
        }.single()
        if (kind == "version") throw EncoderException(EncoderException.Kind.UNSUPPORTED, "$path: $problem")
        if (whole) checkAll()
        if (kind == "model") otherModel("$path: $problem")
        compared = db.values(sql("model")) { it.getText(0) }.singleOrNull()
    }

    private fun checkAll() {
        db.values(sql("damage")) { it.getText(0) }.firstOrNull()?.let { damaged("$path: damaged ($it)") }
        db.select(sql("check_documents")) { document(it) }
        db.select(sql("check_passages")) {
            if (crc(it.getLong(1), it.getLong(2), it.getLong(3)) != it.getLong(4)) {
                damaged("$path: damaged (passage ${it.getLong(0)})")
            }
        }
        db.select(sql("blocks")) { Block.read(path, it) }
        try {
            db.run("PRAGMA busy_timeout=0")
            db.run(sql("check_words"))
        } catch (failure: RuntimeException) {
            // Another process writes, which has checked the file.
            if ("locked" !in failure.message.orEmpty()) throw failure
        } finally {
            db.run("PRAGMA busy_timeout=$LOCK_MS")
        }
    }

    companion object {
        private val CONSTANTS = Regex("[0-9]+").findAll(sql("constants")).map { it.value.toInt() }.toList()
        private val BLOCK = CONSTANTS[0]
        private val CANDIDATES = CONSTANTS[1]
        private const val LOCK_MS = 60_000
        private const val REBUILT = "rebuilt" // states of the statement rebuild_state
        private const val REBUILDING = "rebuilding"

        private fun otherModel(problem: String): Nothing = throw EncoderException(
            EncoderException.Kind.OTHER_MODEL, "$problem; open it without an encoder and let rebuild encode its documents again"
        )

        /**
         * The index in [file], made if it is not there. Without an [encoder] one of any model, for searches by words and
         * for [rebuild].
         *
         * @param check compares the whole file with its checksums, which takes the longer the more it has; without, what is
         * read later is compared. An app may leave it out where it has opened the file before.
         * @throws EncoderException of the kind OTHER_MODEL: an intact index of another model than that of [encoder].
         */
        suspend fun open(
            file: File, encoder: SentenceEncoder?, driver: SQLiteDriver, check: Boolean = true
        ): SearchIndex =
            withContext(Dispatchers.IO) {
                named(file.path) {
                    // Shorter than its header: SQLite would take the shortest for a new file.
                    if (file.length() in 1..99) damaged("${file.path}: damaged (${file.length()} bytes)")
                    // SQLite would delete the log next to a file that is missing or empty, and what is in it.
                    val log = File(file.path + "-wal")
                    if (file.length() == 0L && log.length() > 0) {
                        val cure = "put back the file that belongs to it"
                        damaged("${file.path}: empty next to its write-ahead log ${log.name}; $cure")
                    }
                    val db = driver.open(file.path)
                    try {
                        for (set in listOf("busy_timeout=$LOCK_MS", "foreign_keys=ON")) db.run("PRAGMA $set")
                        SearchIndex(file.path, encoder, db).also { it.check(check) }
                    } catch (failure: Throwable) {
                        db.close()
                        throw failure
                    }
                }
            }

        /**
         * The index that the app ships as the asset [name]; the first call copies it to the app's files, where it can be
         * changed. Another name brings another one.
         */
        suspend fun fromAssets(
            context: Context, name: String, encoder: SentenceEncoder?, driver: SQLiteDriver, check: Boolean = true
        ): SearchIndex {
            val file = File(context.noBackupFilesDir, "msdc-search/$name")
            withContext(Dispatchers.IO) {
                val stage = File(file.path + ".partial")
                try {
                    // The copy is on the disk before it has its name.
                    Install.locked(file) {
                        if (!file.isFile) {
                            context.assets.open(name).use { input ->
                                stage.outputStream().use {
                                    input.copyTo(it)
                                    it.fd.sync()
                                }
                            }
                            if (!stage.renameTo(file)) throw IOException("cannot move it to $file")
                        }
                    }
                } catch (failure: IOException) {
                    throw EncoderException(EncoderException.Kind.IO, "index $name: ${failure.message}", failure)
                }
            }
            return open(file, encoder, driver, check)
        }

        // A document's checksum: CRC-32 of its fields with zeros between.
        private fun crc(one: Document): Long = crc("${one.id}\u0000${one.text}\u0000${one.title}\u0000${one.metadata}")

        // A number that documents with the same stored words have in common.
        private fun form(title: String, text: String): Long {
            val stored = "$title\u0000$text"
            return crc(stored) * (1L shl 20) + stored.toByteArray().size % (1 shl 20)
        }

        private fun utf8(bytes: ByteArray) = String(bytes, Charsets.UTF_8)
    }
}
