package org.msdc.sample

import org.msdc.encoder.SentenceEncoder
import org.msdc.encoder.Vectors

/** A note and its cosine to the query. */
data class Found(val note: String, val cosine: Float)

/** Search over [notes] by meaning. The vectors of the notes are computed once, in one batch. */
class NoteSearch private constructor(
    private val encoder: SentenceEncoder,
    private val notes: List<String>,
    private val vectors: Vectors
) {
    /** The [k] notes nearest to [query], best first; all notes in their order where it is blank. */
    suspend fun search(query: String, k: Int = 10): List<Found> {
        if (query.isBlank()) return notes.map { Found(it, 0f) }
        return vectors.nearest(encoder.encode(query), k).map { Found(notes[it.row], it.cosine) }
    }

    companion object {
        /** Encodes [notes]. Cancelling the coroutine stops between two notes. */
        suspend fun over(encoder: SentenceEncoder, notes: List<String>): NoteSearch =
            NoteSearch(encoder, notes, encoder.encode(notes))
    }
}
