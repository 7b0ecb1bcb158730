package org.msdc.encoder

import java.io.File
import org.pytorch.executorch.EValue
import org.pytorch.executorch.Module
import org.pytorch.executorch.Tensor

/** The engine of this build: ExecuTorch's published Android library, called from the native core. */
internal object Engine {
    val RUNTIME: String = "executorch"

    /** The bundle's program for [threads] threads. */
    fun program(folder: File, threads: Int): Program {
        val path = folder.path.toByteArray(Charsets.UTF_8)
        val (file, multiMethod, repeats, takesPrompt) = core.findProgram(path, RUNTIME).split("\n")
        return ExecuTorchProgram(File(folder, file), multiMethod == "1", repeats.toInt(), takesPrompt == "1", threads)
    }
}

/** A program whose recurring unit is one method, called [repeats] times, so that its weights are packed once. */
private class ExecuTorchProgram(
    file: File,
    private val multiMethod: Boolean,
    private val repeats: Int,
    private val takesPrompt: Boolean,
    threads: Int
) : Program {
    // Memory-mapped: pages of the token table are loaded when a token needs them.
    private val module: Module = Module.load(file.path, Module.LOAD_MODE_MMAP, threads)

    override fun run(ids: IntArray, promptTokens: Int): FloatArray {
        val length = ids.size.toLong()
        val input = EValue.from(Tensor.fromBlob(LongArray(ids.size) { ids[it].toLong() }, longArrayOf(1, length)))
        if (!multiMethod) {
            if (!takesPrompt) return vector("forward", input)
            val prompt = EValue.from(Tensor.fromBlob(longArrayOf(promptTokens.toLong()), longArrayOf(1)))
            return vector("forward", input, prompt)
        }
        var hidden = module.execute("embed", input)[0].toTensor()
        repeat(repeats) {
            // A copy: the next call may overwrite this output.
            val values = hidden.dataAsFloatArray
            hidden = module.execute("unit", EValue.from(Tensor.fromBlob(values, hidden.shape())))[0].toTensor()
        }
        return vector("pool", EValue.from(Tensor.fromBlob(hidden.dataAsFloatArray, hidden.shape())))
    }

    private fun vector(method: String, vararg inputs: EValue): FloatArray =
        module.execute(method, *inputs)[0].toTensor().dataAsFloatArray

    override fun close() = module.destroy()
}
