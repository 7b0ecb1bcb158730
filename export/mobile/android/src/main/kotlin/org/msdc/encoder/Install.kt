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
    private const val MAX_MANIFEST_BYTES = 1024L * 1024

    /** The bundle in the folder [name] of the assets. */
    fun fromAssets(context: Context, name: String): Installed {
        val manifest = try {
            context.assets.open("$name/$MANIFEST").use { it.readBytes() }
        } catch (missing: IOException) {
            throw IOException("no $name/$MANIFEST in the app's assets: add the module that msdc export wrote", missing)
        }
        return install(File(context.noBackupFilesDir, "msdc/$name"), manifest) { context.assets.open("$name/$it") }
    }

    /** The bundle whose files [fetch] opens by name, and whose bundle.json has this [sha256]. */
    fun fromDownload(context: Context, name: String, sha256: String, fetch: (String) -> InputStream): Installed {
        require(sha256.length == 64) { "sha256 has 64 hexadecimal digits, not ${sha256.length}" }
        val home = File(context.noBackupFilesDir, "msdc/$name")
        val folder = folderOf(home, sha256)
        if (folder.isDirectory) return Installed(folder)
        val manifest = fetch(MANIFEST).use { input ->
            val bytes = java.io.ByteArrayOutputStream()
            copy(input, bytes, MAX_MANIFEST_BYTES, MANIFEST)
            bytes.toByteArray()
        }
        val found = hex(MessageDigest.getInstance("SHA-256").digest(manifest))
        if (!found.equals(sha256, ignoreCase = true)) throw IOException("$MANIFEST has the sha256 $found, not $sha256")
        return install(home, manifest, fetch)
    }

    /** Opens a file below the web address [base]; redirects are followed, anything but 200 is an error. */
    fun http(base: String): (String) -> InputStream = { name ->
        val connection = URL("${base.trimEnd('/')}/$name").openConnection() as HttpURLConnection
        connection.connectTimeout = TIMEOUT_MS
        connection.readTimeout = TIMEOUT_MS
        if (connection.responseCode != HttpURLConnection.HTTP_OK) {
            val code = connection.responseCode
            connection.disconnect()
            throw IOException("${connection.url}: HTTP $code")
        }
        connection.inputStream
    }

    @Synchronized
    private fun install(home: File, manifest: ByteArray, open: (String) -> InputStream): Installed {
        // Outside the backup: the app can install it again.
        val digest = hex(MessageDigest.getInstance("SHA-256").digest(manifest))
        val folder = folderOf(home, digest)
        if (folder.isDirectory) return Installed(folder)
        val stage = File(home, "partial-${folder.name}")
        if (!stage.isDirectory && !stage.mkdirs()) throw IOException("cannot make $stage")
        File(stage, MANIFEST).writeBytes(manifest)
        val lines = NativeCore.bundleFiles(stage.path.toByteArray(Charsets.UTF_8), Engine.RUNTIME)
        for (line in lines.trim().split("\n")) {
            val (name, bytes, sha256) = line.split("\t")
            val file = File(stage, name)
            if (file.isFile && file.length() == bytes.toLong() && hashOf(file) == sha256) continue
            file.parentFile?.mkdirs()
            val found = open(name).use { input -> write(input, file, bytes.toLong()) }
            if (file.length() != bytes.toLong() || found != sha256) {
                file.delete()
                throw IOException("$name differs from the one that bundle.json lists")
            }
        }
        // Older versions of the bundle are deleted only now; a crash before this line leaves them.
        home.listFiles().orEmpty().filter { it != stage }.forEach { it.deleteRecursively() }
        if (!stage.renameTo(folder)) throw IOException("cannot move the bundle to $folder")
        return Installed(folder)
    }

    private fun folderOf(home: File, sha256: String) = File(home, sha256.lowercase().take(32))

    private fun write(input: InputStream, file: File, bytes: Long): String {
        val digest = MessageDigest.getInstance("SHA-256")
        file.outputStream().use { output ->
            java.security.DigestOutputStream(output, digest).let { copy(input, it, bytes, file.name) }
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
    private fun copy(input: InputStream, output: java.io.OutputStream, limit: Long, name: String) {
        val buffer = ByteArray(BUFFER)
        var total = 0L
        while (true) {
            if (Thread.interrupted()) throw InterruptedIOException("interrupted at $name")
            val count = input.read(buffer)
            if (count < 0) return
            total += count
            if (total > limit) throw IOException("$name is longer than $limit bytes")
            output.write(buffer, 0, count)
        }
    }

    private fun hex(bytes: ByteArray): String = bytes.joinToString("") { "%02x".format(it) }

    private const val BUFFER = 1 shl 16
    private const val TIMEOUT_MS = 30_000
}
