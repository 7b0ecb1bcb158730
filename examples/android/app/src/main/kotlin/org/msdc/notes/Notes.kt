package org.msdc.notes

import android.content.Context
import java.io.File
import java.util.UUID
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.withContext
import org.msdc.encoder.Document
import org.msdc.encoder.EncoderException
import org.msdc.encoder.SearchIndex
import org.msdc.encoder.SentenceEncoder

/** A note, and the places of the query's words in its text. */
data class Note(val id: String, val text: String, val matches: List<IntRange> = emptyList())

/**
 * The notes of the app, in an index that is opened once for the process. It needs no closing: what was written is on the
 * disk when the call returns.
 */
class Notes private constructor(private val index: SearchIndex) {
    /** The notes nearest to [query] by words and meaning, none where nothing is relevant; the newest where it is blank. */
    suspend fun search(query: String): List<Note> {
        if (query.isBlank()) {
            return index.ids().takeLast(NEWEST).reversed().mapNotNull { index.get(it) }.map { Note(it.id, it.text) }
        }
        return index.search(query, HITS, threshold = index.relevantCosine()?.toFloat())
            .map { Note(it.document.id, it.document.text, it.matches) }
    }

    /** Writes a note, in place of one of the same id. */
    suspend fun save(text: String, id: String = UUID.randomUUID().toString()) {
        index.update(listOf(Document(id, text)))
    }

    suspend fun remove(id: String) {
        index.remove(listOf(id))
    }

    companion object {
        private const val NEWEST = 100
        private const val HITS = 20

        /**
         * Opens model and notes. The first start copies and checks the model; after an update with another model all notes
         * are encoded again, and [progress] reports how many.
         */
        suspend fun open(context: Context, progress: (done: Int, total: Int) -> Unit): Notes = withContext(Dispatchers.IO) {
            val encoder = SentenceEncoder.fromAssets(context)
            val file = File(context.filesDir, "notes.sqlite")
            try {
                Notes(SearchIndex.open(file, encoder))
            } catch (failure: EncoderException) {
                if (failure.kind != EncoderException.Kind.OTHER_MODEL) throw failure
                Notes(SearchIndex.open(file, null).also { it.rebuild(encoder, progress) })
            }
        }
    }
}
