package org.msdc.encoder

import java.io.Closeable

/** Runs a bundle's program. The encoder never calls it twice at a time. */
interface Program : Closeable {
    /**
     * The vector of token ids that already carry the special ids. The first [promptTokens] are not pooled: the second
     * input of a program that takes a prompt (`include_prompt: false`), 0 for others.
     */
    fun run(ids: IntArray, promptTokens: Int): FloatArray
}
