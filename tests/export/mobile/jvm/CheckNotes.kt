// The notes app of examples/android without its activity. Prints one line for each check.
import android.app.Application
import androidx.lifecycle.mainThread
import java.io.File
import kotlinx.coroutines.delay
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.withTimeout
import org.msdc.encoder.Document
import org.msdc.encoder.SearchIndex
import org.msdc.encoder.SentenceEncoder
import org.msdc.notes.NotesApp
import org.msdc.notes.NotesModel

private suspend fun shown(name: String, model: NotesModel, condition: (List<String>) -> Boolean) {
    withTimeout(120_000) { while (model.notes?.let { notes -> condition(notes.map { it.text }) } != true) delay(10) }
    passed(name, model.failure == null)
}

fun main(arguments: Array<String>) {
    val (assets, files, other) = arguments.map { File(it) }
    Application.assets = assets
    Application.files = files
    runBlocking(mainThread) {
        val app = NotesApp()
        val model = NotesModel(app)
        shown("no notes", model) { it.isEmpty() }
        NOTES.forEach {
            model.save(it)
            shown("saved", model) { texts -> it in texts }
        }
        shown("newest first", model) { it == NOTES.reversed() }
        for (end in 1..NOTES[5].length) model.find(NOTES[5].take(end))
        shown("as one types", model) { it.firstOrNull() == NOTES[5] }
        passed("matches", model.notes!![0].let { note -> note.matches.any { note.text.substring(it) == "arroz" } })
        val id = model.notes!![0].id
        model.save("Receta: sopa", id)
        model.find("sopa ")
        shown("changed", model) { it.firstOrNull() == "Receta: sopa" && NOTES[5] !in it }
        model.remove(id)
        shown("removed", model) { "Receta: sopa" !in it }
        val rotated = NotesModel(app)
        shown("another screen", rotated) { it.size == NOTES.size - 1 }
        shown("another start", NotesModel(NotesApp())) { it == NOTES.reversed() - NOTES[5] }
        passed("nothing was encoded again", app.progress.value == null)

        // An update of the app with another model.
        File(files, "notes.sqlite").delete()
        SentenceEncoder.fromFolder(other).use { former ->
            SearchIndex.open(File(files, "notes.sqlite"), former).use { index -> index.add(NOTES.map { Document("", it) }) }
        }
        val updated = NotesApp()
        val later = NotesModel(updated)
        shown("another model", later) { it == NOTES.reversed() }
        passed("progress", updated.progress.value == 1f)
        later.find(NOTES[3])
        shown("encoded again", later) { it.firstOrNull() == NOTES[3] }

        File(files, "notes.sqlite").writeText("no index")
        val failing = NotesModel(NotesApp())
        withTimeout(120_000) { while (failing.failure == null) delay(10) }
        passed("damaged", "notes.sqlite" in failing.failure!! && failing.notes == null)
    }
    println("done")
}
