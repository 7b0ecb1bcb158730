package org.msdc.encoder

import android.content.Context
import androidx.sqlite.SQLiteConnection
import androidx.sqlite.SQLiteDriver
import androidx.sqlite.SQLiteStatement
import java.io.Closeable
import java.io.File
import java.io.IOException
import java.nio.ByteBuffer
import java.nio.ByteOrder
import java.util.concurrent.locks.ReentrantLock
import kotlin.concurrent.withLock
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.ensureActive
import kotlinx.coroutines.withContext

/** A text with its id, a title that may be empty, and a JSON object of values to filter by. */
data class Document(val id: String, val text: String, val title: String = "", val metadata: String = "{}")

/**
 * A document that was found. [score] ranks it: bm25 of its words + 20 x the cosine of its best passage, which is
 * `document.text.substring(start, end)`.
 */
data class Found(
    val document: Document,
    val score: Double,
    val cosine: Double,
    val words: Double,
    val start: Int,
    val end: Int
) {
    val passage: String get() = document.text.substring(start, end)
}

/** Rank by the words (BM25), by the vectors (cosine of the best passage), or by the sum of both. */
enum class Mode { WORDS, VECTORS, BOTH }

/**
 * Documents that are found by words and by meaning: the SQLite file of `msdc search` and `msdc.open_index`, with the same
 * answers. One made on a workstation is opened as it is, and one made here opens there.
 *
 *     val index = SearchIndex.fromAssets(context, "notes.sqlite", encoder, BundledSQLiteDriver())
 *     index.add(listOf(Document("n1", "The car is on level 2.", metadata = """{"year": 2026}""")))
 *     val found = index.search("Wo ist das Auto?", where = mapOf("year" to Pair(2026, null)))
 *
 * The driver is `BundledSQLiteDriver` of `androidx.sqlite:sqlite-bundled`: Android's own SQLite has no FTS5. Safe to share
 * between threads; the encoder is the caller's and stays open.
 */
class SearchIndex private constructor(
    private val path: String,
    private val encoder: SentenceEncoder,
    private val db: SQLiteConnection
) : Closeable {
    private val lock = ReentrantLock()
    private var closed = false

    // Passages that have a vector: row, document, and 8-bit numbers with one scale each. Read again after each write.
    private var version = -1L
    private var rows = LongArray(0)
    private var owners = LongArray(0)
    private var scales = FloatArray(0)
    private var codes = ByteArray(0)

    /** Number of documents. */
    suspend fun count(): Int = transaction("DEFERRED") {
        if (tables().isEmpty()) 0 else number("SELECT count(*) FROM documents").toInt()
    }

    /**
     * Adds [documents] and returns their number; an id that is there already is an error. They are written in blocks of
     * 256: what was added before an error or a cancellation stays.
     *
     * @throws IllegalArgumentException an id that is there, or a document without text.
     */
    suspend fun add(documents: List<Document>): Int = put(documents, replace = false)

    /** [add] that replaces documents of the same id. */
    suspend fun update(documents: List<Document>): Int = put(documents, replace = true)

    /** Removes documents by id; ids that are not there are left alone. Returns how many were removed. */
    suspend fun remove(ids: Collection<String>): Int = transaction("IMMEDIATE") {
        version = -1
        if (tables().isEmpty()) 0 else ids.toSet().sumOf { id -> removed(id) }
    }

    private fun removed(id: String): Int {
        select("DELETE FROM documents WHERE key = ?", id) {}
        return number("SELECT changes()").toInt()
    }

    private suspend fun put(documents: List<Document>, replace: Boolean): Int = withContext(Dispatchers.IO) {
        for (one in documents) require(one.text.isNotBlank()) { "document \"${one.id}\" has no text" }
        for (block in documents.chunked(BLOCK)) {
            val titled = block.any { it.title.isNotEmpty() }
            val made = block.map {
                ensureActive()
                encoder.passages(it.title, it.text, titled)
            }
            transaction("IMMEDIATE") {
                version = -1
                create()
                if (replace) block.forEach { removed(it.id) }
                block.zip(made) { one, passages -> insert(one, passages) }
            }
        }
        documents.size
    }

    /** The tables, created with the first documents. */
    private fun create() {
        if (tables().isNotEmpty()) return
        for (statement in SCHEMA) select(statement) {}
        val facts = mapOf("format" to FORMAT, "model" to encoder.source, "name" to encoder.name, "source" to encoder.source)
        for ((name, value) in facts) select("INSERT INTO facts VALUES (?, ?)", name, value) {}
    }

    private fun insert(one: Document, passages: ByteBuffer) {
        select("INSERT INTO documents (key, title, text, metadata, crc) VALUES (?, ?, ?, ?, ?)",
            one.id, one.title, one.text, one.metadata, crc(one)) {}
        val row = number("SELECT last_insert_rowid()")
        select("INSERT INTO words (rowid, title, text) VALUES (?, ?, ?)", row, words(one.title), words(one.text)) {}
        while (passages.hasRemaining()) {
            val (start, end) = listOf(passages.int, passages.int)
            val scale = passages.float
            val vector = if (scale == 0f) null else ByteArray(encoder.width).also { passages.get(it) }
            select("INSERT INTO passages (document, start, end, scale, vector, crc) VALUES (?, ?, ?, ?, ?, ?)",
                row, start, end, scale.takeIf { vector != null }, vector,
                vector?.let { NativeCore.crc32(row.toInt(), it).toLong() and MASK }) {}
        }
    }

    /**
     * The [top] documents nearest to [query], best first.
     *
     * @param threshold documents have at least this cosine.
     * @param where values that the metadata must have: one, a list of them, or a `Pair` of least and most (null: no bound).
     * @param prompt is put before the query; null takes the bundle's default.
     */
    suspend fun search(
        query: String,
        top: Int = 5,
        mode: Mode = Mode.BOTH,
        threshold: Float? = null,
        where: Map<String, Any> = emptyMap(),
        prompt: String? = null
    ): List<Found> {
        require(query.isNotBlank()) { "a query is empty" }
        require(top >= 1) { "top: $top, expected at least 1" }
        val vector = if (mode != Mode.WORDS && encoder.canRead(query)) encoder.encode(query, prompt) else null
        return transaction("DEFERRED") {
            if (tables().isEmpty()) emptyList() else found(query, vector, top, mode, threshold, where)
        }
    }

    private fun found(
        query: String, vector: FloatArray?, top: Int, mode: Mode, threshold: Float?, where: Map<String, Any>
    ): List<Found> {
        refresh()
        val (kept, values) = conditions(where)
        val filtered = "SELECT id FROM documents WHERE $kept"
        val most = maxOf(CANDIDATES, 4 * top)
        val cosines = vector?.let { NativeCore.int8Cosines(it, codes, scales) } ?: FloatArray(0)
        // Document -> the place of its best passage.
        val best = LinkedHashMap<Long, Int>()
        for (at in cosines.indices) {
            val before = best[owners[at]]
            if (before == null || cosines[at] > cosines[before]) best[owners[at]] = at
        }
        if (where.isNotEmpty()) {
            val allowed = HashSet<Long>()
            select(filtered, *values) { allowed += it.getLong(0) }
            best.keys.retainAll(allowed)
        }
        val near = best.entries.sortedByDescending { cosines[it.value] }.take(most).map { it.key }
        val words = HashMap<Long, Double>()
        val expression = if (mode == Mode.VECTORS) "" else words(query, isQuery = true)
        if (expression.isNotEmpty()) {
            val ranked = "SELECT rowid, -rank FROM words WHERE words MATCH ?"
            val inside = if (where.isEmpty()) "" else " AND rowid IN ($filtered)"
            select("$ranked$inside ORDER BY rank LIMIT ?", expression, *values, most) {
                words[it.getLong(0)] = it.getDouble(1)
            }
            if (words.size == most) {
                // Below the best by words: bm25 of those that are near in meaning.
                val others = near.filter { it !in words }.joinToString(",", "[", "]")
                select("$ranked AND rowid IN (SELECT value FROM json_each(?))", expression, others) {
                    words[it.getLong(0)] = it.getDouble(1)
                }
            }
        }
        val weight = if (mode == Mode.BOTH) WEIGHT else 1.0
        fun cosine(row: Long) = best[row]?.let { cosines[it].toDouble() }
        return (near.toSet() + words.keys)
            .filter { threshold == null || mode == Mode.WORDS || (cosine(it) ?: -1.0) >= threshold }
            .map { Pair(it, rounded((words[it] ?: 0.0) + weight * (cosine(it) ?: 0.0))) }
            .sortedWith(compareBy({ -it.second }, { it.first }))
            .take(top)
            .map { (row, score) -> hit(row, score, cosine(row) ?: 0.0, words[row] ?: 0.0, best[row]) }
    }

    private fun hit(row: Long, score: Double, cosine: Double, words: Double, place: Int?): Found {
        var one: Document? = null
        select("SELECT key, text, title, metadata, crc FROM documents WHERE id = ?", row) {
            val read = Document(it.getText(0), it.getText(1), it.getText(2), it.getText(3))
            if (it.getLong(4) != crc(read)) damaged("$path: damaged (document ${read.id})")
            one = read
        }
        val document = one ?: damaged("$path: damaged (words of a document that is not there)")
        var span = Pair(0, document.text.length)
        if (place != null) {
            select("SELECT start, end FROM passages WHERE id = ?", rows[place]) { span = Pair(it.getLong(0).toInt(), it.getLong(1).toInt()) }
            span = try {
                val start = document.text.offsetByCodePoints(0, span.first)
                Pair(start, document.text.offsetByCodePoints(start, span.second - span.first))
            } catch (outside: IndexOutOfBoundsException) {
                damaged("$path: damaged (a passage outside document ${document.id})", outside)
            }
        }
        return Found(document, score, rounded(cosine), rounded(words), span.first, span.second)
    }

    private fun refresh() {
        val now = number("PRAGMA data_version")
        if (now == version) return
        val count = number("SELECT count(*) FROM passages WHERE vector IS NOT NULL").toInt()
        val width = encoder.width
        if (count.toLong() * width > Int.MAX_VALUE) damaged("$path: $count passages are too many for this device")
        rows = LongArray(count)
        owners = LongArray(count)
        scales = FloatArray(count)
        codes = ByteArray(count * width)
        var at = 0
        select("SELECT id, document, scale, vector, crc FROM passages WHERE vector IS NOT NULL ORDER BY id") {
            rows[at] = it.getLong(0)
            owners[at] = it.getLong(1)
            scales[at] = it.getDouble(2).toFloat()
            val vector = it.getBlob(3)
            val crc = NativeCore.crc32(owners[at].toInt(), vector).toLong() and MASK
            if (vector.size != width || crc != it.getLong(4)) damaged("$path: damaged (the vector of passage ${rows[at]})")
            vector.copyInto(codes, at++ * width)
        }
        version = now
    }

    override fun close() = lock.withLock {
        closed = true
        db.close()
    }

    // --- SQLite -------------------------------------------------------------------------------------------------------

    private suspend fun <T> transaction(kind: String, work: () -> T): T = withContext(Dispatchers.IO) {
        lock.withLock {
            if (closed) throw EncoderException(EncoderException.Kind.CLOSED, "the index is closed")
            named(path) {
                select("BEGIN $kind") {}
                try {
                    work().also { select("COMMIT") {} }
                } catch (failure: Throwable) {
                    runCatching { select("ROLLBACK") {} }
                    throw failure
                }
            }
        }
    }

    private fun select(sql: String, vararg values: Any?, row: (SQLiteStatement) -> Unit) = db.select(sql, values, row)

    private fun number(sql: String): Long = db.values(sql) { it.getLong(0) }.single()

    private fun text(sql: String): String = db.values(sql) { it.getText(0) }.single()

    private fun tables(): List<String> = db.tables()

    private fun check() {
        val found = tables()
        if (found.isEmpty()) return
        if (!found.containsAll(listOf("facts", "documents", "passages", "words"))) damaged("$path: not a search index")
        val said = text("PRAGMA quick_check(1)")
        if (said != "ok") damaged("$path: damaged (${said.take(100)})")
        val facts = db.values("SELECT name, value FROM facts") { Pair(it.getText(0), it.getText(1)) }.toMap()
        if (facts["format"] != FORMAT) damaged("$path: an index of another version of msdc")
        if (encoder.source != facts["source"] && encoder.source != facts["model"]) {
            damaged("$path: made with another ${facts["name"]} than this ${encoder.name}")
        }
    }

    companion object {
        private const val FORMAT = "2"
        private const val BLOCK = 256 // documents that are encoded and written together
        private const val CANDIDATES = 1000 // documents of each kind that are ranked together
        private const val WEIGHT = 20.0
        private const val MASK = 0xFFFFFFFFL
        private val SCHEMA = listOf(
            "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
            "CREATE TABLE documents (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, title TEXT NOT NULL, " +
                "text TEXT NOT NULL, metadata TEXT NOT NULL, crc INTEGER NOT NULL)",
            "CREATE TABLE passages (id INTEGER PRIMARY KEY AUTOINCREMENT, document INTEGER NOT NULL REFERENCES documents " +
                "ON DELETE CASCADE, start INTEGER NOT NULL, end INTEGER NOT NULL, scale REAL, vector BLOB, crc INTEGER)",
            "CREATE INDEX passages_of_document ON passages (document)",
            "CREATE VIRTUAL TABLE words USING fts5(title, text, tokenize='ascii')",
            "CREATE TRIGGER removed AFTER DELETE ON documents BEGIN DELETE FROM words WHERE rowid = old.id; END"
        )

        /** The index in [file], made if it is not there. */
        suspend fun open(file: File, encoder: SentenceEncoder, driver: SQLiteDriver): SearchIndex =
            withContext(Dispatchers.IO) {
                named(file.path) {
                    val db = driver.open(file.path)
                    try {
                        for (set in listOf("busy_timeout=60000", "journal_mode=WAL", "foreign_keys=ON")) {
                            db.select("PRAGMA $set", emptyArray()) {}
                        }
                        SearchIndex(file.path, encoder, db).also { it.check() }
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
            context: Context, name: String, encoder: SentenceEncoder, driver: SQLiteDriver
        ): SearchIndex {
            val file = File(context.noBackupFilesDir, "msdc-search/$name")
            withContext(Dispatchers.IO) {
                if (file.isFile) return@withContext
                val stage = File(file.path + ".partial")
                try {
                    stage.parentFile?.mkdirs()
                    context.assets.open(name).use { input -> stage.outputStream().use { input.copyTo(it) } }
                    if (!stage.renameTo(file)) throw IOException("cannot move it to $file")
                } catch (failure: IOException) {
                    throw EncoderException(EncoderException.Kind.IO, "index $name: ${failure.message}", failure)
                }
            }
            return open(file, encoder, driver)
        }

        // A document's checksum: CRC-32 of its fields with zeros between.
        private fun crc(one: Document): Long =
            NativeCore.crc32(0, "${one.id}\u0000${one.text}\u0000${one.title}\u0000${one.metadata}".toByteArray()).toLong() and MASK

        private fun rounded(number: Double): Double = Math.rint(number * 1e4) / 1e4

        /** The words of a text as the index stores them; of a query, FTS5's expression for any of them. */
        private fun words(text: String, isQuery: Boolean = false): String =
            String(NativeCore.searchWords(text.toByteArray(), isQuery), Charsets.UTF_8)

        /** SQL of a filter, as `conditions` of the Python package has it. */
        private fun conditions(where: Map<String, Any>): Pair<String, Array<Any?>> {
            val parts = mutableListOf("1")
            val values = mutableListOf<Any?>()
            for ((name, wanted) in where) {
                val path = "$.\"${name.replace("\"", "")}\""
                if (wanted is Pair<*, *>) {
                    for ((sign, bound) in listOf(">=" to wanted.first, "<=" to wanted.second)) {
                        if (bound == null) continue
                        parts += "CAST(json_extract(metadata, ?) AS REAL) $sign ?"
                        values.addAll(listOf(path, bound))
                    }
                } else {
                    val some = if (wanted is Collection<*>) wanted else listOf(wanted)
                    parts += "CAST(json_extract(metadata, ?) AS TEXT) IN (${some.joinToString(", ") { "?" }})"
                    values.add(path)
                    values.addAll(some.map { if (it is Boolean) (if (it) "1" else "0") else it.toString() })
                }
            }
            return Pair(parts.joinToString(" AND "), values.toTypedArray())
        }

        private fun SQLiteConnection.select(sql: String, values: Array<out Any?>, row: (SQLiteStatement) -> Unit) {
            val statement = prepare(sql)
            try {
                values.forEachIndexed { before, value ->
                    val at = before + 1
                    when (value) {
                        null -> statement.bindNull(at)
                        is String -> statement.bindText(at, value)
                        is ByteArray -> statement.bindBlob(at, value)
                        is Float, is Double -> statement.bindDouble(at, (value as Number).toDouble())
                        is Number -> statement.bindLong(at, value.toLong())
                        else -> throw IllegalArgumentException("a filter by a ${value::class.simpleName}")
                    }
                }
                while (statement.step()) row(statement)
            } finally {
                statement.close()
            }
        }

        private fun <T> SQLiteConnection.values(sql: String, value: (SQLiteStatement) -> T): List<T> =
            mutableListOf<T>().also { list -> select(sql, emptyArray()) { list += value(it) } }

        private fun SQLiteConnection.tables(): List<String> =
            values("SELECT name FROM sqlite_master WHERE type = 'table'") { it.getText(0) }

        /** SQLite's errors as one line. Their class depends on the driver. */
        private inline fun <T> named(path: String, work: () -> T): T = try {
            work()
        } catch (failure: RuntimeException) {
            val said = failure.message.orEmpty()
            when {
                failure is IllegalArgumentException || failure is kotlin.coroutines.cancellation.CancellationException ->
                    throw failure
                "UNIQUE constraint" in said -> throw IllegalArgumentException(
                    "$path: a document of this id is there already; use update", failure
                )
                "no such module: fts5" in said -> throw EncoderException(
                    EncoderException.Kind.UNSUPPORTED,
                    "$path: this SQLite has no FTS5; open the index with BundledSQLiteDriver of androidx.sqlite", failure
                )
                "malformed" in said || "not a database" in said -> damaged("$path: damaged ($said)", failure)
                else -> throw EncoderException(EncoderException.Kind.IO, "$path: $said", failure)
            }
        }
    }
}
