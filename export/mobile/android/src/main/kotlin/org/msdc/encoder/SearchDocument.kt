package org.msdc.encoder

/** A text with its id, a title that may be empty, and a JSON object of values to filter by. */
data class Document(val id: String, val text: String, val title: String = "", val metadata: String = "{}")

/**
 * A document that matches. [score] ranks it: [words] (BM25 x coverage of the query's words) + 4 x the matched share,
 * [cosine] of its best passage, or the sum, with the cosine scaled. `document.text.substring(start, end)` is the passage to
 * show, [matches] are the places of the query's words (`document.text.substring(match)`), and [count] is the number of
 * documents with the same words, of which this is the best.
 */
data class SearchHit(
    val document: Document,
    val score: Double,
    val cosine: Double,
    val words: Double,
    val start: Int,
    val end: Int,
    val matches: List<IntRange> = emptyList(),
    val count: Int = 1
) {
    val passage: String get() = document.text.substring(start, end)
}

/** Rank by the words (BM25), by the vectors (cosine of the best passage), or by the sum of both. */
enum class Mode { WORDS, VECTORS, BOTH }

/** In a filter: none of these, [value] being what a filter may be itself. */
data class Not(val value: Any?)
