package org.msdc.encoder

import android.content.Context
import java.io.Closeable
import java.io.File
import java.io.InputStream
import java.nio.ByteBuffer
import java.nio.ByteOrder
import java.nio.CharBuffer
import java.nio.charset.CharacterCodingException
import java.util.concurrent.ExecutorService
import java.util.concurrent.Executors
import java.util.concurrent.locks.ReentrantReadWriteLock
import kotlin.concurrent.read
import kotlin.concurrent.write
import kotlinx.coroutines.suspendCancellableCoroutine

/** What a self-test found: golden texts run, texts whose ids differ, cosines to the vectors stored at export. */
data class SelfTest(val texts: Int, val idsDiffer: Int, val minCosine: Float, val meanCosine: Float)

/**
 * Text to vector, from a bundle of `msdc export --target android`.
 *
 *     val encoder = SentenceEncoder.fromAssets(context)
 *     val notes = encoder.encode(listOf("Buy milk", "Call the dentist"))
 *     val hits = notes.nearest(encoder.encode("groceries"), k = 1)
 *
 * Safe to share between threads: calls that run the program wait for each other. Close it once; that waits for the text
 * that is being encoded, and calls after it throw an [EncoderException]. A text or prompt with half of a surrogate pair is
 * an [IllegalArgumentException].
 */
class SentenceEncoder private constructor(private val handle: Long, private val program: Program?) : Closeable {
    private val lock = ReentrantReadWriteLock()
    private var closed = false

    // A thread for single texts and one for lists: the core takes turns between them after each text.
    private val queries = worker("msdc-query")
    private val lists = worker("msdc-list")

    /** Numbers in a vector. */
    val width: Int = core.width(handle)

    /** The model's name. */
    val name: String = core.name(handle).toString(Charsets.UTF_8)

    /** Longest input in tokens, special ids included; longer texts are cut. */
    val maxLength: Int = core.maxLength(handle)

    /**
     * The vector of [text]. Runs on a thread of this encoder's own, whatever the caller's dispatcher is, and waits for no
     * list: only for the text of it that is being encoded. [prompt] is put before the text; null takes the bundle's default
     * prompt, an empty one none.
     */
    suspend fun encode(text: String, prompt: String? = null): FloatArray = on(queries) { batch(listOf(text), prompt, it) }.values

    /**
     * The vectors of [texts], in order: one native call, one [prompt] for all of them. A cancelled coroutine ends it before
     * the next text.
     */
    suspend fun encode(texts: List<String>, prompt: String? = null): Vectors = on(lists) { batch(texts, prompt, it) }

    private suspend fun <T> on(worker: Lazy<ExecutorService>, work: (stop: ByteBuffer) -> T): T =
        suspendCancellableCoroutine { continuation ->
            val stop = ByteBuffer.allocateDirect(1)
            continuation.invokeOnCancellation { stop.put(0, 1) }
            val task = Runnable {
                // A result that comes after the cancellation is dropped by the continuation.
                if (continuation.isActive) continuation.resumeWith(runCatching { work(stop) })
            }
            open { worker.value.execute(task) }
        }

    /** The vector of [text], on the calling thread. Takes milliseconds: call it off the main thread. */
    @JvmOverloads
    fun encodeBlocking(text: String, prompt: String? = null): FloatArray =
        open { core.encode(handle, utf8(text), prompt?.let { ended(it, PROMPT) }) }

    /** The vectors of [texts], in order, on the calling thread: one native call, one [prompt] for all of them. */
    @JvmOverloads
    fun encodeBlocking(texts: List<String>, prompt: String? = null): Vectors = batch(texts, prompt, null)

    /** How many of [texts], with their prompt, have more than [maxLength] tokens: [encode] cuts these. */
    @JvmOverloads
    fun countTruncated(texts: List<String>, prompt: String? = null): Int =
        open { core.countTruncated(handle, bytesOf(texts), prompt?.let { ended(it, PROMPT) }) }

    private fun bytesOf(texts: List<String>) = Array(texts.size) { utf8(texts[it], "text ${it + 1}") }

    private fun batch(texts: List<String>, prompt: String?, stop: ByteBuffer?): Vectors = open {
        val bytes = bytesOf(texts)
        val first = prompt?.let { ended(it, PROMPT) }
        Vectors(if (bytes.isEmpty()) FloatArray(0) else core.encodeBatch(handle, bytes, first, stop), width)
    }

    /** The prompt that the model holds under [name], such as "query". An unknown name is an error that lists the known ones. */
    fun prompt(name: String): String = open {
        String(core.prompt(handle, ended(name, "the prompt's name")), Charsets.UTF_8)
    }

    /** Token ids of [text] with the special ids, at most [maxLength]. */
    fun tokenize(text: String): IntArray = open { core.tokenize(handle, utf8(text)) }

    /** Lends the core's encoder to [work]. */
    internal fun <T> lend(work: (handle: Long) -> T): T = open { work(handle) }

    /** The vector of ids that already carry the special ids. */
    fun encodeIds(ids: IntArray): FloatArray = open { core.encodeIds(handle, ids) }

    /**
     * Run the bundle's golden texts and compare ids and vectors with those of the export. Takes seconds.
     *
     * @throws EncoderException an id differs, the mean cosine is under [promise], or a single one is more than ten
     * times as far from 1 as that allows.
     */
    @JvmOverloads
    fun selfTest(promise: Float = 0.999f): SelfTest = open {
        val found = core.selfTest(handle, promise)
        SelfTest(found[0].toInt(), found[1].toInt(), found[2], found[3])
    }

    override fun close() {
        lock.write {
            if (closed) return
            closed = true
            for (worker in listOf(queries, lists)) if (worker.isInitialized()) worker.value.shutdown()
            core.close(handle)
            program?.close()
        }
    }

    // Readers share; close waits for them and then nobody enters.
    private inline fun <T> open(work: () -> T): T = lock.read {
        if (closed) throw EncoderException(EncoderException.Kind.CLOSED, "the encoder is closed")
        work()
    }

    companion object {
        /**
         * Whether the app has the native library for this device's processor. If not, every use of the module throws an
         * [EncoderException] of the kind UNSUPPORTED.
         */
        @JvmStatic
        fun isSupported(): Boolean = NativeCore.missing == null

        /**
         * The encoder of a bundle in the app's assets: `msdc/[name]`, or the only one there. The first call of an app's
         * version copies it to the app's files (programs are mapped from there) and runs the self-test. Every call compares
         * the hashes of the copy, and copies again what was lost or damaged. Processes of an app wait for each other.
         *
         * @throws EncoderException the bundle is missing or damaged, or the self-test failed on this device.
         */
        @JvmStatic
        @JvmOverloads
        fun fromAssets(context: Context, name: String? = null, threads: Int = 1): SentenceEncoder =
            fromInstalled(Install.fromAssets(context, name), threads)

        /** [fromAssets] that copies all files again and repeats the self-test. */
        @JvmStatic
        @JvmOverloads
        fun reinstall(context: Context, name: String? = null, threads: Int = 1): SentenceEncoder =
            fromInstalled(Install.fromAssets(context, name, anew = true), threads)

        /**
         * The encoder of a bundle at the web address [base], whose bundle.json has the hash [sha256] (64 hexadecimal
         * digits, kept in the app). The first call downloads the files that the program needs, with the sizes and hashes
         * of bundle.json, and runs the self-test; later ones need no network as long as what was downloaded is intact. An
         * interrupted download continues with the next call, inside a file where the server sends parts. Interrupting the thread stops it (`runInterruptible` in a coroutine). The app needs the permission
         * INTERNET, and an https address.
         *
         * @param progress is called with the bytes received so far and those of all files.
         * @param fetch opens a file of the bundle by name; replace it for another HTTP client.
         * @throws EncoderException the network failed, a file is not the one that was exported, or the self-test failed on
         * this device.
         */
        @JvmStatic
        @JvmOverloads
        fun fromDownload(
            context: Context,
            base: String,
            sha256: String,
            name: String = "download",
            threads: Int = 1,
            progress: (done: Long, total: Long) -> Unit = { _, _ -> },
            fetch: (String) -> InputStream = Install.Http(base)
        ): SentenceEncoder = fromInstalled(Install.fromDownload(context, name, sha256, progress, fetch), threads)

        private fun fromInstalled(installed: Installed, threads: Int): SentenceEncoder {
            if (installed.proven) return fromFolder(installed.folder, threads)
            val encoder = fromFolder(installed.folder, threads)
            try {
                encoder.selfTest()
            } catch (failure: Throwable) {
                encoder.close()
                throw failure
            }
            installed.prove()
            return encoder
        }

        /**
         * The encoder of a bundle [folder]. With [checkFiles] every file's hash is compared first. [program] replaces
         * the module's own way of running the bundle's program and is closed with the encoder.
         */
        @JvmStatic
        @JvmOverloads
        fun fromFolder(
            folder: File,
            threads: Int = 1,
            checkFiles: Boolean = false,
            program: Program? = null
        ): SentenceEncoder {
            val path = folder.path.toByteArray(Charsets.UTF_8)
            if (program == null && core.runtime() != "none") {
                return SentenceEncoder(core.open(path, threads, checkFiles), null)
            }
            val running = program ?: Engine.program(folder, threads)
            try {
                return SentenceEncoder(core.openWith(path, checkFiles, Engine.RUNTIME, running), running)
            } catch (failure: Throwable) {
                running.close()
                throw failure
            }
        }

        private fun worker(name: String): Lazy<ExecutorService> = lazy {
            Executors.newSingleThreadExecutor { task -> Thread(task, name).apply { isDaemon = true } }
        }

        private const val PROMPT = "the prompt"

        /** UTF-8 that C reads up to a NUL character. */
        private fun ended(text: String, what: String): ByteArray =
            utf8(text, what).also { require(0.toByte() !in it) { "$what has a NUL character" } }

        /** UTF-8. Half of a surrogate pair is refused, as in Python and JavaScript; Java alone would write "?". */
        internal fun utf8(text: String, what: String = "the text"): ByteArray = try {
            val buffer = Charsets.UTF_8.newEncoder().encode(CharBuffer.wrap(text))
            ByteArray(buffer.remaining()).also { buffer.get(it) }
        } catch (half: CharacterCodingException) {
            throw IllegalArgumentException("$what has half of a surrogate pair", half)
        }
    }
}
