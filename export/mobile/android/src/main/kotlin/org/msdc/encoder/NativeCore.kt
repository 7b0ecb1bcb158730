package org.msdc.encoder

import java.nio.ByteBuffer

/** The encoder core. @throws EncoderException the app has no library for this device. */
internal val core: NativeCore
    get() = NativeCore.apply {
        missing?.let {
            val abi = System.getProperty("os.arch") ?: "unknown"
            throw EncoderException(
                EncoderException.Kind.UNSUPPORTED, "no libmsdc_encoder_jni.so for this device's processor ($abi) in the app", it
            )
        }
    }

/** The JNI side of [core]. Folders and texts cross as UTF-8 bytes. */
internal object NativeCore {
    val missing: UnsatisfiedLinkError? = try {
        System.loadLibrary("msdc_encoder_jni")
        null
    } catch (error: UnsatisfiedLinkError) {
        error
    }

    /** What this build runs programs with: "none", "executorch" or "onnx". */
    @JvmStatic external fun runtime(): String

    @JvmStatic external fun open(folder: ByteArray, threads: Int, checkFiles: Boolean): Long

    @JvmStatic external fun openWith(folder: ByteArray, checkFiles: Boolean, runtime: String, program: Program): Long

    @JvmStatic external fun close(handle: Long)

    /** "file, multi-method (1 or 0), repeats, takes the prompt's tokens (1 or 0)", one per line. */
    @JvmStatic external fun findProgram(folder: ByteArray, runtime: String): String

    /** "name, bytes, sha256" of every file that the program needs, tabs between, one file per line. */
    @JvmStatic external fun bundleFiles(folder: ByteArray, runtime: String): String

    @JvmStatic external fun width(handle: Long): Int

    @JvmStatic external fun maxLength(handle: Long): Int

    @JvmStatic external fun prompt(handle: Long, name: ByteArray): ByteArray

    /** A null [prompt] is the bundle's default. */
    @JvmStatic external fun encode(handle: Long, text: ByteArray, prompt: ByteArray?): FloatArray

    /** Rows of all [texts], one after another. A non-zero byte in the direct buffer [stop] ends it before the next text. */
    @JvmStatic
    external fun encodeBatch(handle: Long, texts: Array<ByteArray>, prompt: ByteArray?, stop: ByteBuffer?): FloatArray

    /** How many texts have more tokens, with their prompt, than the longest input. */
    @JvmStatic external fun countTruncated(handle: Long, texts: Array<ByteArray>, prompt: ByteArray?): Int

    @JvmStatic external fun encodeIds(handle: Long, ids: IntArray): FloatArray

    @JvmStatic external fun tokenize(handle: Long, text: ByteArray): IntArray

    @JvmStatic external fun selfTest(handle: Long, promise: Float): FloatArray

    @JvmStatic external fun cosine(a: FloatArray, b: FloatArray): Float

    /** Fills [rows] with the nearest of the first [count] rows of [vectors], and returns their cosines. */
    @JvmStatic external fun topK(query: FloatArray, vectors: FloatArray, count: Int, rows: IntArray): FloatArray

    @JvmStatic external fun source(handle: Long): String

    @JvmStatic external fun cosines(handle: Long): String

    @JvmStatic external fun name(handle: Long): ByteArray

    @JvmStatic external fun canRead(handle: Long, text: ByteArray): Boolean

    /** Of each passage: start and end in code points, scale (0: no vector follows), 8-bit vector; little-endian. */
    @JvmStatic external fun passages(handle: Long, title: ByteArray, text: ByteArray, titled: Boolean): ByteArray

    /** The words of a text as an index stores them. */
    @JvmStatic external fun searchWords(text: ByteArray): ByteArray

    /** What the statements of search.sql look for, as JSON. */
    @JvmStatic external fun searchPlan(query: ByteArray, operators: Boolean): ByteArray

    /** The number of the passage to show, then start and end of each span of [terms]; all in code points. */
    @JvmStatic
    external fun searchShow(
        text: ByteArray, terms: ByteArray, starts: LongArray, ends: LongArray, cosines: FloatArray, byCosine: Boolean
    ): IntArray

    @JvmStatic external fun int8Cosines(query: FloatArray, codes: ByteArray, scales: FloatArray): FloatArray

    @JvmStatic external fun crc32(start: Int, data: ByteArray): Int
}
