package org.msdc.encoder

import java.io.Closeable

/** Runs a bundle's program. The encoder never calls it twice at a time. */
interface Program : Closeable {
    /** The vector of token ids that already carry the special ids. */
    fun run(ids: IntArray): FloatArray
}
