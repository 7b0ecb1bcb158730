package org.msdc.encoder

import java.io.File

/** The engine of this build: ONNX Runtime, called by the native core through its C interface. */
internal object Engine {
    val RUNTIME: String = "onnx"

    /** Never needed: the native core of this build runs programs itself. */
    fun program(folder: File, threads: Int): Program =
        throw UnsupportedOperationException("$folder, $threads threads: the native core was built without ONNX Runtime")
}
