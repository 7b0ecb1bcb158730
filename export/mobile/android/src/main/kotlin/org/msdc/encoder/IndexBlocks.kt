package org.msdc.encoder

import androidx.sqlite.SQLiteConnection
import androidx.sqlite.SQLiteStatement
import java.io.ByteArrayOutputStream
import java.nio.ByteBuffer
import java.nio.ByteOrder

private const val MASK = 0xFFFFFFFFL
private const val MOST = 256 // passages of a block

/** CRC-32 of UTF-8 bytes. */
internal fun crc(text: String): Long = core.crc32(0, text.toByteArray()).toLong() and MASK

/** A passage's checksum: of document, start, end, scale (0 without a vector) and vector. */
internal fun crc(document: Long, start: Long, end: Long, scale: Double? = null, vector: ByteArray? = null): Long {
    val bytes = ByteBuffer.allocate(32 + (vector?.size ?: 0)).order(ByteOrder.LITTLE_ENDIAN)
    bytes.putLong(document).putLong(start).putLong(end).putDouble(scale ?: 0.0).put(vector ?: ByteArray(0))
    return core.crc32(0, bytes.array()).toLong() and MASK
}

/** A part of a document, with its 8-bit vector and scale; null where the model cannot read it. */
internal class Passage(
    val document: Long, val start: Long, val end: Long, val scale: Double?, val vector: ByteArray?
) {
    /** The row of the table `rebuilt`. */
    fun values(): Array<Any?> = arrayOf(document, start, end, scale, vector, crc(document, start, end, scale, vector))
}

/**
 * A row of the table `blocks`: the number and the document (int64) of each passage, its scale (float32) and its vector
 * (int8), all little-endian.
 */
internal class Block(val row: Long, val columns: List<ByteArray>) {
    val count = columns[0].size / 8
    val width = if (count == 0) 0 else columns[3].size / count

    val crc: Long get() = columns.fold(0) { start, column -> core.crc32(start, column) }.toLong() and MASK

    fun numbers(): LongArray = LongArray(count).also { buffer(0).asLongBuffer().get(it) }

    fun documents(): LongArray = LongArray(count).also { buffer(1).asLongBuffer().get(it) }

    fun scales(): FloatArray = FloatArray(count).also { buffer(2).asFloatBuffer().get(it) }

    /** The block without the passages of [removed] documents. */
    fun without(removed: Set<Long>): Block {
        val owners = documents()
        val left = owners.indices.filter { owners[it] !in removed }
        return Block(row, columns.map { column ->
            val size = column.size / count
            ByteArray(left.size * size).also { to ->
                left.forEachIndexed { at, from -> column.copyInto(to, at * size, from * size, (from + 1) * size) }
            }
        })
    }

    private fun buffer(column: Int) = ByteBuffer.wrap(columns[column]).order(ByteOrder.LITTLE_ENDIAN)

    companion object {
        /** The block of a row of [path], compared with its checksum. */
        fun read(path: String, row: SQLiteStatement): Block {
            val block = Block(row.getLong(0), (2..5).map { row.getBlob(it) })
            val sizes = listOf(8, 8, 4, block.width).map { it * block.count }
            if (block.crc != row.getLong(1) || block.columns.map { it.size } != sizes) {
                damaged("$path: damaged (the vectors of block ${block.row})")
            }
            return block
        }
    }
}

/** Writes passages, whose vectors fill the last block and further ones, until [finish]. */
internal class BlockWriter(private val db: SQLiteConnection, path: String) {
    private var row = 1L
    private var columns = List(4) { ByteArrayOutputStream() }
    private var isWritten = true

    init {
        db.select(sql("last_block")) {
            val last = Block.read(path, it)
            row = last.row
            columns.zip(last.columns) { column, stored -> column.write(stored) }
        }
    }

    fun add(part: Passage) {
        if (part.vector != null && columns[0].size() == 8 * MOST) {
            finish()
            row++
            columns = List(4) { ByteArrayOutputStream() }
        }
        val crc = crc(part.document, part.start, part.end)
        db.run(sql("add_passage"), part.document, part.start, part.end, row.takeIf { part.vector != null }, crc)
        if (part.vector == null || part.scale == null) return
        val number = db.values("SELECT last_insert_rowid()") { it.getLong(0) }.single()
        val bytes = ByteBuffer.allocate(20).order(ByteOrder.LITTLE_ENDIAN)
        bytes.putLong(number).putLong(part.document).putFloat(part.scale.toFloat())
        columns[0].write(bytes.array(), 0, 8)
        columns[1].write(bytes.array(), 8, 8)
        columns[2].write(bytes.array(), 16, 4)
        columns[3].write(part.vector)
        isWritten = false
    }

    fun finish() {
        if (!isWritten) db.write(Block(row, columns.map { it.toByteArray() }))
        isWritten = true
    }
}

private fun SQLiteConnection.write(block: Block) = run(sql("write_block"), block.row, block.crc, *block.columns.toTypedArray())

/** Removes the documents of [keys] (JSON), with their words, passages and vectors; returns their number. */
internal fun SQLiteConnection.removeDocuments(path: String, keys: String): Int {
    val removed = values(sql("blocks_of"), keys) { it.getLong(1) to it.getLong(0) }.groupBy({ it.first }, { it.second })
    for ((row, documents) in removed) {
        val block = values(sql("block"), row) { Block.read(path, it) }.singleOrNull()
            ?: damaged("$path: damaged (the vectors of block $row)")
        val left = block.without(documents.toSet())
        if (left.count > 0) write(left) else run(sql("remove_block"), row)
    }
    run(sql("remove"), keys)
    return values("SELECT changes()") { it.getLong(0).toInt() }.single()
}

/** Puts the passages of the table `rebuilt` in the place of all others. */
internal fun SQLiteConnection.replacePassages(path: String) {
    runAll("begin_finish")
    val writer = BlockWriter(this, path)
    select(sql("rebuilt")) {
        val scale = if (it.isNull(3)) null else it.getDouble(3)
        val part = Passage(it.getLong(0), it.getLong(1), it.getLong(2), scale, if (it.isNull(4)) null else it.getBlob(4))
        if (part.values().last() != it.getLong(5)) damaged("$path: damaged (a new passage of document ${part.document})")
        writer.add(part)
    }
    writer.finish()
    runAll("finish_rebuild")
}
