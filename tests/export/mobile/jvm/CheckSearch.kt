// Runs the module's search over an index that the Python package made, and changes it. Prints one line for each check.
import android.content.Context
import java.io.File
import java.util.zip.CRC32
import kotlin.math.abs
import kotlinx.coroutines.async
import kotlinx.coroutines.runBlocking
import org.msdc.encoder.Document
import org.msdc.encoder.EncoderException
import org.msdc.encoder.Mode
import org.msdc.encoder.SearchIndex
import org.msdc.encoder.SentenceEncoder
import org.msdc.encoder.differences

/** name=value, name=one|other, name>least, name<most */
fun filter(text: String): Map<String, Any> {
    val sign = text.indexOfFirst { it in "=<>" }
    if (sign < 0) return emptyMap()
    val (name, value) = listOf(text.take(sign), text.drop(sign + 1))
    val wanted: Any = when {
        text[sign] == '>' -> Pair(value.toDoubleOrNull() ?: value, null)
        text[sign] == '<' -> Pair(null, value.toDoubleOrNull() ?: value)
        '|' in value -> value.split("|")
        else -> value
    }
    return mapOf(name to wanted)
}

suspend fun checkAnswers(index: SearchIndex, answers: List<String>) {
    for (line in answers) {
        val (mode, top, where, query, expected) = line.split("\t")
        val found = index.search(query, top.toInt(), Mode.valueOf(mode.uppercase()), where = filter(where))
        val wanted = expected.split(" ").filter { it.isNotEmpty() }.map { it.split(":") }
        val same = wanted.size == found.size && wanted.zip(found).all { (want, one) ->
            want[0] == one.document.id && abs(want[1].toDouble() - one.score) < 2e-3 &&
                abs(want[2].toDouble() - one.cosine) < 2e-4 && want[3] == CRC32().apply { update(one.passage.toByteArray()) }.value.toString()
        }
        if (!same) println("  $found where $expected")
        passed("$mode $where $query", same)
    }
}

fun documents(file: File) = file.readLines().map { it.split("\t") }
    .map { (id, title, text, metadata) -> Document(id, text.replace("\\n", "\n"), title, metadata) }

fun main(arguments: Array<String>) {
    val (bundle, assets, files, data) = arguments.map { File(it) }
    val driver = SystemSqlite()
    SentenceEncoder.fromFolder(bundle).use { encoder ->
        runBlocking {
            val context = Context(assets, files)
            SearchIndex.fromAssets(context, "desktop.sqlite", encoder, driver).use { index ->
                checkAnswers(index, File(data, "answers.tsv").readLines())
                val before = index.count()
                throws<IllegalArgumentException>("id that is there", "use update") { runBlocking { index.add(listOf(Document("d1", "again"))) } }
                passed("nothing written", index.count() == before)
                val more = documents(File(data, "more.tsv"))
                passed("added", index.add(more) == more.size && index.count() == before + more.size)
                passed("removed", index.remove(listOf("d2", "d3", "not there")) == 2)
                index.update(listOf(Document("d1", "Der Zug nach Bonn hat Verspätung.", metadata = """{"year": 2030}""")))
                passed("updated", index.search("Verspätung", mode = Mode.WORDS).single().document.id == "d1")
                passed("filter after update", index.search("train", where = mapOf("year" to 2030)).map { it.document.id } == listOf("d1"))
                val writing = async { index.add(List(300) { Document("m$it", "note number $it") }) }
                passed("search beside writing", index.search("Verspätung").isNotEmpty() && writing.await() == 300)
                index.remove(List(300) { "m$it" })
                throws<IllegalArgumentException>("no text", "has no text") { runBlocking { index.add(listOf(Document("e", " "))) } }
                throws<IllegalArgumentException>("no column", "(columns: author, day, done, lang,") {
                    runBlocking { index.search("x", where = mapOf("lnag" to "de")) }
                }
                throws<IllegalArgumentException>("no JSON", "not a JSON object") {
                    runBlocking { index.add(listOf(Document("e", "x", metadata = """{"x": NaN}"""))) }
                }
                index.update(listOf(Document("twice", "first"), Document("twice", "second")))
                passed("the last stays", index.search("first second", mode = Mode.WORDS).single().document.text == "second")
                index.remove(listOf("twice"))
                throws<IllegalArgumentException>("no query", "a query is empty") { runBlocking { index.search(" ") } }
            }
            val own = SearchIndex.open(File(files, "phone.sqlite"), encoder, driver)
            passed("empty", own.search("anything").isEmpty() && own.count() == 0)
            own.add(documents(File(data, "documents.tsv")))
            checkAnswers(own, File(data, "answers.tsv").readLines())
            own.close()
            throws<EncoderException>("closed index", "the index is closed") { runBlocking { own.search("x") } }
            val unspaced = SearchIndex.open(File(files, "unspaced.sqlite"), encoder, driver)
            unspaced.add(listOf(Document("1", "会議は九時に始まります。切符は箱の中です。"), Document("2", "電車は八時に出ます。")))
            passed("pairs of letters", unspaced.search("切符は箱", mode = Mode.WORDS).single().document.id == "1")
            unspaced.close()
            val answers = SearchIndex.open(File(files, "answers.sqlite"), encoder, driver)
            val differ = differences(File(data, "search.tsv").readLines(), answers, 1e-3)
            differ.forEach { println("  $it") }
            passed("the export's answers", differ.isEmpty())
            answers.close()
            for (name in listOf("other-model", "broken", "scaled", "lost", "changed", "no-words", "words-gone")) {
                throws<EncoderException>(name, File(data, "$name.txt").readText()) {
                    runBlocking { SearchIndex.open(File(data, "$name.sqlite"), encoder, driver).use { it.search("level") } }
                }
            }
        }
    }
    println("done")
}
