package org.msdc.encoder

import androidx.sqlite.SQLiteConnection

/** The vectors of an index in memory: each with the row and the document of its passage, 8-bit numbers and their scale. */
internal class IndexVectors(private val path: String, private val width: Int) {
    private var version = -1L
    private var rows = LongArray(0)
    private var owners = LongArray(0)
    private var scales = FloatArray(0)
    private var codes = ByteArray(0)

    /** This connection writes: its own changes have no other sign. */
    fun expire() {
        version = -1
    }

    /** Read the vectors again if the file changed. */
    fun refresh(db: SQLiteConnection) {
        val now = db.values("PRAGMA data_version") { it.getLong(0) }.single()
        if (now == version) return
        val count = db.values("SELECT coalesce(sum(length(passages)), 0) / 8 FROM blocks") { it.getLong(0) }.single()
        if (count * width > Int.MAX_VALUE) damaged("$path: $count passages are too many for this device")
        rows = LongArray(count.toInt())
        owners = LongArray(count.toInt())
        scales = FloatArray(count.toInt())
        codes = ByteArray((count * width).toInt())
        var at = 0
        db.select(sql("blocks")) {
            val block = Block.read(path, it)
            if (block.width != width) damaged("$path: damaged (the vectors of block ${block.row})")
            block.numbers().copyInto(rows, at)
            block.documents().copyInto(owners, at)
            block.scales().copyInto(scales, at)
            block.columns[3].copyInto(codes, at * width)
            at += block.count
        }
        version = now
    }

    fun compare(query: FloatArray) = Cosines(rows, owners, core.int8Cosines(query, codes, scales))
}

/** The cosines of a query with all passages that have a vector, in the order of their rows. */
internal class Cosines(private val rows: LongArray, owners: LongArray, private val values: FloatArray) {
    private val best = HashMap<Long, Float>()

    init {
        for (at in values.indices) best[owners[at]] = maxOf(values[at], best[owners[at]] ?: values[at])
    }

    /** The [most] nearest documents, of those [allowed]. */
    fun nearest(most: Int, allowed: Set<Long>?): List<Long> = best.keys.filter { allowed == null || it in allowed }
        .sortedWith(compareByDescending<Long> { best.getValue(it) }.thenBy { it }).take(most)

    /** Of a document's best passage. */
    fun ofDocument(document: Long): Float? = best[document]

    fun ofPassage(row: Long): Float? = rows.binarySearch(row).let { if (it < 0) null else values[it] }
}
