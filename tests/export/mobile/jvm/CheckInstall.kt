// Installs the bundle of an app's assets as an app's processes do: `start FILE` once that exists, for several at once, `heal` with
// what an installed file can suffer, `absent` without the native library. Prints one line for each check.
import android.content.Context
import java.io.File
import java.io.RandomAccessFile
import kotlin.concurrent.thread
import org.msdc.encoder.EncoderException
import org.msdc.encoder.SentenceEncoder
import org.msdc.encoder.Vectors

fun works(context: Context) = SentenceEncoder.fromAssets(context).use { it.selfTest().idsDiffer == 0 }

fun parts(files: File) = files.walk().filter { it.isFile && it.name != ".proven" && it.extension != "lock" }.toList()

fun checkHealing(context: Context, assets: File, files: File) {
    passed("first start", works(context))
    val damages = mapOf<String, (File) -> Unit>(
        "gone" to { it.delete() },
        "cut" to { file -> RandomAccessFile(file, "rw").use { it.setLength(it.length() / 2) } },
        "empty" to { it.writeBytes(ByteArray(0)) },
        "zeros" to { it.writeBytes(ByteArray(it.length().toInt())) },
        "one bit" to { file -> file.writeBytes(file.readBytes().also { it[it.size / 2] = (it[it.size / 2].toInt() xor 4).toByte() }) },
        "longer" to { it.appendBytes(ByteArray(1)) },
        "a folder" to { it.delete() && File(it, "inside").mkdirs() }
    )
    val names = parts(files).map { it.relativeTo(files) }
    passed("files", names.size >= 4 && names.any { it.name == "bundle.json" })
    for ((damage, apply) in damages) for (name in names) {
        val file = File(files, name.path)
        val time = file.lastModified()
        apply(file)
        file.setLastModified(time)
        passed("$damage: ${name.name}", works(context) && parts(files).map { it.relativeTo(files) }.toSet() == names.toSet())
    }
    // A file that another process has mapped is replaced, not written to.
    val weights = File(files, names.maxByOrNull { File(files, it.path).length() }!!.path)
    val held = RandomAccessFile(weights, "rw")
    held.seek(100)
    held.write(ByteArray(1000) { 7 })
    passed("healed beside a reader", works(context))
    held.seek(100)
    passed("what it reads stays", held.read() == 7)
    held.close()
    File(assets, "msdc/tiny/golden.json").let { golden ->
        val whole = golden.readBytes()
        golden.writeBytes(whole.copyOf(whole.size - 1))
        passed("assets that are not needed", works(context))
        parts(files).single { it.name == "golden.json" }.delete()
        repeat(2) { throws<EncoderException>("damaged assets", "golden.json differs from the one that bundle.json lists") { works(context) } }
        throws<EncoderException>("reinstall of damaged assets", "golden.json differs") { SentenceEncoder.reinstall(context) }
        golden.writeBytes(whole)
        passed("whole again", works(context))
    }
    val before = parts(files).single { it.name == "golden.json" }.also { it.setLastModified(1000) }
    SentenceEncoder.reinstall(context).use { passed("reinstalled", it.selfTest().idsDiffer == 0 && before.lastModified() > 1000) }
    val threads = List(4) { thread { repeat(3) { works(context) } } }
    threads.forEach { it.join() }
    passed("four threads", works(context))
    File(files, "msdc/tiny").deleteRecursively()
    File(files, "msdc/tiny").writeText("a file where a folder should be")
    throws<EncoderException>("a file in the way", "tiny") { works(context) }
}

fun main(words: Array<String>) {
    val (mode, assets, files) = words
    val context = Context(File(assets), File(files))
    when (mode) {
        "start" -> {
            println("ready")
            while (!File(words[3]).exists()) Thread.onSpinWait()
            passed("installed", works(context))
        }
        "heal" -> checkHealing(context, File(assets), File(files))
        "absent" -> {
            passed("not supported", !SentenceEncoder.isSupported())
            repeat(2) {
                throws<EncoderException>("assets", "no libmsdc_encoder_jni.so for this device's processor") { works(context) }
                throws<EncoderException>("folder", "no libmsdc_encoder_jni.so") { SentenceEncoder.fromFolder(File(assets, "msdc/tiny")) }
                throws<EncoderException>("cosine", "no libmsdc_encoder_jni.so") { Vectors.cosine(FloatArray(2), FloatArray(2)) }
            }
        }
    }
    println("done")
}
