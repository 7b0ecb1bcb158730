package org.msdc.encoder

import kotlin.math.abs

/**
 * Adds the documents of search.tsv to an empty index and returns the answers whose scores are further than [tolerance] from
 * those of the machine that exported the bundle. Documents may change places where their scores are that near.
 */
suspend fun differences(answers: List<String>, index: SearchIndex, tolerance: Double): List<String> {
    val lines = answers.filter { it.isNotEmpty() }.map { it.split("\t") }
    val (documents, queries) = lines.partition { it[0] == "document" }
    index.add(documents.map { Document(it[1], it[2]) })
    return queries.mapNotNull { (mode, query, answer) ->
        val wanted = answer.split(" ").filter { it.isNotEmpty() }.map { it.split(":") }
        val found = index.search(query, top = 5, mode = Mode.valueOf(mode.uppercase()))
        val scores = wanted.associate { (id, score) -> id to score.toDouble() }
        val least = scores.values.minOrNull() ?: 0.0
        val same = found.size == wanted.size && found.withIndex().all { (place, one) ->
            abs(one.score - wanted[place][1].toDouble()) <= tolerance &&
                abs(one.score - (scores[one.document.id] ?: least)) <= tolerance
        }
        if (same) null else "$mode \"$query\": ${found.map { "${it.document.id}:${it.score}" }}, expected $answer"
    }
}
