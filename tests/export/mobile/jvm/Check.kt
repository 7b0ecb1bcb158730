// Runs the module's classes on a JVM, over the JNI library with the real runtime. Prints one line
// for each check.
import android.content.Context
import com.sun.net.httpserver.HttpServer
import java.io.File
import java.net.InetSocketAddress
import java.security.MessageDigest
import java.util.concurrent.Executors
import java.util.concurrent.atomic.AtomicInteger
import kotlin.concurrent.thread
import kotlin.math.abs
import kotlin.math.sqrt
import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.async
import kotlinx.coroutines.delay
import kotlinx.coroutines.runBlocking
import org.msdc.encoder.BundleSignature
import org.msdc.encoder.EncoderException
import org.msdc.encoder.Program
import org.msdc.encoder.SentenceEncoder
import org.msdc.encoder.Vectors

val NOTES = listOf(
    "Buy milk, eggs and bread on the way home",
    "Dentist appointment on Tuesday at nine",
    "Passwort für das WLAN im Büro ändern",
    "Der Zug nach München fährt um 7:42 Uhr von Gleis 3",
    "Llamar a mamá por su cumpleaños",
    "Receta: arroz con verduras y limón",
    "Réserver une table pour quatre personnes samedi soir",
    "Le chat doit aller chez le vétérinaire",
    "Pagare la bolletta della luce entro venerdì",
    "De fiets heeft een lekke band",
    "Yarın toplantıdan önce raporu bitir",
    "حجز تذاكر الطيران إلى القاهرة",
    "Idea: a garden with herbs on the balcony",
    "Return the library books before the end of the month",
    "Training plan: run five kilometres three times a week",
    "Ask the landlord about the broken heating"
)

fun passed(name: String, ok: Boolean) = println("${if (ok) "ok" else "FAILED"} $name")

inline fun <reified T : Throwable> throws(name: String, words: String, work: () -> Unit) = try {
    work()
    passed(name, false)
} catch (error: Throwable) {
    if (error !is T || words !in error.message.orEmpty()) println("  $error")
    passed(name, error is T && words in error.message.orEmpty())
}

/** A program that another encoder runs: as in an app with a runtime of its own. */
class Borrowed(private val encoder: SentenceEncoder) : Program {
    val calls = AtomicInteger()
    val inside = AtomicInteger()
    var crowded = false
    var failing = false
    var spoiled = false
    var closed = false
    var pauseMs = 0L

    override fun run(ids: IntArray, promptTokens: Int): FloatArray {
        if (failing) throw IllegalArgumentException("the program's own words")
        crowded = crowded || inside.incrementAndGet() > 1
        calls.incrementAndGet()
        Thread.sleep(pauseMs)
        return encoder.encodeIds(ids).also {
            inside.decrementAndGet()
            if (spoiled) it[1] = Float.NaN
        }
    }

    override fun close() {
        closed = true
    }
}

fun cosine(a: FloatArray, b: FloatArray): Double {
    fun dot(x: FloatArray, y: FloatArray) = x.indices.sumOf { x[it].toDouble() * y[it] }
    return dot(a, b) / sqrt(dot(a, a)) / sqrt(dot(b, b))
}

fun checkEncoding(encoder: SentenceEncoder) {
    val found = encoder.selfTest()
    passed("self-test", found.texts >= 60 && found.idsDiffer == 0 && found.minCosine > 0.999f)
    passed("width", encoder.encodeBlocking("hello").size == encoder.width)
    passed("emoji", encoder.tokenize("\uD83D\uDE00 a").size > 2)
    for ((what, work) in listOf<Pair<String, () -> Any>>(
        "the text" to { encoder.tokenize("a\uD83D b") }, "the text" to { encoder.encodeBlocking("\uDE00") },
        "text 2" to { encoder.encodeBlocking(listOf("a", "\uD83D")) }, "the prompt" to { encoder.encodeBlocking("a", "\uDE00") },
        "the prompt's name" to { encoder.prompt("\uD83D") }
    )) throws<IllegalArgumentException>("half a pair", "$what has half of a surrogate pair") { work() }
    throws<IllegalArgumentException>("ids outside", "is not in the vocabulary") { encoder.encodeIds(intArrayOf(1 shl 20)) }
    throws<EncoderException>("no bundle", "not a bundle") { SentenceEncoder.fromFolder(File("/nowhere")) }
    passed("prompt", encoder.encodeBlocking("b", "a ").contentEquals(encoder.encodeBlocking("a b", "")))
    throws<IllegalArgumentException>("no such prompt", "prompt \"no such prompt\" is unknown; known: none") { encoder.prompt("no such prompt") }

    val vectors = encoder.encodeBlocking(NOTES)
    passed("batch", NOTES.indices.all { vectors[it].contentEquals(encoder.encodeBlocking(NOTES[it])) })
    val prompted = encoder.encodeBlocking(listOf("b", "c"), "a ")
    passed("batch with a prompt", prompted[1].contentEquals(encoder.encodeBlocking("a c", "")))
    val long = List(encoder.maxLength - 2) { "a" }.joinToString(" ")
    val counts = listOf(encoder.countTruncated(listOf("b", long, "$long a"), ""), encoder.countTruncated(listOf("b", long), "a "))
    passed("truncated", counts == listOf(1, 1) && encoder.countTruncated(emptyList()) == 0)
    passed("empty batch", encoder.encodeBlocking(emptyList<String>()).isEmpty())

    val query = encoder.encodeBlocking("milk")
    val expected = NOTES.indices.sortedByDescending { cosine(query, vectors[it]) }
    val hits = vectors.nearest(query, 5)
    passed("nearest", hits.map { it.row } == expected.take(5))
    passed("cosines", hits.all { abs(it.cosine - cosine(query, vectors[it.row])) < 1e-5 })
    passed("more than there are", vectors.nearest(query, 100).size == NOTES.size)
    passed("nearest of none", Vectors(FloatArray(0), 4).nearest(FloatArray(4)).isEmpty())
    passed("cosine", abs(Vectors.cosine(query, vectors[0]) - cosine(query, vectors[0])) < 1e-5)
    val ties = Vectors(floatArrayOf(0f, 0f, 2f, 0f, Float.NaN, 1f, 1f, 0f), 2).nearest(floatArrayOf(1f, 0f), 4)
    passed("ties by row, NaN last", ties.map { it.row } == listOf(1, 3, 0, 2))
    throws<IllegalArgumentException>("other width", "3 numbers for rows of") { vectors.nearest(FloatArray(3)) }
    val grown = Vectors(FloatArray(0), 2)
    for (x in 0 until 20) grown += floatArrayOf(x.toFloat(), 1f)
    grown.removeAt(19)
    grown.removeAt(0)
    grown.add(0, floatArrayOf(9f, 0f))
    passed("rows added and removed", grown.size == 19 && grown.values.size == 38 && grown[1][0] == 1f && grown[18][0] == 18f)
    passed("nearest of grown", grown.nearest(floatArrayOf(1f, 0f), 2).map { it.row } == listOf(0, 18))
    throws<IllegalArgumentException>("row of another width", "3 numbers for rows of 2") { grown += FloatArray(3) }
    throws<IllegalArgumentException>("no rows", "no rows of 2") { Vectors(FloatArray(3), 2) }
}

fun checkProgram(encoder: SentenceEncoder, bundle: File) {
    val borrowed = Borrowed(encoder)
    val outer = SentenceEncoder.fromFolder(bundle, program = borrowed)
    passed("caller's program", outer.encodeBlocking("hello").contentEquals(encoder.encodeBlocking("hello")))
    passed("caller's self-test", outer.selfTest().meanCosine > 0.999f)
    borrowed.failing = true
    throws<IllegalArgumentException>("caller's exception", "the program's own words") { outer.encodeBlocking("x") }
    throws<IllegalArgumentException>("exception in a batch", "the program's own words") { outer.encodeBlocking(NOTES) }
    borrowed.failing = false
    borrowed.spoiled = true
    throws<EncoderException>("NaN", "the vector holds NaN or infinity") { outer.encodeBlocking("x") }
    throws<EncoderException>("NaN in a batch", "text 1: the vector holds") { outer.encodeBlocking(NOTES) }
    throws<EncoderException>("no text of Unicode", "not a bundle") { SentenceEncoder.fromFolder(File("/a\nb\uD83D")) }
    borrowed.spoiled = false

    val expected = outer.encodeBlocking("together")
    val same = AtomicInteger()
    val work = { repeat(20) { if (outer.encodeBlocking("together").contentEquals(expected)) same.incrementAndGet() } }
    (1..8).map { thread { work() } }.forEach { it.join() }
    passed("eight threads", same.get() == 160 && !borrowed.crowded)

    runBlocking(Dispatchers.Default) {
        passed("coroutine", outer.encode("together").contentEquals(expected))
        passed("coroutine batch", outer.encode(NOTES)[3].contentEquals(outer.encodeBlocking(NOTES[3])))
        borrowed.pauseMs = 5
        borrowed.calls.set(0)
        val long = async { outer.encode(List(400) { "text $it" }) }
        while (borrowed.calls.get() < 3) delay(1)
        outer.encode("a query while a list is being encoded")
        passed("query before the rest of a list", borrowed.calls.get() < 100 && long.isActive)
        long.cancel()
        val cancelled = runCatching { long.await() }.exceptionOrNull() is CancellationException
        // The next list waits for the thread that ran the cancelled one.
        outer.encode(listOf("after it"))
        passed("cancelled", cancelled && borrowed.calls.get() < 200)
        borrowed.calls.set(0)
        val blocking = thread { outer.encodeBlocking(List(100) { "text $it" }) }
        while (borrowed.calls.get() < 3) delay(1)
        outer.encodeBlocking("a query beside another thread's list")
        passed("query before the rest of a blocking list", borrowed.calls.get() < 80)
        blocking.join()
    }
    outer.close()
    outer.close()
    passed("program closed with it", borrowed.closed)
    throws<EncoderException>("closed", "the encoder is closed") { outer.encodeBlocking("x") }
    throws<EncoderException>("closed, coroutine", "the encoder is closed") { runBlocking { outer.encode("x") } }
}

fun checkAssets(encoder: SentenceEncoder, context: Context, files: File) {
    val expected = encoder.encodeBlocking("hello")
    SentenceEncoder.fromAssets(context).use { passed("assets", it.encodeBlocking("hello").contentEquals(expected)) }
    val installed = File(files, "msdc/tiny").listFiles()!!.single()
    passed("proven", File(installed, ".proven").isFile)
    // The second start finds it proven and copies nothing.
    val program = installed.listFiles()!!.single { it.name.startsWith("model.") && !it.name.endsWith(".data") }
    val before = program.lastModified()
    SentenceEncoder.fromAssets(context).close()
    passed("copied once", program.lastModified() == before)
    throws<EncoderException>("no assets", "no bundle \"other\" in the app's assets (there: tiny)") {
        SentenceEncoder.fromAssets(context, "other")
    }
}

fun checkDownload(encoder: SentenceEncoder, bundle: File, context: Context, files: File) {
    val requests = mutableListOf<String>()
    val ranges = mutableListOf<Int>()
    var damaged = ""
    var cut = ""
    var sendsParts = true
    val server = HttpServer.create(InetSocketAddress("127.0.0.1", 0), 0)
    server.executor = Executors.newSingleThreadExecutor { task -> Thread(task).apply { isDaemon = true } }
    server.createContext("/") { exchange ->
        val file = File(bundle, exchange.requestURI.path.removePrefix("/bundle/"))
        requests += file.name
        val content = if (file.isFile) file.readBytes() else ByteArray(0)
        if (file.name == damaged) content[content.size / 2] = (content[content.size / 2] + 1).toByte()
        val asked = exchange.requestHeaders.getFirst("Range")?.removePrefix("bytes=")?.removeSuffix("-")?.toInt()
        if (asked != null) ranges += asked
        val start = asked?.takeIf { sendsParts } ?: 0
        if (start > 0) exchange.responseHeaders.set("Content-Range", "bytes $start-${content.size - 1}/${content.size}")
        val code = if (!file.isFile) 404 else if (start > 0) 206 else 200
        exchange.sendResponseHeaders(code, if (content.isEmpty()) -1 else (content.size - start).toLong())
        // The connection ends in the middle of the file that is `cut`.
        val end = if (file.name == cut) content.size / 2 else content.size
        if (content.isNotEmpty()) {
            exchange.responseBody.write(content, start, maxOf(0, end - start))
            exchange.responseBody.flush()
        }
        exchange.close()
    }
    server.start()
    val base = "http://127.0.0.1:${server.address.port}/bundle"
    val sha256 = MessageDigest.getInstance("SHA-256").digest(File(bundle, "bundle.json").readBytes())
        .joinToString("") { "%02x".format(it) }
    val told = mutableListOf<Pair<Long, Long>>()
    fun open(hash: String = sha256) =
        SentenceEncoder.fromDownload(context, base, hash, progress = { done, total -> told += Pair(done, total) })
    throws<EncoderException>("another manifest", "has the sha256 $sha256, not ") { open("0".repeat(64)) }
    damaged = "sentencepiece.model"
    throws<EncoderException>("damaged download", "sentencepiece.model differs") { open() }
    passed("nothing installed", File(files, "msdc/download").listFiles()!!.none { !it.name.startsWith("partial") })
    damaged = "golden.json"
    throws<EncoderException>("damaged later", "golden.json differs") { open() }
    damaged = ""
    requests.clear()
    told.clear()
    open().use { passed("download", it.encodeBlocking("hello").contentEquals(encoder.encodeBlocking("hello"))) }
    val dones = told.map { it.first }
    passed("progress", dones == dones.sorted() && told.last().let { it.first == it.second })
    passed("continued", "sentencepiece.model" !in requests && "golden.json" in requests)
    throws<EncoderException>("not found", "HTTP 404") {
        SentenceEncoder.fromDownload(context, "$base/other", sha256, name = "other")
    }
    fun again() = SentenceEncoder.fromDownload(context, base, sha256, name = "parts").use { it.encodeBlocking("hello") }
    for (parts in listOf(true, false)) {
        File(files, "msdc/parts").deleteRecursively()
        sendsParts = parts
        cut = "sentencepiece.model"
        throws<EncoderException>("interrupted, $parts", "sentencepiece.model: ") { again() }
        cut = ""
        ranges.clear()
        passed("continued inside a file, $parts", again().contentEquals(encoder.encodeBlocking("hello")) && ranges.singleOrNull().let { it != null && it > 1000 })
    }
    val left = File(files, "msdc/parts").listFiles()!!.single()
    File(left, "sentencepiece.model").let { it.writeBytes(ByteArray(it.length().toInt() / 2)) }
    sendsParts = true
    passed("the beginning of another file", again().contentEquals(encoder.encodeBlocking("hello")))
    server.stop(0)
    open().use { passed("no network", it.width == encoder.width) }
}

// Made by minisign 0.11: `minisign -S -l -m bundle.json -t 'msdc test bundle'`, and without -l.
const val KEY = "RWTgJ7ktwccS1p8hVwCGbMmZpip+zMnER6NEhctfDhWupLwLiwENnoPe"
val SIGNATURE = """
    untrusted comment: signature from minisign secret key
    RWTgJ7ktwccS1ozN41kBhUeskLAwQK0wfNSuilk9awuo6Gd6KFEFO2G4I6Fv1RW0RmEotEbPDWAC/kUFMZBoFjLscNrTxUQuIgM=
    trusted comment: msdc test bundle
    eM9ES77qhh7ipzvnndVLcDcyEvwaRyEXirVmQZ83B1tLEsKqaN84DGRFK8W4bMuBJigxW3Y2HqEtQdoio0mOCQ==
""".trimIndent()
const val HASHED = "RUTgJ7ktwccS1htn2NyQrhJMR9xUXw0ZIK23X0M/uBNdj91lxpsaXLkVAcMyjpLeiAe1T0p+AmD+kCgeCwv92nd/Huv6OmPkMwM="

fun checkSignature(files: File) {
    val folder = File(files, "signed").also { it.mkdirs() }
    throws<EncoderException>("not there", "the bundle is not signed") { BundleSignature.verify(folder, KEY) }
    File(folder, "bundle.json").writeText("{\"format\": 1}\n")
    throws<EncoderException>("not signed", "minisig is missing") { BundleSignature.verify(folder, KEY) }
    File(folder, BundleSignature.FILE).writeText(SIGNATURE)
    passed("signed", BundleSignature.verify(folder, KEY) == "msdc test bundle")
    val other = KEY.replaceRange(20, 21, if (KEY[20] == 'A') "B" else "A")
    throws<EncoderException>("other key", "not one of this bundle.json") { BundleSignature.verify(folder, other) }
    throws<EncoderException>("other number", "with another key") { BundleSignature.verify(folder, KEY.replaceRange(5, 6, "A")) }
    throws<EncoderException>("no key", "the public key: not of") { BundleSignature.verify(folder, "RWT") }
    val signed = File(folder, "bundle.json").readBytes()
    fun changed(words: String, change: (List<String>) -> List<String>) = throws<EncoderException>(words, words) {
        BundleSignature.verify(signed, change(SIGNATURE.lines()).joinToString("\n"), KEY)
    }
    changed("its trusted comment was changed") { it.toMutableList().apply { set(2, "trusted comment: another") } }
    changed("without minisign's option -l") { it.toMutableList().apply { set(1, HASHED) } }
    changed("not of minisign's format") { it.take(2) }
    File(folder, "bundle.json").writeText("{\"format\": 2}\n")
    throws<EncoderException>("changed", "not one of this bundle.json") { BundleSignature.verify(folder, KEY) }
}

fun main(arguments: Array<String>) {
    val (bundle, assets, files) = arguments.map { File(it) }
    val context = Context(assets, files)
    SentenceEncoder.fromFolder(bundle, checkFiles = true).use { encoder ->
        checkEncoding(encoder)
        checkProgram(encoder, bundle)
        checkAssets(encoder, context, files)
        checkDownload(encoder, bundle, context, files)
        checkSignature(files)
    }
    println("done")
}
