package org.msdc.encoder

/** The JNI side of the encoder core. Folders and texts cross as UTF-8 bytes. */
internal object NativeCore {
    init {
        System.loadLibrary("msdc_encoder_jni")
    }

    /** What this build runs programs with: "none", "executorch" or "onnx". */
    @JvmStatic external fun runtime(): String

    @JvmStatic external fun open(folder: ByteArray, threads: Int, checkFiles: Boolean): Long

    @JvmStatic external fun openWith(folder: ByteArray, checkFiles: Boolean, runtime: String, program: Program): Long

    @JvmStatic external fun close(handle: Long)

    /** "file, multi-method (1 or 0), repeats", one per line. */
    @JvmStatic external fun findProgram(folder: ByteArray, runtime: String): String

    @JvmStatic external fun width(handle: Long): Int

    @JvmStatic external fun maxLength(handle: Long): Int

    /** The prompt under [name]; null where there is none. A null name asks for the default prompt. */
    @JvmStatic external fun prompt(handle: Long, name: ByteArray?): ByteArray?

    /** A null [prompt] is the bundle's default. */
    @JvmStatic external fun encode(handle: Long, text: ByteArray, prompt: ByteArray?): FloatArray

    @JvmStatic external fun encodeIds(handle: Long, ids: IntArray): FloatArray

    @JvmStatic external fun tokenize(handle: Long, text: ByteArray): IntArray

    @JvmStatic external fun selfTest(handle: Long, promise: Float): FloatArray
}
