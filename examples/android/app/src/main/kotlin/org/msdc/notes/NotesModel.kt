package org.msdc.notes

import android.app.Application
import androidx.compose.runtime.getValue
import androidx.compose.runtime.mutableStateOf
import androidx.compose.runtime.setValue
import androidx.lifecycle.AndroidViewModel
import androidx.lifecycle.viewModelScope
import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.Job
import kotlinx.coroutines.flow.StateFlow
import kotlinx.coroutines.launch

/** What the screen shows; it survives rotations. */
class NotesModel(application: Application) : AndroidViewModel(application) {
    private val app = application as NotesApp
    private var search: Job? = null
    val progress: StateFlow<Float?> = app.progress
    var query by mutableStateOf("")
        private set
    /** Null until the notes are open. */
    var notes by mutableStateOf<List<Note>?>(null)
        private set
    var failure by mutableStateOf<String?>(null)
        private set

    init {
        find("")
    }

    /** The search of an earlier text is cancelled: the newest is shown. */
    fun find(text: String) {
        query = text
        search?.cancel()
        search = launch { notes = it.search(text) }
    }

    fun save(text: String, id: String? = null) = change { if (id == null) it.save(text) else it.save(text, id) }

    fun remove(id: String) = change { it.remove(id) }

    private fun change(work: suspend (Notes) -> Unit) {
        launch {
            work(it)
            find(query)
        }
    }

    private fun launch(work: suspend (Notes) -> Unit): Job = viewModelScope.launch {
        try {
            work(app.notes.await())
            failure = null
        } catch (cancelled: CancellationException) {
            throw cancelled
        } catch (error: Exception) {
            failure = error.message
        }
    }
}
