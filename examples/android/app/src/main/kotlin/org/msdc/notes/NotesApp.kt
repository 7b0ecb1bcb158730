package org.msdc.notes

import android.app.Application
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Deferred
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.SupervisorJob
import kotlinx.coroutines.async
import kotlinx.coroutines.flow.MutableStateFlow

/** Opens the notes once, for all activities of the process and all their rotations. */
class NotesApp : Application() {
    /** Share of the notes that were encoded with a new model; null: none has to be. */
    val progress = MutableStateFlow<Float?>(null)
    val notes: Deferred<Notes> by lazy {
        CoroutineScope(SupervisorJob() + Dispatchers.Default).async {
            Notes.open(this@NotesApp) { done, total -> progress.value = done.toFloat() / total }
        }
    }
}
