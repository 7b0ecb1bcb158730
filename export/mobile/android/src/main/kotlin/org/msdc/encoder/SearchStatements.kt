package org.msdc.encoder

import androidx.sqlite.SQLiteConnection
import androidx.sqlite.SQLiteStatement

// By name, without comments: a semicolon in one ends no statement.
private val SQL = SEARCH_SQL.split("-- name: ").drop(1).associate { part ->
    part.substringBefore('\n') to part.lines().drop(1).filterNot { it.startsWith("--") }.joinToString("\n")
}

/** A statement of search.sql. */
internal fun sql(name: String) = SQL.getValue(name)

/** What a query asks for, and what the statement `plan` says of it: the text for the model, the terms one per line. */
internal class Plan(
    val json: String,
    val text: String,
    val excludes: Boolean,
    val hasWords: Boolean,
    val terms: String
)

internal fun SQLiteConnection.plan(json: String): Plan = values(sql("plan"), json) {
    Plan(json, it.getText(0), it.getLong(1) != 0L, it.getLong(2) != 0L, if (it.isNull(3)) "" else it.getText(3))
}.single()

/** JSON of ids and filters, which SQLite reads up to a NUL character. */
internal fun json(value: Any?): String = when (value) {
    null, is Boolean -> value.toString()
    is Number -> value.toString().also { require(value.toDouble().isFinite()) { "$it, which JSON cannot hold" } }
    is Pair<*, *> -> json(listOf(value.first, value.second))
    is Map<*, *> -> value.entries.joinToString(",", "{", "}") { "${json("${it.key}")}:${json(it.value)}" }
    is Collection<*> -> value.joinToString(",", "[", "]") { json(it) }
    else -> value.toString().also { require('\u0000' !in it) { "a NUL character in an id or a filter" } }.map {
        if (it == '"' || it == '\\') "\\$it" else if (it < ' ') "\\u%04x".format(it.code) else "$it"
    }.joinToString("", "\"", "\"")
}

/** A filter for the statement `filter`: [[column, [alternative, ...], excluded], ...]. */
internal fun conditions(where: Map<String, Any?>): String = json(where.map { (name, required) ->
    val wanted = if (required is Not) required.value else required
    val alternatives = if (wanted is Collection<*>) wanted else listOf(wanted)
    require('"' !in name) { "filter $name: a name with a double quote" }
    require(alternatives.isNotEmpty()) { "filter $name: an empty list matches nothing" }
    for (value in alternatives) {
        require(value !is Collection<*> && value !is Map<*, *> && value !is Not && value != Pair(null, null)) {
            "filter $name: $value; expected a value, null, a list of them, or a Pair of least and most"
        }
    }
    listOf(name, alternatives, if (required is Not) 1 else 0)
})

internal fun SQLiteConnection.select(sql: String, vararg values: Any?, row: (SQLiteStatement) -> Unit) {
    val statement = prepare(sql)
    try {
        values.forEachIndexed { before, value ->
            val at = before + 1
            when (value) {
                null -> statement.bindNull(at)
                is String -> statement.bindText(at, value.also { SentenceEncoder.utf8(it) })
                is ByteArray -> statement.bindBlob(at, value)
                is Float, is Double -> statement.bindDouble(at, (value as Number).toDouble())
                is Number -> statement.bindLong(at, value.toLong())
                else -> error("a value of the type ${value::class}")
            }
        }
        while (statement.step()) row(statement)
    } finally {
        statement.close()
    }
}

internal fun <T> SQLiteConnection.values(sql: String, vararg values: Any?, value: (SQLiteStatement) -> T): List<T> =
    mutableListOf<T>().also { list -> select(sql, *values) { list += value(it) } }

/** Runs the statements of search.sql that have one name. */
internal fun SQLiteConnection.runAll(name: String) =
    sql(name).split(";\n").filter { it.isNotBlank() }.forEach { run(it) }

internal fun SQLiteConnection.run(sql: String, vararg values: Any?) = select(sql, *values) {}

/** SQLite's errors as one line. Their class depends on the driver. */
internal inline fun <T> named(path: String, work: () -> T): T = try {
    work()
} catch (failure: RuntimeException) {
    val message = failure.message.orEmpty()
    when {
        failure is IllegalArgumentException || failure is kotlin.coroutines.cancellation.CancellationException ->
            throw failure
        "UNIQUE constraint" in message -> throw IllegalArgumentException(
            "$path: a document of this id is there already; use update", failure
        )
        "metadata_is" in message -> throw IllegalArgumentException("$path: metadata that is not a JSON object", failure)
        "no such module: fts5" in message -> throw EncoderException(
            EncoderException.Kind.UNSUPPORTED,
            "$path: this SQLite has no FTS5; open the index with BundledSQLiteDriver of androidx.sqlite", failure
        )
        "no such table" in message -> damaged("$path: not a search index", failure)
        "malformed" in message || "not a database" in message -> damaged("$path: damaged ($message)", failure)
        else -> throw EncoderException(EncoderException.Kind.IO, "$path: $message", failure)
    }
}
