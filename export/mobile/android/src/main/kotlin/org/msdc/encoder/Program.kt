package org.msdc.encoder

import java.io.Closeable
import java.io.File
import org.pytorch.executorch.EValue
import org.pytorch.executorch.Module
import org.pytorch.executorch.Tensor

/** Runs a bundle's program. The encoder never calls it twice at a time. */
interface Program : Closeable {
    /** The vector of token ids that already carry the special ids. */
    fun run(ids: IntArray): FloatArray
}

/**
 * The program through ExecuTorch's published Android library (org.pytorch:executorch-android). The recurring unit is
 * one method, called [repeats] times, so its weights are packed once.
 */
internal class ExecuTorchProgram(file: File, private val multiMethod: Boolean, private val repeats: Int, threads: Int) :
    Program {
    // Memory-mapped: pages of the token table are loaded when a token needs them.
    private val module: Module = Module.load(file.path, Module.LOAD_MODE_MMAP, threads)

    override fun run(ids: IntArray): FloatArray {
        val length = ids.size.toLong()
        val input = EValue.from(Tensor.fromBlob(LongArray(ids.size) { ids[it].toLong() }, longArrayOf(1, length)))
        if (!multiMethod) {
            return vector("forward", input)
        }
        var hidden = module.execute("embed", input)[0].toTensor()
        for (i in 0 until repeats) {
            // A copy: the next call may overwrite this output.
            val values = hidden.dataAsFloatArray
            hidden = module.execute("unit", EValue.from(Tensor.fromBlob(values, hidden.shape())))[0].toTensor()
        }
        return vector("pool", EValue.from(Tensor.fromBlob(hidden.dataAsFloatArray, hidden.shape())))
    }

    private fun vector(method: String, input: EValue): FloatArray =
        module.execute(method, input)[0].toTensor().dataAsFloatArray

    override fun close() = module.destroy()
}
