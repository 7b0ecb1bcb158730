package org.msdc.encoder

import android.content.Context
import java.io.File
import java.io.IOException
import java.io.InputStream
import java.io.InterruptedIOException
import java.net.HttpURLConnection
import java.net.URL
import java.security.MessageDigest

/** A bundle in the app's files; proven once its hashes were compared and its self-test passed there. */
internal class Installed(val folder: File) {
    private val mark = File(folder, ".proven")

    val proven: Boolean get() = mark.isFile

    fun prove() {
        mark.writeText("hashes compared, self-test passed\n")
    }
}

/**
 * Copies the files that the program needs into the app's files, where they can be mapped. What is copied has the sizes
 * and hashes of the manifest; a folder appears complete or not at all, and an interrupted copy continues with the files
 * that are missing.
 */
internal object Install {
    private const val MANIFEST = "bundle.json"
    private const val ASSETS = "msdc"
    private const val MAX_MANIFEST_BYTES = 1024L * 1024

    /** The bundle `msdc/[name]` of the assets, or the only one there. */
    fun fromAssets(context: Context, name: String?): Installed = files {
        val there = context.assets.list(ASSETS).orEmpty().sorted()
        val own = name ?: there.singleOrNull()
        if (own == null || own !in there) {
            val what = if (name != null) "no bundle \"$name\"" else if (there.isEmpty()) "no bundle" else "several bundles"
            damaged("$what in the app's assets (there: ${there.joinToString(", ").ifEmpty { "none" }}); " +
                "the module that msdc export wrote adds one")
        }
        val manifest = context.assets.open("$ASSETS/$own/$MANIFEST").use { it.readBytes() }
        install(File(context.noBackupFilesDir, "msdc/$own"), manifest) { context.assets.open("$ASSETS/$own/$it") }
    }

    // Input and output that failed, as the module's own exception; what the caller interrupted stays as it is.
    private inline fun <T> files(work: () -> T): T = try {
        work()
    } catch (interrupted: InterruptedIOException) {
        throw interrupted
    } catch (failure: IOException) {
        throw EncoderException(EncoderException.Kind.IO, failure.message ?: failure.toString(), failure)
    }

    /** The bundle whose files [fetch] opens by name, and whose bundle.json has this [sha256]. */
    fun fromDownload(
        context: Context,
        name: String,
        sha256: String,
        progress: (Long, Long) -> Unit,
        fetch: (String) -> InputStream
    ): Installed = files {
        require(sha256.length == 64) { "sha256 has 64 hexadecimal digits, not ${sha256.length}" }
        val home = File(context.noBackupFilesDir, "msdc/$name")
        val folder = folderOf(home, sha256)
        if (folder.isDirectory) return@files Installed(folder)
        val manifest = fetch(MANIFEST).use { input ->
            val bytes = java.io.ByteArrayOutputStream()
            copy(input, bytes, MAX_MANIFEST_BYTES, MANIFEST)
            bytes.toByteArray()
        }
        val found = hex(MessageDigest.getInstance("SHA-256").digest(manifest))
        if (!found.equals(sha256, ignoreCase = true)) damaged("$MANIFEST has the sha256 $found, not $sha256")
        install(home, manifest, progress, fetch)
    }

    /** Opens a file below the web address [base]; redirects are followed, anything but 200 is an error. */
    fun http(base: String): (String) -> InputStream = { name ->
        val connection = URL("${base.trimEnd('/')}/$name").openConnection() as HttpURLConnection
        connection.connectTimeout = TIMEOUT_MS
        connection.readTimeout = TIMEOUT_MS
        if (connection.responseCode != HttpURLConnection.HTTP_OK) {
            val code = connection.responseCode
            connection.disconnect()
            throw EncoderException(EncoderException.Kind.IO, "${connection.url}: HTTP $code")
        }
        connection.inputStream
    }

    @Synchronized
    private fun install(
        home: File,
        manifest: ByteArray,
        progress: (Long, Long) -> Unit = { _, _ -> },
        open: (String) -> InputStream
    ): Installed {
        // Outside the backup: the app can install it again.
        val digest = hex(MessageDigest.getInstance("SHA-256").digest(manifest))
        val folder = folderOf(home, digest)
        if (folder.isDirectory) return Installed(folder)
        val stage = File(home, "partial-${folder.name}")
        if (!stage.isDirectory && !stage.mkdirs()) throw IOException("cannot make $stage")
        File(stage, MANIFEST).writeBytes(manifest)
        val lines = NativeCore.bundleFiles(stage.path.toByteArray(Charsets.UTF_8), Engine.RUNTIME)
        val files = lines.trim().split("\n").map { it.split("\t") }
        val total = files.sumOf { it[1].toLong() }
        var done = 0L
        for ((name, size, sha256) in files) {
            val file = File(stage, name)
            val bytes = size.toLong()
            if (!file.isFile || file.length() != bytes || hashOf(file) != sha256) {
                file.parentFile?.mkdirs()
                val found = open(name).use { input -> write(input, file, bytes) { progress(done + it, total) } }
                if (file.length() != bytes || found != sha256) {
                    file.delete()
                    damaged("$name differs from the one that bundle.json lists")
                }
            }
            done += bytes
            progress(done, total)
        }
        if (!stage.renameTo(folder)) throw IOException("cannot move the bundle to $folder")
        // Older versions of the bundle are deleted only now; a crash before this line leaves them.
        home.listFiles().orEmpty().filter { it != folder }.forEach { it.deleteRecursively() }
        return Installed(folder)
    }

    private fun folderOf(home: File, sha256: String) = File(home, sha256.lowercase().take(32))

    private fun write(input: InputStream, file: File, bytes: Long, progress: (Long) -> Unit): String {
        val digest = MessageDigest.getInstance("SHA-256")
        file.outputStream().use { output ->
            java.security.DigestOutputStream(output, digest).let { copy(input, it, bytes, file.name, progress) }
            output.fd.sync()
        }
        return hex(digest.digest())
    }

    private fun hashOf(file: File): String {
        val digest = MessageDigest.getInstance("SHA-256")
        file.inputStream().use { input ->
            val buffer = ByteArray(BUFFER)
            while (true) {
                val count = input.read(buffer)
                if (count < 0) return hex(digest.digest())
                digest.update(buffer, 0, count)
            }
        }
    }

    // At most `limit` bytes, whatever the other side sends; stops when the thread is interrupted.
    private fun copy(
        input: InputStream,
        output: java.io.OutputStream,
        limit: Long,
        name: String,
        progress: (Long) -> Unit = {}
    ) {
        val buffer = ByteArray(BUFFER)
        var total = 0L
        while (true) {
            if (Thread.interrupted()) throw InterruptedIOException("interrupted at $name")
            val count = input.read(buffer)
            if (count < 0) return
            total += count
            if (total > limit) damaged("$name is longer than $limit bytes")
            output.write(buffer, 0, count)
            progress(total)
        }
    }

    private fun hex(bytes: ByteArray): String = bytes.joinToString("") { "%02x".format(it) }

    private const val BUFFER = 1 shl 16
    private const val TIMEOUT_MS = 30_000
}
