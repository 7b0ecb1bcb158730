package org.msdc.sample

import android.app.Activity
import android.os.Bundle
import android.text.Editable
import android.text.TextWatcher
import android.widget.ArrayAdapter
import android.widget.EditText
import android.widget.LinearLayout
import android.widget.ListView
import android.widget.TextView
import java.util.Locale
import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.Job
import kotlinx.coroutines.MainScope
import kotlinx.coroutines.NonCancellable
import kotlinx.coroutines.cancel
import kotlinx.coroutines.isActive
import kotlinx.coroutines.launch
import kotlinx.coroutines.withContext
import org.msdc.encoder.SentenceEncoder

/** A text field over a list: typing searches the notes by meaning. */
class MainActivity : Activity() {
    private val scope = MainScope()
    private var encoder: SentenceEncoder? = null
    private var search: NoteSearch? = null
    private var typing: Job? = null
    private lateinit var status: TextView
    private lateinit var list: ArrayAdapter<String>

    override fun onCreate(savedInstanceState: Bundle?) {
        super.onCreate(savedInstanceState)
        status = TextView(this)
        list = ArrayAdapter(this, android.R.layout.simple_list_item_1)
        val query = EditText(this)
        query.setHint(R.string.query_hint)
        val page = LinearLayout(this)
        page.orientation = LinearLayout.VERTICAL
        page.fitsSystemWindows = true
        page.addView(query)
        page.addView(status)
        page.addView(ListView(this).also { it.adapter = list })
        setContentView(page)
        status.setText(R.string.starting)
        query.addTextChangedListener(object : TextWatcher {
            override fun beforeTextChanged(text: CharSequence?, start: Int, count: Int, after: Int) = Unit

            override fun onTextChanged(text: CharSequence?, start: Int, before: Int, count: Int) = Unit

            override fun afterTextChanged(text: Editable?) = show(text.toString())
        })
        scope.launch {
            try {
                // The first start copies and checks the bundle: not on the main thread. It is not cancelled, so that an
                // encoder that opens after the activity ended is closed and not lost.
                val opened = withContext(NonCancellable + Dispatchers.IO) {
                    SentenceEncoder.fromAssets(applicationContext)
                }
                if (!isActive) return@launch opened.close()
                encoder = opened
                search = NoteSearch.over(opened, NOTES)
                show(query.text.toString())
            } catch (cancelled: CancellationException) {
                throw cancelled
            } catch (failure: Exception) {
                status.text = failure.message
            }
        }
    }

    // The search of an earlier text is cancelled: only the newest one is shown.
    private fun show(text: String) {
        val notes = search ?: return
        typing?.cancel()
        typing = scope.launch {
            val found = notes.search(text)
            list.clear()
            list.addAll(found.map { if (text.isBlank()) it.note else "%.2f  %s".format(Locale.ROOT, it.cosine, it.note) })
            status.text = getString(R.string.found, found.size)
        }
    }

    override fun onDestroy() {
        scope.cancel()
        encoder?.close()
        super.onDestroy()
    }
}
