package org.msdc.notes

import android.os.Bundle
import androidx.activity.ComponentActivity
import androidx.activity.compose.setContent
import androidx.activity.enableEdgeToEdge
import androidx.activity.viewModels
import androidx.compose.foundation.isSystemInDarkTheme
import androidx.compose.foundation.layout.Column
import androidx.compose.foundation.layout.Row
import androidx.compose.foundation.layout.fillMaxSize
import androidx.compose.foundation.layout.fillMaxWidth
import androidx.compose.foundation.layout.padding
import androidx.compose.foundation.layout.safeDrawingPadding
import androidx.compose.foundation.lazy.LazyColumn
import androidx.compose.foundation.lazy.items
import androidx.compose.material3.HorizontalDivider
import androidx.compose.material3.LinearProgressIndicator
import androidx.compose.material3.MaterialTheme
import androidx.compose.material3.OutlinedTextField
import androidx.compose.material3.Surface
import androidx.compose.material3.Text
import androidx.compose.material3.TextButton
import androidx.compose.material3.darkColorScheme
import androidx.compose.material3.lightColorScheme
import androidx.compose.runtime.Composable
import androidx.compose.runtime.collectAsState
import androidx.compose.runtime.getValue
import androidx.compose.runtime.mutableStateOf
import androidx.compose.runtime.saveable.rememberSaveable
import androidx.compose.runtime.setValue
import androidx.compose.ui.Modifier
import androidx.compose.ui.res.stringResource
import androidx.compose.ui.text.SpanStyle
import androidx.compose.ui.text.buildAnnotatedString
import androidx.compose.ui.text.font.FontWeight
import androidx.compose.ui.unit.dp

/** Notes with a search box that answers as one types. */
class MainActivity : ComponentActivity() {
    private val model: NotesModel by viewModels()

    override fun onCreate(savedInstanceState: Bundle?) {
        enableEdgeToEdge()
        super.onCreate(savedInstanceState)
        setContent {
            MaterialTheme(if (isSystemInDarkTheme()) darkColorScheme() else lightColorScheme()) {
                Surface(Modifier.fillMaxSize()) { NotesScreen(model) }
            }
        }
    }
}

@Composable
fun NotesScreen(model: NotesModel) {
    val progress by model.progress.collectAsState()
    Column(Modifier.safeDrawingPadding().padding(16.dp)) {
        OutlinedTextField(
            value = model.query, onValueChange = model::find, modifier = Modifier.fillMaxWidth(), singleLine = true,
            label = { Text(stringResource(R.string.search)) }
        )
        val failure = model.failure
        val notes = model.notes
        val share = progress
        if (failure != null) Text(failure, color = MaterialTheme.colorScheme.error)
        if (notes != null) {
            Editor("", R.string.new_note, onSave = { model.save(it) })
            if (notes.isEmpty()) Text(stringResource(if (model.query.isBlank()) R.string.no_notes else R.string.nothing))
            LazyColumn { items(notes, key = { it.id }) { NoteRow(it, model) } }
        } else if (failure == null && share == null) {
            Text(stringResource(R.string.starting))
            LinearProgressIndicator(Modifier.fillMaxWidth())
        } else if (failure == null && share != null) {
            Text(stringResource(R.string.updating))
            LinearProgressIndicator(progress = { share }, modifier = Modifier.fillMaxWidth())
        }
    }
}

@Composable
fun NoteRow(note: Note, model: NotesModel) = Column {
    var isEdited by rememberSaveable { mutableStateOf(false) }
    val text = buildAnnotatedString {
        append(note.text)
        note.matches.forEach { addStyle(SpanStyle(fontWeight = FontWeight.Bold), it.first, it.last + 1) }
    }
    HorizontalDivider()
    if (isEdited) {
        Editor(note.text, R.string.note, onSave = { model.save(it, note.id); isEdited = false }, onCancel = { isEdited = false })
    } else {
        Text(text, Modifier.padding(top = 8.dp))
        Row {
            TextButton(onClick = { isEdited = true }) { Text(stringResource(R.string.edit)) }
            TextButton(onClick = { model.remove(note.id) }) { Text(stringResource(R.string.delete)) }
        }
    }
}

@Composable
fun Editor(text: String, label: Int, onSave: (String) -> Unit, onCancel: (() -> Unit)? = null) {
    var value by rememberSaveable(text) { mutableStateOf(text) }
    OutlinedTextField(
        value = value, onValueChange = { value = it }, modifier = Modifier.fillMaxWidth(),
        label = { Text(stringResource(label)) }
    )
    Row {
        TextButton(onClick = { onSave(value.trim()); value = "" }, enabled = value.isNotBlank()) {
            Text(stringResource(R.string.save))
        }
        if (onCancel != null) TextButton(onClick = onCancel) { Text(stringResource(R.string.cancel)) }
    }
}
