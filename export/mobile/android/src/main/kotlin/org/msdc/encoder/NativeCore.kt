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

    @JvmStatic external fun name(handle: Long): ByteArray

    // A search index: JSON crosses as msdc_index.h describes it. An [encoder] of 0 is none.

    @JvmStatic external fun indexOpen(path: ByteArray, encoder: Long, check: Boolean): Long

    @JvmStatic external fun indexClose(index: Long)

    @JvmStatic external fun indexInterrupt(index: Long)

    @JvmStatic external fun indexState(index: Long): ByteArray

    @JvmStatic external fun indexIds(index: Long): ByteArray

    @JvmStatic external fun indexGet(index: Long, id: ByteArray): ByteArray?

    /** A batch of documents, to be closed. */
    @JvmStatic external fun indexDocuments(index: Long, encoder: Long, documents: ByteArray, replaces: Boolean): Long

    /** The next batch of a rebuild, to be closed; 0 once the index is of the encoder's model. */
    @JvmStatic external fun indexRebuild(index: Long, encoder: Long): Long

    /** What is to be encoded of a batch. */
    @JvmStatic external fun indexTexts(batch: Long): Array<ByteArray>

    /** Documents that were written; of a rebuild those with new vectors, and all. */
    @JvmStatic external fun indexWrite(index: Long, batch: Long, vectors: FloatArray, width: Int): LongArray

    @JvmStatic external fun indexBatchClose(batch: Long)

    @JvmStatic external fun indexRemove(index: Long, ids: ByteArray): Long

    /** What is to be encoded of a request; null where it needs no vector. */
    @JvmStatic external fun indexQuery(index: Long, encoder: Long, request: ByteArray): ByteArray?

    @JvmStatic external fun indexSearch(index: Long, request: ByteArray, vector: FloatArray?): ByteArray

    @JvmStatic external fun indexCheck(index: Long)

    @JvmStatic external fun indexBackup(index: Long, path: ByteArray)

    @JvmStatic external fun indexCompact(index: Long)
}
