package org.msdc.encoder

import android.content.Context
import java.io.File
import java.io.IOException
import java.security.MessageDigest

/** A bundle in the app's files; proven once its hashes were compared and its self-test passed there. */
internal class Installed(val folder: File) {
    private val mark = File(folder, ".proven")

    val proven: Boolean get() = mark.isFile

    fun prove() {
        mark.writeText("hashes compared, self-test passed\n")
    }
}

/** Copies a bundle out of the app's package: a program can be mapped from a file, not from inside an archive. */
internal object Assets {
    private const val MANIFEST = "bundle.json"

    /** The bundle of [name] in the assets, copied unless the same one (by its manifest) is there already. */
    @Synchronized
    fun install(context: Context, name: String): Installed {
        val manifest = read(context, "$name/$MANIFEST")
        // Not in the backup: the next install brings it again.
        val home = File(context.noBackupFilesDir, "msdc/$name")
        val folder = File(home, digest(manifest))
        if (folder.isDirectory) return Installed(folder)
        val stage = File(home, "partial")
        stage.deleteRecursively()
        if (!stage.mkdirs()) throw IOException("cannot make $stage")
        for (file in context.assets.list(name).orEmpty()) {
            context.assets.open("$name/$file").use { input ->
                File(stage, file).outputStream().use { output ->
                    input.copyTo(output)
                    output.fd.sync()
                }
            }
        }
        // Older versions of the bundle are deleted only now; a crash before this line leaves them.
        home.listFiles().orEmpty().filter { it != stage }.forEach { it.deleteRecursively() }
        if (!stage.renameTo(folder)) throw IOException("cannot move the bundle to $folder")
        return Installed(folder)
    }

    private fun read(context: Context, path: String): ByteArray = try {
        context.assets.open(path).use { it.readBytes() }
    } catch (missing: IOException) {
        throw IOException("no $path in the app's assets: add the module that msdc export wrote", missing)
    }

    private fun digest(bytes: ByteArray): String =
        MessageDigest.getInstance("SHA-256").digest(bytes).take(16).joinToString("") { "%02x".format(it) }
}
