package org.msdc.encoder

/**
 * What went wrong outside the caller's hands, in one line. A wrong argument is an [IllegalArgumentException], a cancelled
 * call a `CancellationException`.
 */
class EncoderException(val kind: Kind, message: String, cause: Throwable? = null) : Exception(message, cause) {
    /**
     * A bundle or an index is damaged; it is intact but not for this build or device; an index is intact but of another
     * model ([SearchIndex.rebuild]); the runtime failed; the self-test did; the network or storage did; the encoder or
     * index is closed; another file took the place of an index's; another process holds its lock; the storage is full; its
     * file cannot be written.
     */
    enum class Kind { DAMAGED, UNSUPPORTED, OTHER_MODEL, RUNTIME, GOLDEN, IO, CLOSED, REPLACED, LOCKED, FULL, READ_ONLY }

    /** Made by the JNI layer, with a status of the C interface. */
    internal constructor(status: Int, message: String) : this(
        when (status) {
            2 -> Kind.DAMAGED
            3 -> Kind.UNSUPPORTED
            6 -> Kind.GOLDEN
            8 -> Kind.OTHER_MODEL
            9 -> Kind.REPLACED
            10 -> Kind.LOCKED
            11 -> Kind.FULL
            12 -> Kind.READ_ONLY
            else -> Kind.RUNTIME
        },
        message
    )
}

internal fun damaged(message: String, cause: Throwable? = null): Nothing =
    throw EncoderException(EncoderException.Kind.DAMAGED, message, cause)
