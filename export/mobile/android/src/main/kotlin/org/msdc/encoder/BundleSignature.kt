package org.msdc.encoder

import java.io.File
import java.security.GeneralSecurityException
import java.security.KeyFactory
import java.security.Signature
import java.security.spec.X509EncodedKeySpec
import java.util.Base64

/**
 * Who made a bundle. The seal in bundle.json shows damage alone: whoever changes a bundle can seal it again. A signature
 * can only be made by the holder of a secret key, whose public key the app carries.
 *
 * Signed with `minisign -S -l -m bundle.json`: without `-l` minisign signs a hash that Android has no function for. Needs
 * Android 13 (API 33), the first with Ed25519.
 */
object BundleSignature {
    const val FILE = "bundle.json.minisig"
    private const val MAX_BYTES = 1024L * 1024
    private const val TRUSTED = "trusted comment: "

    // What X.509 writes before the 32 bytes of an Ed25519 key (RFC 8410).
    private val PREFIX = byteArrayOf(0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00)

    /**
     * The trusted comment of the signature in [folder], made with the key whose public half is [publicKey] (`RW...`).
     * Open the bundle with `checkFiles = true` afterwards: the signature covers bundle.json, and its hashes the rest.
     *
     * @throws EncoderException not signed, signed with another key, or changed since.
     */
    fun verify(folder: File, publicKey: String): String =
        verify(read(File(folder, "bundle.json")), read(File(folder, FILE)).toString(Charsets.UTF_8), publicKey)

    /** As above, of the bytes of a bundle.json and the text of its signature. */
    fun verify(signed: ByteArray, signature: String, publicKey: String): String {
        val lines = signature.lines()
        if (lines.size < 4 || !lines[2].startsWith(TRUSTED)) damaged("$FILE: not of minisign's format")
        val key = decoded(publicKey, 42, "the public key")
        val own = decoded(lines[1], 74, FILE)
        val whole = decoded(lines[3], 64, FILE)
        if (own[1] == 'D'.code.toByte()) damaged("$FILE: signed without minisign's option -l")
        if (!own.copyOf(10).contentEquals(key.copyOf(10))) damaged("$FILE: signed with another key")
        val comment = lines[2].removePrefix(TRUSTED)
        val made = own.copyOfRange(10, 74)
        if (!holds(key, made, signed)) damaged("$FILE: the signature is not one of this bundle.json")
        if (!holds(key, whole, made + comment.toByteArray())) damaged("$FILE: its trusted comment was changed")
        return comment
    }

    private fun holds(key: ByteArray, signature: ByteArray, message: ByteArray): Boolean = try {
        val spec = X509EncodedKeySpec(PREFIX + key.copyOfRange(10, 42))
        val check = Signature.getInstance("Ed25519")
        check.initVerify(KeyFactory.getInstance("Ed25519").generatePublic(spec))
        check.update(message)
        check.verify(signature)
    } catch (unknown: java.security.NoSuchAlgorithmException) {
        throw EncoderException(
            EncoderException.Kind.UNSUPPORTED, "this device has no Ed25519: signatures need Android 13 (API 33)", unknown
        )
    } catch (broken: GeneralSecurityException) {
        false
    }

    private fun decoded(text: String, size: Int, what: String): ByteArray {
        val raw = try {
            Base64.getDecoder().decode(text.trim())
        } catch (broken: IllegalArgumentException) {
            ByteArray(0)
        }
        if (raw.size != size) damaged("$what: not of minisign's format")
        return raw
    }

    private fun read(file: File): ByteArray {
        if (!file.isFile) damaged("${file.name} is missing: the bundle is not signed")
        if (file.length() > MAX_BYTES) damaged("${file.name} is too large")
        return file.readBytes()
    }
}
