// Runs the module's search over an index that the Python package made, and changes it. Prints one line for each check.
import android.content.Context
import java.io.File
import java.util.zip.CRC32
import kotlin.math.abs
import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.async
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import org.msdc.encoder.Document
import org.msdc.encoder.EncoderException
import org.msdc.encoder.SearchHit
import org.msdc.encoder.Mode
import org.msdc.encoder.Not
import org.msdc.encoder.SearchIndex
import org.msdc.encoder.SentenceEncoder
import org.msdc.encoder.differences

/** The filters of phone_search.py. */
fun filter(text: String): Map<String, Any?> {
    val sign = text.indexOfFirst { it in "=!<>+-" }
    if (sign < 0) return emptyMap()
    val (name, value) = listOf(text.take(sign), text.drop(sign + 1))
    val wanted: Any? = when (text[sign]) {
        '>' -> Pair(value.toDoubleOrNull() ?: value, null)
        '<' -> Pair(null, value.toDoubleOrNull() ?: value)
        '!' -> Not(value.split("|"))
        '-' -> null
        '+' -> Not(null)
        else -> if ('|' in value) value.split("|") else value
    }
    return mapOf(name to wanted)
}

/** The value of an option of phone_search.py; null without it. */
fun option(options: String, name: String) = options.split(" ").firstOrNull { it.startsWith("$name=") }?.substringAfter("=")

fun same(wanted: List<String>, hit: SearchHit): Boolean {
    val text = hit.document.text
    val spans = hit.matches.joinToString(",") { listOf(it.first, it.last + 1).joinToString("-") { "${text.codePointCount(0, it)}" } }
    val passage = CRC32().apply { update(hit.passage.toByteArray()) }.value.toString()
    return wanted[0] == hit.document.id && abs(wanted[1].toDouble() - hit.score) < 1e-2 &&
        abs(wanted[2].toDouble() - hit.cosine) < 2e-4 && wanted.drop(3) == listOf(passage, spans, hit.count.toString())
}

suspend fun checkAnswers(index: SearchIndex, answers: List<String>) {
    for (line in answers) {
        val cells = line.split("\t")
        val (mode, top, where, query, options) = cells
        val group = option(options, "group")?.split("@")
        val order = option(options, "order")?.split(",") ?: emptyList()
        val boost = listOfNotNull(option(options, "boost")?.split("@")?.let { (part, bonus) -> Pair(filter(part), bonus.toDouble()) })
        val (offset, size) = listOf(option(options, "offset")?.toInt() ?: 0, group?.get(1)?.toInt() ?: 1)
        val hits = if (mode == "like") index.similar(
            query, top.toInt(), where = filter(where), offset = offset, distinct = "each" !in options, order = order,
            boost = boost, group = group?.get(0), groupSize = size
        ) else index.search(
            query, top.toInt(), Mode.valueOf(mode.uppercase()), where = filter(where), offset = offset,
            distinct = "each" !in options, operators = "plain" !in options, order = order, boost = boost,
            group = group?.get(0), groupSize = size
        )
        val wanted = cells[5].split(" ").filter { it.isNotEmpty() }.map { it.split(":") }
        val same = wanted.size == hits.size && wanted.zip(hits).all { (want, hit) -> same(want, hit) }
        if (!same) println("  $hits where ${cells[5]}")
        passed("$mode $where $query", same)
    }
}

fun documents(file: File) = file.readLines().map { it.split("\t") }
    .map { (id, title, text, metadata) -> Document(id, text.replace("\\n", "\n"), title, metadata) }

/** A cancelled coroutine ends the statement that it runs: a copy that has begun is not there. */
suspend fun checkCancellation(encoder: SentenceEncoder, files: File) {
    val file = File(files, "cancelled.sqlite")
    SearchIndex.open(file, encoder).use { index ->
        index.add(List(300) { Document("x$it", "a short text", metadata = """{"note": "${"$it ".repeat(30_000)}"}""") })
        // The copy may be faster than its end is asked for.
        val isCancelled = (1..30).any { attempt ->
            val copy = File(files, "copy$attempt.sqlite")
            val partial = File(copy.path + ".partial")
            coroutineScope {
                val backup = launch(Dispatchers.IO) { index.backup(copy) }
                while (backup.isActive && partial.length() == 0L) Thread.onSpinWait()
                backup.cancel()
                backup.join()
            }
            !copy.exists() && !partial.exists()
        }
        passed("a cancelled copy", isCancelled && index.count() == 300)
    }
}

/** What a file of the index has where: its own, a copy, a smaller one; and filters that are none. */
suspend fun checkFile(index: SearchIndex, encoder: SentenceEncoder, files: File) {
    val file = File(files, "msdc-search/desktop.sqlite")
    val log = File(file.path + "-wal")
    passed("nothing in the log", log.length() == 0L)
    val copy = File(files, "copy.sqlite")
    index.backup(copy)
    throws<IllegalArgumentException>("a file that exists", "exists already") { runBlocking { index.backup(copy) } }
    SearchIndex.open(copy, encoder).use { passed("copy", it.count() == index.count()) }
    val rows = List(300) { Document("x$it", "a text that is removed again: $it ".repeat(50)) }
    index.add(rows)
    index.remove(rows.map { it.id })
    val before = file.length()
    index.compact()
    passed("smaller", file.length() < before / 2 && index.search("Verspätung", mode = Mode.WORDS).size == 1)
    for ((words, filter) in listOf(
        "double quote" to mapOf("a\"b" to 1), "empty list" to mapOf("year" to emptyList<Int>()),
        "expected a text" to mapOf("year" to Pair(null, null)), "expected a value" to mapOf("year" to Not(Not(1)))
    )) throws<IllegalArgumentException>("filter, $words", words) { runBlocking { index.search("x", where = filter) } }
    throws<IllegalArgumentException>("offset", "at least 0") { runBlocking { index.search("x", offset = -1) } }
    val day = java.time.OffsetDateTime.parse("2031-05-31T10:15+02:00")
    val late = index.search("fast car", where = mapOf("when" to Pair(day, null)), mode = Mode.WORDS)
    passed("a time", late.map { it.document.id } == listOf("d16"))
    File(files, "gone.sqlite-wal").writeText("log")
    throws<EncoderException>("log without a file", "empty next to its write-ahead log gone.sqlite-wal") {
        runBlocking { SearchIndex.open(File(files, "gone.sqlite"), encoder) }
    }
}

/** An index after an update of the app's model: its words at once, its vectors after `rebuild`. */
suspend fun checkRebuild(file: File, encoder: SentenceEncoder, next: SentenceEncoder, answers: List<String>) {
    fun open(with: SentenceEncoder?) = runBlocking { SearchIndex.open(file, with) }
    val kind = runCatching { open(next) }.exceptionOrNull() as? EncoderException
    passed("a kind of its own", kind?.kind == EncoderException.Kind.OTHER_MODEL && "made with another tiny" in kind.message!!)
    val former = open(encoder)
    open(null).use { index ->
        val ids = index.ids()
        passed("ids", ids.size == index.count() && ids[0] == "d1")
        passed("document", index.get("d1") == documents(File(file.parentFile, "documents.tsv"))[0] && index.get("none") == null)
        passed("words meanwhile", index.search("level", mode = Mode.WORDS) == index.search("level") && index.search("level").isNotEmpty())
        throws<IllegalArgumentException>("no vectors", "opened without") { runBlocking { index.search("level", mode = Mode.VECTORS) } }
        throws<IllegalArgumentException>("no new text", "opened without an encoder") { runBlocking { index.add(listOf(Document("new", "text"))) } }
        index.add300(former)
        val cancelled = runCatching { index.rebuild(next) { done, _ -> if (done > 200) throw CancellationException("enough") } }
        passed("cancelled", cancelled.exceptionOrNull() is CancellationException && former.search("level").isNotEmpty())
        var told = Pair(0, 0)
        val count = index.rebuild(next) { done, total -> told = Pair(done, total) }
        passed("continued", count in 1..index.count() && told == Pair(index.count(), index.count()))
        passed("rebuilt once", index.rebuild(next) == 0)
        index.remove(List(300) { "x$it" })
        checkAnswers(index, answers)
    }
    throws<EncoderException>("the former model", "made with another tiny") { runBlocking { former.search("level", mode = Mode.VECTORS) } }
    passed("the former model's words", former.search("level", mode = Mode.WORDS).isNotEmpty())
    former.close()
    open(next).use { passed("of the next model", it.search("level").isNotEmpty()) }
    open(null).use { passed("and back", it.rebuild(encoder) == it.count()) }
}

/** As another process would do meanwhile. */
suspend fun SearchIndex.add300(former: SearchIndex) {
    former.add(List(300) { Document("x$it", "another text: $it") })
    passed("both see it", count() == former.count())
}

fun main(arguments: Array<String>) {
    val (bundle, assets, files, data) = arguments.map { File(it) }
    SentenceEncoder.fromFolder(bundle).use { encoder ->
        runBlocking {
            val context = Context(assets, files)
            SearchIndex.fromAssets(context, "desktop.sqlite", encoder).use { index ->
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
                checkFile(index, encoder, files)
                checkCancellation(encoder, files)
            }
            val own = SearchIndex.open(File(files, "phone.sqlite"), encoder)
            passed("empty", own.search("anything").isEmpty() && own.count() == 0)
            own.add(documents(File(data, "documents.tsv")))
            checkAnswers(own, File(data, "answers.tsv").readLines())
            own.close()
            File(files, "phone.sqlite").copyTo(File(data, "rebuilt.sqlite"))
            SentenceEncoder.fromFolder(File(data, "other")).use { next ->
                checkRebuild(File(data, "rebuilt.sqlite"), encoder, next, File(data, "answers.tsv").readLines())
            }
            throws<EncoderException>("closed index", "the index is closed") { runBlocking { own.search("x") } }
            val unspaced = SearchIndex.open(File(files, "unspaced.sqlite"), encoder)
            unspaced.add(listOf(Document("1", "会議は九時に始まります。切符は箱の中です。"), Document("2", "電車は八時に出ます。")))
            passed("pairs of letters", unspaced.search("切符は箱", mode = Mode.WORDS).single().document.id == "1")
            unspaced.close()
            val answers = SearchIndex.open(File(files, "answers.sqlite"), encoder)
            val differ = differences(File(data, "search.tsv").readLines(), answers, 1e-3)
            differ.forEach { println("  $it") }
            passed("the export's answers", differ.isEmpty())
            answers.close()
            for (name in listOf("broken", "scaled")) {
                val words = File(data, "$name.txt").readText()
                SearchIndex.open(File(data, "$name.sqlite"), encoder, check = false).use {
                    passed("$name, unchecked words", it.search("level", mode = Mode.WORDS).isNotEmpty())
                    throws<EncoderException>("$name, a search", words) { runBlocking { it.search("level") } }
                    throws<EncoderException>("$name, checked later", words) { runBlocking { it.check() } }
                }
            }
            for (name in listOf("other-model", "broken", "scaled", "lost", "changed", "no-words", "words-gone")) {
                throws<EncoderException>(name, File(data, "$name.txt").readText()) {
                    runBlocking { SearchIndex.open(File(data, "$name.sqlite"), encoder).use { it.search("level") } }
                }
            }
        }
    }
    println("done")
}
