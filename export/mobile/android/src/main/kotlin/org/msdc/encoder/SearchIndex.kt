package org.msdc.encoder

import android.content.Context
import java.io.Closeable
import java.io.File
import java.util.concurrent.atomic.AtomicBoolean
import java.util.concurrent.locks.ReentrantReadWriteLock
import kotlin.concurrent.read
import kotlin.concurrent.write
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.awaitCancellation
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.launch
import kotlinx.coroutines.sync.Mutex
import kotlinx.coroutines.sync.withLock
import kotlinx.coroutines.withContext

/**
 * Documents that are found by words and by meaning: the SQLite file of `msdc search` and `msdc.open_index`, with the same
 * answers. One made on a workstation is opened as it is, and one made here opens there.
 *
 *     val index = SearchIndex.fromAssets(context, "notes.sqlite", encoder)
 *     index.add(listOf(Document("n1", "The car is on level 2.", metadata = """{"year": 2026}""")))
 *     val found = index.search("Wo ist das Auto?", where = mapOf("year" to Pair(2026, null)))
 *
 * The native library has its own SQLite. Safe to share between threads; a cancelled call ends its statement. The encoder is the caller's and stays open. Without
 * an encoder an index of any model is searched by its words, until [rebuild] encodes its documents.
 */
class SearchIndex private constructor(private val handle: Long, @Volatile private var encoder: SentenceEncoder?) : Closeable {
    private val lock = ReentrantReadWriteLock()
    private val calls = Mutex()
    private var closed = false

    /** Number of documents. */
    suspend fun count(): Int = read { (valueOf(core.indexState(it)) as Map<*, *>)["documents"] as Double }.toInt()

    /** The least cosine of a relevant entry by this model, a threshold for [search]; null in an empty index. */
    suspend fun relevantCosine(): Double? = read { (valueOf(core.indexState(it)) as Map<*, *>)["relevant"] as Double? }

    /**
     * Adds [documents] and returns their number; an id that is there already is an error, an empty one is given by the
     * index. They are written in blocks of 256: what was added before an error or a cancellation stays.
     *
     * @throws IllegalArgumentException an id that is there, a document without text, metadata that is no JSON object.
     */
    suspend fun add(documents: List<Document>): Int = put(documents, replaces = false)

    /** [add] that replaces documents of the same id; of one id in [documents] the last stays. */
    suspend fun update(documents: List<Document>): Int = put(documents, replaces = true)

    /** The ids of all documents, in the order in which they were added. */
    suspend fun ids(): List<String> = read { index -> (valueOf(core.indexIds(index)) as List<*>).map { it as String } }

    /** The document of an [id]; null without one. */
    suspend fun get(id: String): Document? =
        read { index -> core.indexGet(index, utf8(id))?.let { document(valueOf(it) as Map<*, *>) } }

    /** Removes documents by id; ids that are not there are left alone. Returns how many were removed. */
    suspend fun remove(ids: Collection<String>): Int = read { core.indexRemove(it, utf8(json(ids))).toInt() }

    private suspend fun put(documents: List<Document>, replaces: Boolean): Int {
        val encoder = requireNotNull(encoder) { "the index was opened without an encoder, which only words need not" }
        for (block in documents.chunked(BLOCK)) {
            val rows = utf8(json(block.map {
                mapOf("id" to it.id.ifEmpty { null }, "text" to it.text, "title" to it.title, "metadata" to it.metadata)
            }))
            write(encoder) { index, model -> core.indexDocuments(index, model, rows, replaces) }
        }
        return documents.size
    }

    // Writes the batch that `batchOf` makes; its numbers of documents, null without a batch.
    private suspend fun write(encoder: SentenceEncoder, batchOf: (index: Long, model: Long) -> Long): LongArray? {
        var batch = 0L
        try {
            read { index -> batch = encoder.lend { batchOf(index, it) } }
            if (batch == 0L) return null
            val texts = core.indexTexts(batch).map { String(it, Charsets.UTF_8) }
            val vectors = if (texts.isEmpty()) FloatArray(0) else encoder.encode(texts).values
            return read { core.indexWrite(it, batch, vectors, encoder.width) }
        } finally {
            if (batch != 0L) core.indexBatchClose(batch)
        }
    }

    /**
     * Encodes all documents again with [encoder], for an index of another model; it is one of this model then, and has this
     * encoder. Until the end it stays an index of its former model: searches by words go on, also in other processes. What
     * was interrupted or cancelled continues with the next call. An index of this model already is left as it is.
     *
     *     val index = try { SearchIndex.open(file, encoder) } catch (e: EncoderException) {
     *         if (e.kind != EncoderException.Kind.OTHER_MODEL) throw e
     *         SearchIndex.open(file, null).also { scope.launch { it.rebuild(encoder) } }
     *     }
     *
     * @param progress is called with the number of documents that are encoded so far, and of all.
     * @return the number of documents that were encoded.
     */
    suspend fun rebuild(encoder: SentenceEncoder, progress: (done: Int, total: Int) -> Unit = { _, _ -> }): Int {
        var count = 0
        while (true) {
            val numbers = write(encoder) { index, model -> core.indexRebuild(index, model) } ?: break
            count += numbers[0].toInt()
            progress(numbers[1].toInt(), numbers[2].toInt())
        }
        this.encoder = encoder
        return count
    }

    /**
     * The [top] documents nearest to [query], best first, behind the first [offset]. The last word of a query without a
     * blank behind it also matches words that begin with it. If no document has a word of the query, the most similar
     * words of the index are looked for.
     *
     * @param threshold documents have at least this cosine, or every word of the query.
     * @param where required metadata by name: a value, a collection of alternatives, a `Pair` of least and most (null:
     * no bound), null for no value, or [Not] for none of these; "and" and "or" have a list of such maps, "not" has a
     * map. Numbers compare as numbers, dates and times as such,
     * texts as text. Other values are taken by `toString`, which is ISO for java.time's `LocalDate`, `LocalDateTime`,
     * `OffsetDateTime` and `Instant`; a `java.util.Date` must become an `Instant` (`toInstant`).
     * @param mode without an encoder BOTH is by words.
     * @param prompt is put before the query; null takes the bundle's default.
     * @param distinct documents with the same words are a single hit, the best.
     * @param operators "words in quotes" come first, and documents with -excluded words are no hits; else quotes and
     * minus are text.
     * @param order up to three columns that sort the documents which match ("-day": the greatest first), as in Python.
     * @param boost pairs of a filter as in [where] and a number that its documents get on their score.
     * @param group a column of which each value has at most [groupSize] hits; [top] and [offset] count groups.
     * @throws IllegalArgumentException an empty query, a column that no document has.
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
        operators: Boolean = true,
        order: List<String> = emptyList(),
        boost: List<Pair<Map<String, Any?>, Number>> = emptyList(),
        group: String? = null,
        groupSize: Int = 1
    ): List<SearchHit> {
        val asked = mapOf("query" to query, "mode" to mode.name.lowercase(), "syntax" to if (operators) "operators" else "plain")
        val request = request(asked, top, threshold, where, offset, distinct, order, boost, group, groupSize)
        val encoder = encoder
        val text = read { index ->
            if (encoder == null) core.indexQuery(index, 0, request) else encoder.lend { core.indexQuery(index, it, request) }
        }
        return hits(request, text?.let { encoder?.encode(String(it, Charsets.UTF_8), prompt) })
    }

    /**
     * The [top] documents nearest to the one of an [id], by the stored vectors: the mean of its passages against the best
     * passage of each. Nothing is encoded. The document itself is no hit, nor, with [distinct], are those with the same words.
     * The other parameters are those of [search].
     *
     * @throws IllegalArgumentException an unknown id, a document that the model could not read.
     */
    suspend fun similar(
        id: String,
        top: Int = 5,
        threshold: Float? = null,
        where: Map<String, Any?> = emptyMap(),
        offset: Int = 0,
        distinct: Boolean = true,
        order: List<String> = emptyList(),
        boost: List<Pair<Map<String, Any?>, Number>> = emptyList(),
        group: String? = null,
        groupSize: Int = 1
    ): List<SearchHit> =
        hits(request(mapOf("like" to id), top, threshold, where, offset, distinct, order, boost, group, groupSize), null)

    private fun request(
        asked: Map<String, Any?>, top: Int, threshold: Float?, where: Map<String, Any?>, offset: Int, distinct: Boolean,
        order: List<String>, boost: List<Pair<Map<String, Any?>, Number>>, group: String?, groupSize: Int
    ) = utf8(json(asked + mapOf(
        "top" to top, "threshold" to threshold, "where" to json(conditions(where)), "offset" to offset, "distinct" to distinct,
        "offsets" to "utf16", "order" to order, "boost" to boost.map { (filter, bonus) -> Pair(json(conditions(filter)), bonus) },
        "group" to group, "group_size" to groupSize
    )))

    private suspend fun hits(request: ByteArray, vector: FloatArray?): List<SearchHit> =
        read { index -> (valueOf(core.indexSearch(index, request, vector)) as List<*>).map { found(it as Map<*, *>) } }

    /**
     * Writes a copy of the index to the new [file], while it is used: of one state, without unused space. A copy of the
     * index's own file may lack what is still in its write-ahead log.
     *
     * @throws IllegalArgumentException [file] exists.
     */
    suspend fun backup(file: File) = read { core.indexBackup(it, utf8(file.path)) }

    /** Gives the space of removed documents back to the storage. Needs about the size of the index as free space. */
    suspend fun compact() = read { core.indexCompact(it) }

    /**
     * Compares the whole file with its checksums, as [open] does with `check`. What a search reads is compared in any case.
     *
     * @throws EncoderException of the kind DAMAGED.
     */
    suspend fun check() = read { core.indexCheck(it) }

    /** Waits for the call that is running. */
    override fun close() = lock.write {
        if (!closed) core.indexClose(handle)
        closed = true
    }

    // One call at a time, as in the core: a cancelled coroutine ends its own statement, not that of another one.
    private suspend fun <T> read(work: (index: Long) -> T): T = calls.withLock {
        coroutineScope {
            val isRunning = AtomicBoolean()
            val watcher = launch(Dispatchers.Unconfined) {
                try {
                    awaitCancellation()
                } finally {
                    synchronized(isRunning) { if (isRunning.get()) core.indexInterrupt(handle) }
                }
            }
            try {
                withContext(Dispatchers.IO) { lock.read { running(isRunning, work) } }
            } finally {
                watcher.cancel()
            }
        }
    }

    private fun <T> running(isRunning: AtomicBoolean, work: (index: Long) -> T): T {
        if (closed) throw EncoderException(EncoderException.Kind.CLOSED, "the index is closed")
        isRunning.set(true)
        try {
            return work(handle)
        } finally {
            synchronized(isRunning) { isRunning.set(false) }
        }
    }

    companion object {
        private const val BLOCK = 256 // MSDC_INDEX_BLOCK

        /**
         * The index in [file], made if it is not there. Without an [encoder] one of any model, for searches by words and
         * for [rebuild].
         *
         * @param check compares the whole file with its checksums, which takes the longer the more it has; without, what is
         * read later is compared. An app may leave it out where it has opened the file before.
         * @throws EncoderException of the kind OTHER_MODEL: an intact index of another model than that of [encoder].
         */
        suspend fun open(file: File, encoder: SentenceEncoder?, check: Boolean = true): SearchIndex =
            withContext(Dispatchers.IO) {
                val path = utf8(file.path)
                val handle =
                    if (encoder == null) core.indexOpen(path, 0, check) else encoder.lend { core.indexOpen(path, it, check) }
                SearchIndex(handle, encoder)
            }

        /**
         * The index that the app ships as the asset [name]; the first call copies it to the app's files, where it can be
         * changed. Another name brings another one.
         */
        suspend fun fromAssets(
            context: Context, name: String, encoder: SentenceEncoder?, check: Boolean = true
        ): SearchIndex {
            val file = File(context.noBackupFilesDir, "msdc-search/$name")
            withContext(Dispatchers.IO) { Install.copyAsset(context, name, file) }
            return open(file, encoder, check)
        }

        private fun utf8(text: String) = SentenceEncoder.utf8(text)

        // A filter of the core: [[column, [alternative, ...], excluded], {"or": [filter, ...]}, {"not": [filter]}, ...].
        private fun conditions(where: Map<*, *>): List<Any?> = where.flatMap { (name, required) ->
            val filters = (required as? Collection<*>)?.takeIf { it.isNotEmpty() && it.all { part -> part is Map<*, *> } }
                ?.map { conditions(it as Map<*, *>) }
            if (name == "and" && filters != null) return@flatMap filters.flatten()
            if (name == "or" && filters != null) return@flatMap listOf(mapOf("or" to filters))
            if (name == "not" && required is Map<*, *>) return@flatMap listOf(mapOf("not" to listOf(conditions(required))))
            val value = if (required is Not) required.value else required
            val alternatives = if (value is Collection<*>) value else listOf(value)
            require(alternatives.none { it is Not }) { "filter $name: $value; expected a value, null, a list, or a Pair" }
            listOf(listOf(name, alternatives, if (required is Not) 1 else 0))
        }

        private fun document(row: Map<*, *>) =
            Document(row["id"] as String, row["text"] as String, row["title"] as String, row["metadata"] as String)

        private fun found(row: Map<*, *>): SearchHit {
            fun number(name: String) = row[name] as Double? ?: 0.0
            val matches = (row["matches"] as List<*>).map { span ->
                val (start, end) = (span as List<*>).map { (it as Double).toInt() }
                start until end
            }
            return SearchHit(
                document(row), number("score"), number("cosine"), number("words"), number("start").toInt(),
                number("end").toInt(), matches, number("count").toInt()
            )
        }
    }
}
