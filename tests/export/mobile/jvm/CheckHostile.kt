// Runs the table of tests/helpers/hostile_inputs.py: texts, damaged bundles, damaged indexes. Prints one line for each check.
import java.io.File
import kotlin.math.abs
import kotlinx.coroutines.runBlocking
import org.msdc.encoder.Document
import org.msdc.encoder.EncoderException
import org.msdc.encoder.Mode
import org.msdc.encoder.SearchIndex
import org.msdc.encoder.SentenceEncoder

// Code units in hexadecimal digits: no decoder would let half of a surrogate pair pass.
fun units(digits: String) = String(digits.chunked(4).map { it.toInt(16).toChar() }.toCharArray())

fun rows(file: File) = file.readLines().map { it.split("\t") }

fun numbers(text: String) = text.split(" ").filter { it.isNotEmpty() }

fun checkTexts(encoder: SentenceEncoder, folder: File) {
    val given = rows(File(folder, "texts.tsv"))
    val batch = encoder.encodeBlocking(given.map { units(it[1]) }, "")
    given.forEachIndexed { at, (name, digits, ids, vector) ->
        val text = units(digits)
        val same = encoder.tokenize(text).toList() == numbers(ids).map { it.toInt() }
        val found = encoder.encodeBlocking(text, "")
        val near = numbers(vector).map { it.toFloat() }.zip(found.toList()).all { (one, other) -> abs(one - other) < 1e-3f }
        passed(name, same && near && batch[at].contentEquals(found))
    }
    for ((name, digits) in rows(File(folder, "halves.tsv"))) {
        val half = units(digits)
        for (work in listOf<() -> Any>(
            { encoder.tokenize(half) }, { encoder.encodeBlocking(half) }, { encoder.encodeBlocking(listOf("a", half)) },
            { encoder.encodeBlocking("a", half) }, { encoder.prompt(half) }
        )) throws<IllegalArgumentException>(name, "half of a surrogate pair") { work() }
    }
    val nul = units(File(folder, "nul.txt").readText())
    for (work in listOf<() -> Any>(
        { encoder.encodeBlocking("a", nul) }, { encoder.encodeBlocking(listOf("a"), nul) }, { encoder.prompt(nul) }
    )) throws<IllegalArgumentException>("NUL in a prompt", "has a NUL character") { work() }
}

suspend fun checkIndex(index: SearchIndex, folder: File) {
    val nul = units(File(folder, "nul.txt").readText())
    val halves = rows(File(folder, "halves.tsv")).map { Pair(units(it[1]), "half of a surrogate pair") }
    for ((bad, words) in halves + Pair(nul, "NUL")) {
        val works = mutableListOf<Pair<String, suspend () -> Any>>(
            "id" to { index.add(listOf(Document(bad, "fine"))) }, "update" to { index.update(listOf(Document(bad, "fine"))) },
            "remove" to { index.remove(listOf(bad)) }, "filter" to { index.search("fine", where = mapOf("note" to bad)) },
            "column" to { index.search("fine", where = mapOf(bad to "x")) }
        )
        if (bad != nul) {
            works += "text" to { index.add(listOf(Document("1", bad))) }
            works += "title" to { index.add(listOf(Document("1", "fine", bad))) }
            works += "metadata" to { index.add(listOf(Document("1", "fine", "", "{\"note\": \"$bad\"}"))) }
            for (mode in Mode.entries) works += "$mode" to { index.search(bad, mode = mode) }
        }
        for ((name, work) in works) throws<IllegalArgumentException>("$name, $words", words) { runBlocking { work() } }
    }
}

fun main(arguments: Array<String>) {
    val (bundle, folder) = arguments.map { File(it) }
    for ((name, words) in rows(File(folder, "bundles.tsv"))) throws<EncoderException>(name, words) {
        SentenceEncoder.fromFolder(File(folder, "bundles/$name"), checkFiles = true).use { it.selfTest() }
    }
    SentenceEncoder.fromFolder(bundle).use { encoder ->
        checkTexts(encoder, folder)
        runBlocking {
            suspend fun answers(index: SearchIndex) = listOf(Mode.WORDS, Mode.BOTH).flatMap { mode ->
                index.search("the ticket", 9, mode).map { "${it.document} ${it.score} ${it.passage}" }
            }
            val own = SearchIndex.open(File(folder, "own.sqlite"), encoder)
            own.add(rows(File(folder, "documents.tsv")).map { (id, title, text, metadata) ->
                Document(units(id), units(text), units(title), units(metadata))
            })
            passed("documents", own.count() == rows(File(folder, "documents.tsv")).size)
            checkIndex(own, folder)
            for ((name, digits) in rows(File(folder, "texts.tsv"))) {
                val text = units(digits)
                if (text.isNotBlank()) passed("query $name", own.search(text, 3).size <= 3)
            }
            own.close()
            val wanted = SearchIndex.open(File(folder, "whole.sqlite"), encoder).use { answers(it) }
            var refused = 0
            for ((name) in rows(File(folder, "indexes.tsv"))) {
                try {
                    val found = SearchIndex.open(File(folder, "indexes/$name"), encoder).use { answers(it) }
                    passed(name, found == wanted)
                } catch (failure: EncoderException) {
                    refused += 1
                    passed(name, '\n' !in failure.message.orEmpty())
                }
            }
            passed("refused", refused > 30)
        }
    }
    println("done")
}
