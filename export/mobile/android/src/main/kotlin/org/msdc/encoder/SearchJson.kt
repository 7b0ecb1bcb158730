package org.msdc.encoder

/** JSON of what the core reads; half of a surrogate pair is refused where it becomes UTF-8. */
internal fun json(value: Any?): String = when (value) {
    null, is Boolean -> value.toString()
    is Number -> value.toString().also { require(value.toDouble().isFinite()) { "$it, which JSON cannot hold" } }
    is Pair<*, *> -> json(listOf(value.first, value.second))
    is Map<*, *> -> value.entries.joinToString(",", "{", "}") { "${json("${it.key}")}:${json(it.value)}" }
    is Collection<*> -> value.joinToString(",", "[", "]") { json(it) }
    else -> buildString {
        append('"')
        for (letter in value.toString()) when {
            letter == '"' || letter == '\\' -> append('\\').append(letter)
            letter < ' ' -> append("\\u%04x".format(letter.code))
            else -> append(letter)
        }
        append('"')
    }
}

/** The value of JSON that the core wrote: a map, a list, a text, a number as a Double, or null. */
internal fun valueOf(json: ByteArray): Any? = JsonText(String(json, Charsets.UTF_8)).value()

private class JsonText(private val text: String) {
    private var position = 0

    fun value(): Any? = when (text[position]) {
        '{' -> buildMap { items('}') { put(string(), value()) } }
        '[' -> buildList { items(']') { add(value()) } }
        '"' -> string()
        'n' -> null.also { position += 4 }
        else -> {
            val start = position
            while (position < text.length && text[position] !in ",]}") position++
            text.substring(start, position).toDouble()
        }
    }

    private fun items(end: Char, item: () -> Unit) {
        position++
        while (text[position] != end) {
            item()
            if (text[position] == ',') position++
        }
        position++
    }

    // With the colon behind it, where it is a name.
    private fun string(): String = buildString {
        position++
        while (text[position] != '"') {
            if (text[position] != '\\') {
                append(text[position++])
            } else if (text[position + 1] == 'u') {
                append(text.substring(position + 2, position + 6).toInt(16).toChar())
                position += 6
            } else {
                append(text[position + 1])
                position += 2
            }
        }
        position++
        if (position < text.length && text[position] == ':') position++
    }
}
