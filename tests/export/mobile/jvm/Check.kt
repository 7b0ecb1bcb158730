// Runs the module's classes on a JVM, over the JNI library with ExecuTorch linked in. Prints one line a check.
import android.content.Context
import java.io.File
import java.io.IOException
import java.util.concurrent.CountDownLatch
import java.util.concurrent.atomic.AtomicInteger
import kotlin.concurrent.thread
import kotlin.coroutines.Continuation
import kotlin.coroutines.EmptyCoroutineContext
import kotlin.coroutines.startCoroutine
import org.msdc.encoder.Program
import org.msdc.encoder.SentenceEncoder

fun passed(name: String, ok: Boolean) = println("${if (ok) "ok" else "FAILED"} $name")

inline fun <reified T : Throwable> throws(name: String, words: String, work: () -> Unit) = try {
    work()
    passed(name, false)
} catch (error: Throwable) {
    if (error !is T || words !in error.message.orEmpty()) println("  $error")
    passed(name, error is T && words in error.message.orEmpty())
}

/** A program that another encoder runs: the way of an app with a runtime of its own. */
class Borrowed(private val encoder: SentenceEncoder) : Program {
    val calls = AtomicInteger()
    var inside = AtomicInteger()
    var crowded = false
    var failing = false
    var closed = false

    override fun run(ids: IntArray): FloatArray {
        if (failing) throw IllegalArgumentException("the program's own words")
        crowded = crowded || inside.incrementAndGet() > 1
        calls.incrementAndGet()
        return encoder.encodeIds(ids).also { inside.decrementAndGet() }
    }

    override fun close() {
        closed = true
    }
}

fun main(arguments: Array<String>) {
    val (bundle, assets, files) = arguments.map { File(it) }
    val encoder = SentenceEncoder.fromFolder(bundle, checkFiles = true)
    val found = encoder.selfTest()
    passed("self-test", found.texts >= 60 && found.idsDiffer == 0 && found.minCosine > 0.999f)
    passed("width", encoder.encode("hello").size == encoder.width)
    passed("emoji", encoder.tokenize("\uD83D\uDE00 a").size > 2)
    // Half a pair is U+FFFD, as where the golden ids were made; Java alone would write "?".
    passed("half a pair", encoder.tokenize("a\uD83D b").contentEquals(encoder.tokenize("a\uFFFD b")))
    passed("list", encoder.encode(listOf("a", "b")).size == 2)
    throws<IllegalArgumentException>("ids outside", "is not in the vocabulary") { encoder.encodeIds(intArrayOf(1 shl 20)) }
    throws<IOException>("no bundle", "not a bundle") { SentenceEncoder.fromFolder(File("/nowhere")) }

    val borrowed = Borrowed(encoder)
    val outer = SentenceEncoder.fromFolder(bundle, program = borrowed)
    passed("caller's program", outer.encode("hello").contentEquals(encoder.encode("hello")))
    passed("caller's self-test", outer.selfTest().meanCosine > 0.999f)
    borrowed.failing = true
    throws<IllegalArgumentException>("caller's exception", "the program's own words") { outer.encode("x") }
    borrowed.failing = false

    val expected = outer.encode("together")
    val same = AtomicInteger()
    (1..8).map { thread { repeat(20) { if (outer.encode("together").contentEquals(expected)) same.incrementAndGet() } } }
        .forEach { it.join() }
    passed("eight threads", same.get() == 160 && !borrowed.crowded)

    val latch = CountDownLatch(1)
    var suspended: FloatArray? = null
    val work: suspend () -> FloatArray = { outer.encodeSuspending("together") }
    work.startCoroutine(Continuation(EmptyCoroutineContext) {
        suspended = it.getOrNull()
        latch.countDown()
    })
    latch.await()
    passed("coroutine", suspended!!.contentEquals(expected))
    outer.close()
    outer.close()
    passed("program closed with it", borrowed.closed)
    throws<IllegalStateException>("closed", "the encoder is closed") { outer.encode("x") }

    val context = Context(assets, files)
    SentenceEncoder.fromAssets(context).use { passed("assets", it.encode("hello").contentEquals(encoder.encode("hello"))) }
    val installed = File(files, "msdc/msdc").listFiles()!!.single()
    passed("proven", File(installed, ".proven").isFile)
    // The second start finds it proven and copies nothing.
    val program = installed.listFiles()!!.single { it.name.endsWith(".pte") }
    val before = program.lastModified()
    SentenceEncoder.fromAssets(context).close()
    passed("copied once", program.lastModified() == before)
    // An install that was damaged before it was proven is refused.
    File(installed, ".proven").delete()
    program.outputStream().use { it.write(ByteArray(100)) }
    throws<IOException>("damaged install", "100 bytes where the manifest says") { SentenceEncoder.fromAssets(context) }
    throws<IOException>("no assets", "in the app's assets") { SentenceEncoder.fromAssets(context, "other") }
    encoder.close()
}
