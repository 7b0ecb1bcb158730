package org.msdc.encoder

import androidx.sqlite.SQLiteConnection
import java.nio.ByteBuffer
import java.nio.ByteOrder

private const val MASK = 0xFFFFFFFFL

/** CRC-32 of UTF-8 bytes. */
internal fun crc(text: String): Long = core.crc32(0, text.toByteArray()).toLong() and MASK

/** A passage's checksum: of document, start, end, scale (0 without a vector) and vector. */
internal fun crc(document: Long, start: Long, end: Long, scale: Double?, vector: ByteArray?): Long {
    val bytes = ByteBuffer.allocate(32 + (vector?.size ?: 0)).order(ByteOrder.LITTLE_ENDIAN)
    bytes.putLong(document).putLong(start).putLong(end).putDouble(scale ?: 0.0).put(vector ?: ByteArray(0))
    return core.crc32(0, bytes.array()).toLong() and MASK
}

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
        val count = db.values("SELECT count(vector) FROM passages") { it.getLong(0) }.single()
        if (count * width > Int.MAX_VALUE) damaged("$path: $count passages are too many for this device")
        rows = LongArray(count.toInt())
        owners = LongArray(count.toInt())
        scales = FloatArray(count.toInt())
        codes = ByteArray((count * width).toInt())
        var at = 0
        db.select(sql("vectors"), 0) {
            val row = it.getLong(0)
            val scale = if (it.isNull(4)) null else it.getDouble(4)
            val vector = if (it.isNull(5)) null else it.getBlob(5)
            val crc = crc(it.getLong(1), it.getLong(2), it.getLong(3), scale, vector)
            if (crc != it.getLong(6) || vector != null && vector.size != width) {
                damaged("$path: damaged (the vector of passage $row)")
            }
            if (vector != null && scale != null) {
                rows[at] = row
                owners[at] = it.getLong(1)
                scales[at] = scale.toFloat()
                vector.copyInto(codes, at++ * width)
            }
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
