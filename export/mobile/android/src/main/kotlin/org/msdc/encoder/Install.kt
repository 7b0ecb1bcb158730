package org.msdc.encoder

import android.content.Context
import java.io.ByteArrayOutputStream
import java.io.File
import java.io.FileOutputStream
import java.io.IOException
import java.io.InputStream
import java.io.InterruptedIOException
import java.io.OutputStream
import java.io.RandomAccessFile
import java.net.HttpURLConnection
import java.net.SocketTimeoutException
import java.net.URL
import java.security.DigestOutputStream
import java.security.MessageDigest
import java.util.concurrent.locks.ReentrantLock

/** A bundle in the app's files, whose hashes were compared; proven once its self-test passed there. */
internal class Installed(val folder: File) {
    private val mark = File(folder, ".proven")

    val proven: Boolean get() = mark.isFile

    fun prove() = mark.writeText("self-test passed\n")

    fun disprove() {
        mark.delete()
    }
}

/**
 * Copies the files that the program needs into the app's files, where they can be mapped. What is copied has the sizes
 * and hashes of the manifest; a folder appears complete or not at all, for all processes of the app. An interrupted copy
 * continues with the files that are missing, and what was damaged since is copied again.
 */
internal object Install {
    private const val MANIFEST = "bundle.json"
    private const val ASSETS = "msdc"
    private const val MAX_MANIFEST_BYTES = 1024L * 1024

    /** The bundle `msdc/[name]` of the assets, or the only one there; with [anew] all files are copied again. */
    fun fromAssets(context: Context, name: String?, anew: Boolean = false): Installed = files {
        val there = context.assets.list(ASSETS).orEmpty().sorted()
        val own = name ?: there.singleOrNull()
        if (own == null || own !in there) {
            val what = if (name != null) "no bundle \"$name\"" else if (there.isEmpty()) "no bundle" else "several bundles"
            damaged("$what in the app's assets (there: ${there.joinToString(", ").ifEmpty { "none" }}); " +
                "the module that msdc export wrote adds one")
        }
        val manifest = context.assets.open("$ASSETS/$own/$MANIFEST").use { it.readBytes() }
        val home = File(context.noBackupFilesDir, "msdc/$own")
        locked(home) {
            if (anew) home.deleteRecursively()
            val folder = folderOf(home, sha256(manifest))
            if (!isIntact(folder)) install(folder, manifest) { context.assets.open("$ASSETS/$own/$it") }
            Installed(folder)
        }
    }

    private val installing = ReentrantLock()

    /** Copies the asset [name] to [target] unless that is there. The copy is on the disk before it has its name. */
    fun copyAsset(context: Context, name: String, target: File) {
        val stage = File(target.path + ".partial")
        try {
            locked(target) {
                if (target.isFile) return@locked
                context.assets.open(name).use { input ->
                    stage.outputStream().use {
                        input.copyTo(it)
                        it.fd.sync()
                    }
                }
                if (!stage.renameTo(target)) throw IOException("cannot move it to $target")
            }
        } catch (failure: IOException) {
            throw EncoderException(EncoderException.Kind.IO, "index $name: ${failure.message}", failure)
        }
    }

    /**
     * Runs [work] while no other thread or process installs to [target]. A process that dies gives the lock back; waiting
     * for it can be interrupted.
     */
    fun <T> locked(target: File, work: () -> T): T {
        try {
            installing.lockInterruptibly()
        } catch (interrupted: InterruptedException) {
            throw InterruptedIOException("interrupted at ${target.name}").initCause(interrupted)
        }
        try {
            target.parentFile?.mkdirs()
            RandomAccessFile("${target.path}.lock", "rw").use { file ->
                try {
                    file.channel.lock()
                } catch (interrupted: IOException) {
                    if (Thread.interrupted()) {
                        throw InterruptedIOException("interrupted at ${target.name}").initCause(interrupted)
                    }
                    throw interrupted
                }
                return work()
            }
        } finally {
            installing.unlock()
        }
    }

    // Input and output that failed, as the module's own exception; what the caller interrupted stays as it is.
    private inline fun <T> files(work: () -> T): T = try {
        work()
    } catch (failure: IOException) {
        if (isInterruption(failure)) throw failure
        throw EncoderException(EncoderException.Kind.IO, failure.message ?: failure.toString(), failure)
    }

    // A server that does not answer in time is a failure.
    private fun isInterruption(failure: IOException) =
        failure is InterruptedIOException && failure !is SocketTimeoutException

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
        locked(home) {
            if (!isIntact(folder)) {
                val manifest = fetch(MANIFEST).use { input ->
                    val bytes = ByteArrayOutputStream()
                    copy(input, bytes, MAX_MANIFEST_BYTES, MANIFEST)
                    bytes.toByteArray()
                }
                val actual = sha256(manifest)
                if (!actual.equals(sha256, ignoreCase = true)) damaged("$MANIFEST has the sha256 $actual, not $sha256")
                install(folder, manifest, progress, fetch)
            }
            Installed(folder)
        }
    }

    /** Opens files below the web address [base]; redirects are followed, anything but 200 and 206 is an error. */
    class Http(private val base: String) : (String) -> InputStream {
        override fun invoke(name: String): InputStream = open(name, 0).first

        /** A file from byte [start] on and this number, or all of it and 0 where the server sends no part. */
        fun open(name: String, start: Long): Pair<InputStream, Long> {
            val connection = URL("${base.trimEnd('/')}/$name").openConnection() as HttpURLConnection
            connection.connectTimeout = TIMEOUT_MS
            connection.readTimeout = TIMEOUT_MS
            if (start > 0) connection.setRequestProperty("Range", "bytes=$start-")
            val code = connection.responseCode
            val sent = connection.getHeaderField("Content-Range")?.removePrefix("bytes ")?.substringBefore('-')
            if (code == HttpURLConnection.HTTP_PARTIAL && sent == "$start") return connection.inputStream to start
            if (code == HttpURLConnection.HTTP_OK) return connection.inputStream to 0
            connection.disconnect()
            if (start > 0) return open(name, 0)
            throw EncoderException(EncoderException.Kind.IO, "${connection.url}: HTTP $code")
        }
    }

    /**
     * Copies to [folder] what differs there or is missing; by whom [locked]. What is damaged is replaced by new files: those
     * that another process has mapped stay readable.
     */
    private fun install(
        folder: File,
        manifest: ByteArray,
        progress: (Long, Long) -> Unit = { _, _ -> },
        open: (String) -> InputStream
    ) {
        // Outside the backup: the app can install it again.
        val home = folder.parentFile!!
        val stage = File(home, "partial-${folder.name}")
        if (folder.exists()) {
            stage.deleteRecursively()
            if (!folder.renameTo(stage)) throw IOException("cannot move the damaged bundle $folder")
            Installed(stage).disprove()
        }
        if (stage.isFile) stage.delete()
        if (!stage.isDirectory && !stage.mkdirs()) throw IOException("cannot make $stage")
        write(manifest.inputStream(), File(stage, MANIFEST), manifest.size.toLong(), 0) {}
        val files = listed(stage)
        val total = files.sumOf { it.bytes }
        var done = 0L
        for (part in files) {
            val file = File(stage, part.name)
            if (!part.isIn(stage)) {
                file.parentFile?.mkdirs()
                val kept = if (open is Http && file.isFile && file.length() < part.bytes) file.length() else 0
                // What an interrupted download left may be that of another file: then all of it is read.
                val sides = if (kept > 0) listOf(kept, 0L) else listOf(0L)
                if (sides.none { fetch(part, file, open, it) { bytes -> progress(done + bytes, total) } }) {
                    file.delete()
                    damaged("${part.name} differs from the one that bundle.json lists")
                }
            }
            done += part.bytes
            progress(done, total)
        }
        if (!stage.renameTo(folder)) throw IOException("cannot move the bundle to $folder")
        // Older versions of the bundle are deleted only now; a crash before this line leaves them.
        home.listFiles().orEmpty().filter { it != folder }.forEach { it.deleteRecursively() }
    }

    /** Whether [file] is the part, read from byte [start] on. */
    private fun fetch(
        part: Part, file: File, open: (String) -> InputStream, start: Long, progress: (Long) -> Unit
    ): Boolean {
        val (input, first) = if (open is Http && start > 0) open.open(part.name, start) else open(part.name) to 0L
        val actual = input.use { write(it, file, part.bytes, first, progress) }
        // The connection ended: the next call continues.
        if (open is Http && file.length() < part.bytes) {
            throw IOException("${part.name}: ${file.length()} of ${part.bytes} bytes")
        }
        return file.length() == part.bytes && actual == part.sha256
    }

    private class Part(val name: String, val bytes: Long, val sha256: String) {
        fun isIn(folder: File): Boolean = File(folder, name).let { it.isFile && it.length() == bytes && hashOf(it) == sha256 }
    }

    private fun listed(folder: File): List<Part> =
        core.bundleFiles(folder.path.toByteArray(Charsets.UTF_8), Engine.RUNTIME).trim().split("\n").map { line ->
            line.split("\t").let { (name, bytes, sha256) -> Part(name, bytes.toLong(), sha256) }
        }

    // Hashes and not only sizes: after a crash a file may have its length and zeros.
    private fun isIntact(folder: File): Boolean {
        val manifest = File(folder, MANIFEST)
        return manifest.isFile && folder == folderOf(folder.parentFile!!, hashOf(manifest)) &&
            listed(folder).all { it.isIn(folder) }
    }

    private fun folderOf(home: File, sha256: String) = File(home, sha256.lowercase().take(32))

    /** Writes a file of at most so many bytes, behind its first [start] ones, and returns the hash of all of it. */
    private fun write(input: InputStream, file: File, bytes: Long, start: Long, progress: (Long) -> Unit): String {
        val digest = if (start > 0) digestOf(file) else MessageDigest.getInstance("SHA-256")
        if (start == 0L) file.deleteRecursively()
        try {
            FileOutputStream(file, start > 0).use { output ->
                val limit = bytes - start
                DigestOutputStream(output, digest).let { copy(input, it, limit, file.name) { n -> progress(start + n) } }
                output.fd.sync()
            }
        } catch (failure: IOException) {
            throw if (isInterruption(failure)) failure else IOException("${file.name}: ${failure.message}", failure)
        }
        return hex(digest.digest())
    }

    private fun hashOf(file: File): String = hex(digestOf(file).digest())

    private fun digestOf(file: File): MessageDigest {
        val digest = MessageDigest.getInstance("SHA-256")
        file.inputStream().use { input ->
            val buffer = ByteArray(BUFFER)
            while (true) {
                val count = input.read(buffer)
                if (count < 0) return digest
                digest.update(buffer, 0, count)
            }
        }
    }

    // At most `limit` bytes, whatever the other side sends; stops when the thread is interrupted.
    private fun copy(
        input: InputStream,
        output: OutputStream,
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

    private fun sha256(bytes: ByteArray): String = hex(MessageDigest.getInstance("SHA-256").digest(bytes))

    private fun hex(bytes: ByteArray): String = bytes.joinToString("") { "%02x".format(it) }

    private const val BUFFER = 1 shl 16
    private const val TIMEOUT_MS = 30_000
}
