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

    /** Removes documents by id; ids that are not there are left alone. Returns how many were removed. */
    suspend fun remove(ids: Collection<String>): Int = transaction("IMMEDIATE") {
        version = -1
        if (isEmpty()) 0 else removed(ids)
    }

    private fun removed(ids: Collection<String>): Int {
        db.select(sql("remove"), json(ids)) {}
        return db.values("SELECT changes()") { it.getLong(0).toInt() }.single()
    }

    private suspend fun put(documents: List<Document>, replace: Boolean): Int = withContext(Dispatchers.IO) {
        for (one in documents) {
            require(one.text.isNotBlank()) { "document \"${one.id}\" has no text" }
            json(one.id)
        }
        for (block in documents.chunked(BLOCK)) {
            val kept = if (replace) block.associateBy { it.id }.values.toList() else block
            val made = kept.map {
                ensureActive()
                encoder.passages(it.title, it.text)
            }
            transaction("IMMEDIATE") {
                version = -1
                create()
                if (replace) removed(kept.map { it.id })
                kept.zip(made) { one, passages -> insert(one, passages) }
            }
        }
        documents.size
    }

    /** The tables, created with the first documents. */
    private fun create() {
        if (!isEmpty()) return
        for (statement in sql("schema").split(";\n").filter { it.isNotBlank() }) db.select(statement) {}
        db.select(sql("add_facts"), encoder.source, encoder.name, encoder.source) {}
    }

    private fun insert(one: Document, passages: ByteBuffer) {
        db.select(sql("add_document"), one.id, one.text, one.title, one.metadata, crc(one)) {}
        val row = db.values("SELECT last_insert_rowid()") { it.getLong(0) }.single()
        db.select(sql("add_words"), row, words(one.title), words(one.text)) {}
        while (passages.hasRemaining()) {
            val (start, end) = listOf(passages.int.toLong(), passages.int.toLong())
            val scale = passages.float.toDouble().takeIf { it != 0.0 }
            val vector = scale?.let { ByteArray(encoder.width).also { passages.get(it) } }
            db.select(sql("add_passage"), row, start, end, scale, vector, crc(row, start, end, scale, vector)) {}
        }
    }

    /**
     * The [top] documents nearest to [query], best first.
     *
     * @param threshold documents have at least this cosine.
     * @param where required metadata by name: a value, a list of them, or a `Pair` of least and most (null: no bound).
     * Numbers compare as numbers, texts as text (dates sort).
     * @param prompt is put before the query; null takes the bundle's default.
     * @throws IllegalArgumentException an empty query, a name in [where] that no document has.
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
            if (isEmpty()) emptyList() else found(query, vector, top, mode, threshold, where)
        }
    }

    private fun found(
        query: String, vector: FloatArray?, top: Int, mode: Mode, threshold: Float?, where: Map<String, Any>
    ): List<Found> {
        if (vector != null) refresh()
        val allowed = if (where.isEmpty()) null else allowed(where)
        val most = maxOf(CANDIDATES, 4 * top)
        val cosines = vector?.let { NativeCore.int8Cosines(it, codes, scales) } ?: FloatArray(0)
        val best = HashMap<Long, Int>() // document -> the place of its best passage
        for (at in cosines.indices) {
            val before = best[owners[at]]
            if (before != null && cosines[at] <= cosines[before]) continue
            if (allowed == null || owners[at] in allowed) best[owners[at]] = at
        }
        val near = best.keys.sortedByDescending { cosines[best.getValue(it)] }.take(most)
        val words = HashMap<Long, Double>()
        val expression = if (mode == Mode.VECTORS) "" else words(query, isQuery = true)
        if (expression.isNotEmpty()) {
            db.select(sql("words"), expression, allowed?.let(::json), most, json(near)) { words[it.getLong(0)] = it.getDouble(1) }
        }
        val rows = (near + words.keys).distinct().map { row -> listOf(row, best[row]?.let { cosines[it] }, words[row]) }
        val ranked = mutableListOf<Found>()
        db.select(sql("ranked"), json(rows), mode.name.lowercase(), threshold, top) {
            val row = it.getLong(0)
            ranked += hit(row, it.getDouble(1), it.getDouble(2), it.getDouble(3), best[row])
        }
        return ranked
    }

    /** The documents that a filter keeps. */
    private fun allowed(where: Map<String, Any>): Set<Long> {
        for (name in where.keys) require('"' !in name) { "filter $name: a name with a double quote" }
        val parts = json(where.mapValues { if (it.value is Collection<*>) it.value else listOf(it.value) })
        val found = HashSet<Long>()
        db.select(sql("filter"), parts) { found += it.getLong(0) }
        if (found.isEmpty()) db.select(sql("unknown"), parts) {
            throw IllegalArgumentException("no column ${it.getText(0)} to filter by (columns: ${it.getText(1)})")
        }
        return found
    }

    private fun hit(row: Long, score: Double, cosine: Double, words: Double, place: Int?): Found {
        var found: Found? = null
        db.select(sql("hit"), row, place?.let { rows[it] }) {
            val one = Document(it.getText(0), it.getText(1), it.getText(2), it.getText(3))
            if (it.getLong(4) != crc(one)) damaged("$path: damaged (document ${one.id})")
            val (start, length) = listOf(it.getLong(5).toInt(), (it.getLong(6) - it.getLong(5)).toInt())
            found = try {
                val from = one.text.offsetByCodePoints(0, start)
                val end = if (place == null) one.text.length else one.text.offsetByCodePoints(from, length)
                Found(one, score, cosine, words, from, end)
            } catch (outside: IndexOutOfBoundsException) {
                damaged("$path: damaged (a passage outside document ${one.id})", outside)
            }
        }
        return found ?: damaged("$path: damaged (words of a document that is not there)")
    }

    private fun refresh() {
        val now = db.values("PRAGMA data_version") { it.getLong(0) }.single()
        if (now == version) return
        val count = db.values("SELECT count(vector) FROM passages") { it.getLong(0) }.single()
        val width = encoder.width
        if (count * width > Int.MAX_VALUE) damaged("$path: $count passages are too many for this device")
        rows = LongArray(count.toInt())
        owners = LongArray(count.toInt())
        scales = FloatArray(count.toInt())
        codes = ByteArray((count * width).toInt())
        var at = 0
        db.select(sql("vectors"), 0) {
            val row = it.getLong(0)
            val scale = if (it.isNull(4)) null else it.getDouble(4)
            val vector = if (it.isNull(5)) null else it.getBlob(5)
            val crc = crc(it.getLong(1), it.getLong(2), it.getLong(3), scale, vector)
            if (crc != it.getLong(6) || vector != null && vector.size != width) damaged("$path: damaged (the vector of passage $row)")
            if (vector != null && scale != null) {
                rows[at] = row
                owners[at] = it.getLong(1)
                scales[at] = scale.toFloat()
                vector.copyInto(codes, at++ * width)
            }
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
                db.select("BEGIN $kind") {}
                try {
                    work().also { db.select("COMMIT") {} }
                } catch (failure: Throwable) {
                    runCatching { db.select("ROLLBACK") {} }
                    throw failure
                }
            }
        }
    }

    private fun isEmpty() = db.values("SELECT count(*) FROM sqlite_master") { it.getLong(0) }.single() == 0L

    private fun size() = db.values("SELECT count(*) FROM documents") { it.getLong(0).toInt() }.single()

    private fun check() {
        if (isEmpty()) return
        val wrong = db.values(sql("check"), encoder.source) { if (it.isNull(0)) null else it.getText(0) }.single()
            ?: db.values(sql("strays")) { it.getText(0) }.firstOrNull()
        if (wrong != null) damaged("$path: $wrong")
        db.select(sql("check_words")) {}
        db.select(sql("check_documents")) {
            val one = Document(it.getText(0), it.getText(1), it.getText(2), it.getText(3))
            if (it.getLong(4) != crc(one)) damaged("$path: damaged (document ${one.id})")
        }
    }

    companion object {
        private const val BLOCK = 256 // documents that are encoded and written together
        private const val CANDIDATES = 1000 // documents of each kind that are ranked together
        private const val MASK = 0xFFFFFFFFL
        private val copying = ReentrantLock()
        private val SQL = SEARCH_SQL.split("-- name: ").drop(1).associate { it.substringBefore('\n') to it.substringAfter('\n') }

        /** A statement of search.sql. */
        private fun sql(name: String) = SQL.getValue(name)

        /** The index in [file], made if it is not there. */
        suspend fun open(file: File, encoder: SentenceEncoder, driver: SQLiteDriver): SearchIndex =
            withContext(Dispatchers.IO) {
                named(file.path) {
                    // Shorter than its header: SQLite would take the shortest for a new file.
                    if (file.length() in 1..99) damaged("${file.path}: damaged (${file.length()} bytes)")
                    val db = driver.open(file.path)
                    try {
                        for (set in listOf("busy_timeout=60000", "journal_mode=WAL", "foreign_keys=ON")) {
                            db.select("PRAGMA $set") {}
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
                val stage = File(file.path + ".partial")
                try {
                    stage.parentFile?.mkdirs()
                    // One process and one thread copies, and the copy is on the disk before it has its name.
                    copying.withLock {
                        RandomAccessFile("${file.path}.lock", "rw").use { held ->
                            held.channel.lock()
                            if (file.isFile) return@withContext
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
            return open(file, encoder, driver)
        }

        // A document's checksum: CRC-32 of its fields with zeros between.
        private fun crc(one: Document): Long =
            NativeCore.crc32(0, "${one.id}\u0000${one.text}\u0000${one.title}\u0000${one.metadata}".toByteArray()).toLong() and MASK

        // A passage's: of document, start, end, scale (0 without a vector) and vector.
        private fun crc(document: Long, start: Long, end: Long, scale: Double?, vector: ByteArray?): Long {
            val bytes = ByteBuffer.allocate(32 + (vector?.size ?: 0)).order(ByteOrder.LITTLE_ENDIAN)
            bytes.putLong(document).putLong(start).putLong(end).putDouble(scale ?: 0.0).put(vector ?: ByteArray(0))
            return NativeCore.crc32(0, bytes.array()).toLong() and MASK
        }

        /** The words of a text as the index stores them; of a query, FTS5's expression for any of them. */
        private fun words(text: String, isQuery: Boolean = false): String =
            String(NativeCore.searchWords(SentenceEncoder.utf8(text), isQuery), Charsets.UTF_8)

        /** JSON of ids and filters, which SQLite reads up to a NUL character. */
        private fun json(value: Any?): String = when (value) {
            null, is Number, is Boolean -> value.toString()
            is Pair<*, *> -> json(listOf(value.first, value.second))
            is Map<*, *> -> value.entries.joinToString(",", "{", "}") { "${json(it.key)}:${json(it.value)}" }
            is Collection<*> -> value.joinToString(",", "[", "]") { json(it) }
            else -> value.toString().also { require('\u0000' !in it) { "a NUL character in an id or a filter" } }.map {
                if (it == '"' || it == '\\') "\\$it" else if (it < ' ') "\\u%04x".format(it.code) else "$it"
            }.joinToString("", "\"", "\"")
        }

        private fun SQLiteConnection.select(sql: String, vararg values: Any?, row: (SQLiteStatement) -> Unit) {
            val statement = prepare(sql)
            try {
                values.forEachIndexed { before, value ->
                    val at = before + 1
                    when (value) {
                        null -> statement.bindNull(at)
                        is String -> statement.bindText(at, value.also { SentenceEncoder.utf8(it) })
                        is ByteArray -> statement.bindBlob(at, value)
                        is Float, is Double -> statement.bindDouble(at, (value as Number).toDouble())
                        is Number -> statement.bindLong(at, value.toLong())
                        else -> error("a value of the type ${value::class}")
                    }
                }
                while (statement.step()) row(statement)
            } finally {
                statement.close()
            }
        }

        private fun <T> SQLiteConnection.values(sql: String, vararg given: Any?, value: (SQLiteStatement) -> T): List<T> =
            mutableListOf<T>().also { list -> select(sql, *given) { list += value(it) } }

        /** SQLite's errors as one line. Their class depends on the driver. */
        private inline fun <T> named(path: String, work: () -> T): T = try {
            work()
        } catch (failure: RuntimeException) {
            val message = failure.message.orEmpty()
            when {
                failure is IllegalArgumentException || failure is kotlin.coroutines.cancellation.CancellationException ->
                    throw failure
                "UNIQUE constraint" in message -> throw IllegalArgumentException(
                    "$path: a document of this id is there already; use update", failure
                )
                "metadata_is" in message -> throw IllegalArgumentException("$path: metadata that is not a JSON object", failure)
                "no such module: fts5" in message -> throw EncoderException(
                    EncoderException.Kind.UNSUPPORTED,
                    "$path: this SQLite has no FTS5; open the index with BundledSQLiteDriver of androidx.sqlite", failure
                )
                "no such table" in message -> damaged("$path: not a search index", failure)
                "malformed" in message || "not a database" in message -> damaged("$path: damaged ($message)", failure)
                else -> throw EncoderException(EncoderException.Kind.IO, "$path: $message", failure)
            }
        }
    }
}
